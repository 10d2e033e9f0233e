// The registry of devices: which ones there are, in which order, and what happens after a fork.

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "opencl/device.h"
#include "opencl/environment.h"
#include "opencl/log.h"

namespace ocl {
namespace {

constexpr cl_int kPlatformNotFound = -1001;  // CL_PLATFORM_NOT_FOUND_KHR
constexpr const char* kForked =
    "OpenCL was already in use when this process was forked (asking for devices is enough), and "
    "its drivers do not survive a fork. "
    "Start worker processes with the 'spawn' method, for example "
    "torch.multiprocessing.set_start_method('spawn') or "
    "DataLoader(..., multiprocessing_context='spawn'), or use the device in the parent only.";

std::atomic<bool> initialized{false};

struct Slot {
  cl_platform_id platform;
  cl_device_id id;
  DeviceProperties properties;
  Device* device = nullptr;  // made on first use

  Slot(cl_platform_id platform, cl_device_id id, DeviceProperties properties)
      : platform(platform), id(id), properties(std::move(properties)) {}
};

struct Registry {
  std::vector<std::unique_ptr<Slot>> slots;
  std::string reason;  // why there are none
  std::mutex mutex;    // guards the making of devices
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

const char* class_name(DeviceClass device_class) {
  switch (device_class) {
    case DeviceClass::gpu:
      return "gpu";
    case DeviceClass::accelerator:
      return "accelerator";
    default:
      return "cpu";
  }
}

std::string listing(const std::vector<std::unique_ptr<Slot>>& slots) {
  std::string text;
  for (size_t i = 0; i < slots.size(); ++i) {
    const DeviceProperties& p = slots[i]->properties;
    text += (i == 0 ? "" : ", ") + std::to_string(i) + ": " + p.name + " (" + p.platform + ", " +
            class_name(p.device_class) + ")";
  }
  return text;
}

bool selects(const std::string& selector, size_t index, const DeviceProperties& p) {
  if (selector.find_first_not_of("0123456789") == std::string::npos) {
    return selector == std::to_string(index);
  }
  if (selector == "gpu" || selector == "cpu" || selector == "accelerator") {
    return selector == class_name(p.device_class);
  }
  // PoCL calls its platform "Portable Computing Language"; only versions have the name all use.
  return lower(p.vendor + "\n" + p.platform + "\n" + p.name + "\n" + p.version).find(selector) !=
         std::string::npos;
}

/// Keeps what TORCH_OCL_DEVICES names, in its order.
void apply_selectors(const char* text, Registry& registry) {
  const std::string before = listing(registry.slots);
  std::vector<const Slot*> all;
  for (const auto& slot : registry.slots) all.push_back(slot.get());
  std::vector<std::unique_ptr<Slot>> chosen;
  std::vector<std::string_view> unknown;
  for (const std::string_view item : split_list(text)) {
    const std::string selector = lower(item);
    bool selected = false;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!selects(selector, i, all[i]->properties)) continue;
      selected = true;
      // A slot taken by an earlier selector is empty by now: duplicates drop out.
      if (registry.slots[i]) chosen.push_back(std::move(registry.slots[i]));
    }
    if (!selected) unknown.push_back(item);
  }
  registry.slots = std::move(chosen);
  if (!registry.slots.empty()) {
    for (const std::string_view item : unknown) {
      warn("TORCH_OCL_DEVICES: \"" + std::string(item) + "\" matches none of " + before);
    }
  }
  if (registry.slots.empty()) {
    registry.reason = "No OpenCL device is selected: TORCH_OCL_DEVICES=\"" + std::string(text) +
                      "\" matches none of " + before + ".";
  }
}

void add_devices(cl_platform_id platform, Registry& registry) {
  cl_uint count = 0;
  const cl_int code = api().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
  if (code == CL_DEVICE_NOT_FOUND || (code == CL_SUCCESS && count == 0)) return;
  check(code, "clGetDeviceIDs", nullptr);
  std::vector<cl_device_id> ids(count);
  OCL_CALL(nullptr, clGetDeviceIDs, platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr);
  for (cl_device_id id : ids) {
    try {
      DeviceProperties properties = probe_device(platform, id);
      if (is_usable(properties)) {
        registry.slots.push_back(std::make_unique<Slot>(platform, id, std::move(properties)));
      }
    } catch (const std::exception& error) {
      warn(std::string("an OpenCL device is left out: ") + error.what());
    }
  }
}

std::string platform_name(cl_platform_id platform) {
  char name[256] = {};
  api().clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, nullptr);
  return name[0] == '\0' ? "without a name" : name;
}

void enumerate(Registry& registry) {
  if (!api().unavailable.empty()) {
    registry.reason = api().unavailable;
    return;
  }
  // Drivers start threads as soon as they are asked for platforms: from here on a fork is harmful.
  pthread_atfork(nullptr, nullptr, [] { detail::forked.store(initialized.load()); });
  initialized.store(true);
  cl_uint count = 0;
  const cl_int code = api().clGetPlatformIDs(0, nullptr, &count);
  if (code == kPlatformNotFound || (code == CL_SUCCESS && count == 0)) {
    registry.reason = std::string("No OpenCL driver is installed. ") + install_advice();
    return;
  }
  check(code, "clGetPlatformIDs", nullptr);
  std::vector<cl_platform_id> platforms(count);
  OCL_CALL(nullptr, clGetPlatformIDs, count, platforms.data(), nullptr);
  for (cl_platform_id platform : platforms) {
    try {
      add_devices(platform, registry);
    } catch (const std::exception& error) {
      warn("the OpenCL platform " + platform_name(platform) + " is left out: " + error.what());
    }
  }
  std::stable_sort(registry.slots.begin(), registry.slots.end(), [](const auto& a, const auto& b) {
    return a->properties.device_class < b->properties.device_class;
  });
  if (registry.slots.empty()) {
    registry.reason =
        std::string("The installed OpenCL drivers offer no usable device. ") + install_advice();
    return;
  }
  const char* selectors = std::getenv("TORCH_OCL_DEVICES");
  if (selectors != nullptr && *selectors != '\0') apply_selectors(selectors, registry);
}

// Leaked on purpose: drivers tear themselves down in their own exit handlers, in an order nobody
// controls, and releasing objects after that crashes the process at its very end.
Registry& registry() {
  static Registry* const instance = [] {
    auto* made = new Registry;
    try {
      enumerate(*made);
    } catch (const std::exception& error) {
      made->slots.clear();
      made->reason = std::string("OpenCL is not available: ") + error.what();
    }
    return made;
  }();
  return *instance;
}

}  // namespace

bool is_initialized() noexcept { return initialized.load(std::memory_order_relaxed); }

void detail::throw_forked() { throw std::runtime_error(kForked); }

int device_count() noexcept {
  if (process_was_forked()) return 0;
  try {
    return static_cast<int>(registry().slots.size());
  } catch (...) {  // out of host memory
    return 0;
  }
}

std::string unavailable_reason() {
  if (process_was_forked()) return kForked;
  return registry().reason;
}

Device& detail::make_device(int index) {
  check_not_forked();
  Registry& all = registry();
  if (all.slots.empty()) throw std::runtime_error(all.reason);
  if (index < 0 || static_cast<size_t>(index) >= all.slots.size()) {
    throw std::runtime_error("OpenCL device index " + std::to_string(index) +
                             " is out of range; the devices are " + listing(all.slots) + ".");
  }
  Slot& slot = *all.slots[static_cast<size_t>(index)];
  std::lock_guard<std::mutex> lock(all.mutex);
  if (slot.device == nullptr) {
    slot.device = new Device(index, slot.platform, slot.id, slot.properties);
  }
  if (index < kRemembered) made[index].store(slot.device, std::memory_order_release);
  return *slot.device;
}

}  // namespace ocl
