// The registry of devices: which ones there are, in which order, and what happens after a fork.

#include "opencl/platform.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "opencl/device.h"
#include "opencl/device_types.h"
#include "opencl/driver_list.h"
#include "opencl/driver_text.h"
#include "opencl/environment.h"
#include "opencl/log.h"
#include "opencl/partition.h"
#include "opencl/quirks.h"

namespace ocl {
namespace {

constexpr cl_int kPlatformNotFound = -1001;  // CL_PLATFORM_NOT_FOUND_KHR
constexpr const char* kForked =
    "OpenCL was already in use when this process was forked, and its drivers do not survive a "
    "fork. "
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
  std::mutex mutex;  // guards what follows, and the making of devices
  std::vector<std::unique_ptr<Slot>> slots;
  std::string reason;  // why there are none
  // Devices that are left out, and why. A warning names those that the user would miss.
  std::vector<std::string> notes, warnings;
  std::atomic<bool> settled{false};  // from then on the slots don't change
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

/// The devices that are left out, as sentences.
std::string left_out(const Registry& registry) {
  std::string text;
  for (const auto* list : {&registry.warnings, &registry.notes}) {
    for (const std::string& note : *list) text += " Left out: " + note + ".";
  }
  return text;
}

bool contains(const std::string& text, const std::string& selector) {
  return lower(text).find(selector) != std::string::npos;
}

bool is_driver(const std::string& selector, const DeviceProperties& p) {
  // PoCL calls its platform "Portable Computing Language"; only versions have the name all use.
  return contains(p.platform + "\n" + p.version, selector);
}

/// The indices of the devices that a selector, in lower case, names. A driver's name comes before
/// a device's: "intel" is Intel's driver, not PoCL on a processor of Intel's.
std::vector<size_t> selected_by(const std::string& selector, const std::vector<const Slot*>& all) {
  const bool is_index = selector.find_first_not_of("0123456789") == std::string::npos;
  const bool is_class = selector == "gpu" || selector == "cpu" || selector == "accelerator";
  const bool names_driver = std::any_of(all.begin(), all.end(), [&](const Slot* slot) {
    return is_driver(selector, slot->properties);
  });
  std::vector<size_t> selected;
  for (size_t i = 0; i < all.size(); ++i) {
    const DeviceProperties& p = all[i]->properties;
    const bool matches = is_index       ? selector == std::to_string(i)
                         : is_class     ? selector == class_name(p.device_class)
                         : names_driver ? is_driver(selector, p)
                                        : contains(p.vendor + "\n" + p.name, selector);
    if (matches) selected.push_back(i);
  }
  return selected;
}

/// Keeps what TORCH_OCL_DEVICES names, in its order.
void apply_selectors(const char* text, Registry& registry) {
  const std::string before = listing(registry.slots);
  std::vector<const Slot*> all;
  for (const auto& slot : registry.slots) all.push_back(slot.get());
  std::vector<std::unique_ptr<Slot>> chosen;
  std::vector<std::string_view> unknown;
  for (const std::string_view item : split_list(text)) {
    const std::vector<size_t> selected = selected_by(lower(item), all);
    for (const size_t i : selected) {
      // A slot taken by an earlier selector is empty by now: duplicates drop out.
      if (registry.slots[i]) chosen.push_back(std::move(registry.slots[i]));
    }
    if (selected.empty()) unknown.push_back(item);
  }
  registry.slots = std::move(chosen);
  if (!registry.slots.empty()) {
    for (const std::string_view item : unknown) {
      warn("TORCH_OCL_DEVICES: \"" + std::string(item) + "\" matches none of " + before);
    }
  }
  if (registry.slots.empty()) {
    registry.reason = "No OpenCL device is selected: TORCH_OCL_DEVICES=\"" + std::string(text) +
                      "\" matches none of " + before + "." + left_out(registry);
  }
}

/// Keeps what CUDA_VISIBLE_DEVICES names, as CUDA does: numbers, up to the first that is none of a
/// device. Other names are those of CUDA's own devices, and choose nothing here.
void apply_visible_devices(const char* text, Registry& registry) {
  if (std::isalpha(static_cast<unsigned char>(*text)) != 0) return;
  std::vector<std::unique_ptr<Slot>> chosen;
  for (const std::string_view item : split_list(text)) {
    size_t i = registry.slots.size();
    std::from_chars(item.data(), item.data() + item.size(), i);
    if (i >= registry.slots.size() || !registry.slots[i]) break;
    chosen.push_back(std::move(registry.slots[i]));
  }
  registry.slots = std::move(chosen);
  if (registry.slots.empty()) {
    registry.reason =
        "No OpenCL device is selected: \"cuda\" means `ocl`, and CUDA_VISIBLE_DEVICES=\"" +
        std::string(text) + "\" names none.";
  }
}

/// Puts several in the place of each device, as TORCH_OCL_PARTITION says.
void partition(Registry& registry) {
  const int parts = wanted_parts();
  if (parts == 1) return;
  std::vector<std::unique_ptr<Slot>> slots;
  for (const auto& whole : registry.slots) {
    for (cl_device_id id : parts_of(whole->id, parts)) {
      slots.push_back(
          std::make_unique<Slot>(whole->platform, id, probe_device(whole->platform, id)));
    }
  }
  registry.slots = std::move(slots);
}

/// The platform's devices; none where it has none. A failure is tried once more: a driver that
/// another process is just starting, or that was upgraded, may fail the first time.
std::vector<cl_device_id> devices_of(cl_platform_id platform) {
  std::vector<cl_device_id> ids;
  cl_uint count = 0;
  cl_int code = CL_SUCCESS;
  for (int attempt = 0; attempt < 2; ++attempt) {
    code = api().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
    if (code == CL_DEVICE_NOT_FOUND || (code == CL_SUCCESS && count == 0)) return {};
    if (code != CL_SUCCESS) continue;
    ids.resize(count);
    code = api().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr);
    if (code == CL_SUCCESS) return ids;
  }
  throw_error("clGetDeviceIDs", code, nullptr);
}

std::string platform_name(cl_platform_id platform) {
  char name[256] = {};
  api().clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, nullptr);
  return name[0] == '\0' ? "without a name" : driver_text(name);
}

/// False if a call failed that may succeed the next time.
bool add_device(cl_platform_id platform, cl_device_id id, Registry& registry) {
  try {
    DeviceProperties properties = probe_device(platform, id);
    const Refusal refusal = refusal_of(properties);
    if (refusal.reason.empty()) {
      registry.slots.push_back(std::make_unique<Slot>(platform, id, std::move(properties)));
    } else {
      auto& list = refusal.warn ? registry.warnings : registry.notes;
      list.push_back(properties.name + " (" + properties.platform + "): " + refusal.reason);
    }
    return true;
  } catch (const std::exception& error) {
    registry.warnings.push_back("a device of " + platform_name(platform) + ": " + error.what());
    return false;
  }
}

bool add_devices(cl_platform_id platform, Registry& registry) {
  const std::string name = platform_name(platform);
  try {
    const std::vector<cl_device_id> ids = devices_of(platform);
    if (ids.empty()) {
      registry.notes.push_back("the platform " + name + ", which offers no devices" +
                               cause_of_no_devices(name));
    }
    bool all = true;
    for (cl_device_id id : ids) all &= add_device(platform, id, registry);
    return all;
  } catch (const std::exception& error) {
    registry.warnings.push_back("the platform " + name + ": " + error.what());
    return false;
  }
}

std::vector<cl_platform_id> find_platforms() {
  // Loaders look for drivers in their first call.
  const DriverList drivers(configured_drivers());
  cl_uint count = 0;
  const cl_int code = api().clGetPlatformIDs(0, nullptr, &count);
  if (code == kPlatformNotFound || (code == CL_SUCCESS && count == 0)) return {};
  check(code, "clGetPlatformIDs", nullptr);
  std::vector<cl_platform_id> platforms(count);
  OCL_CALL(nullptr, clGetPlatformIDs, count, platforms.data(), nullptr);
  // ocl-icd lists a driver that two files name twice.
  std::vector<cl_platform_id> once;
  for (cl_platform_id platform : platforms) {
    if (std::ranges::find(once, platform) == once.end()) once.push_back(platform);
  }
  return once;
}

/// False if a call failed that may succeed the next time.
bool enumerate(Registry& registry) {
  if (!api().unavailable.empty()) {
    registry.reason = api().unavailable;
    return true;
  }
  // Drivers start threads as soon as they are asked for platforms: from here on a fork is harmful.
  static const int handler =
      pthread_atfork(nullptr, nullptr, [] { detail::forked.store(initialized.load()); });
  static_cast<void>(handler);
  initialized.store(true);
  const std::vector<cl_platform_id> platforms = find_platforms();
  if (platforms.empty()) {
    registry.reason = std::string("No OpenCL driver is installed. ") + install_advice();
    return true;
  }
  bool all = true;
  for (cl_platform_id platform : platforms) all &= add_devices(platform, registry);
  std::stable_sort(registry.slots.begin(), registry.slots.end(), [](const auto& a, const auto& b) {
    return a->properties.device_class < b->properties.device_class;
  });
  if (registry.slots.empty()) {
    registry.reason = "The installed OpenCL drivers offer no usable device." + left_out(registry) +
                      " " + install_advice();
    return all;
  }
  for (const std::string& warning : registry.warnings) warn("left out: " + warning);
  const char* selectors = std::getenv("TORCH_OCL_DEVICES");
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (selectors != nullptr && *selectors != '\0') {
    apply_selectors(selectors, registry);
  } else if (visible != nullptr && switched_on("TORCH_OCL_AS_CUDA", false)) {
    apply_visible_devices(visible, registry);
  }
  partition(registry);
  return all || !registry.slots.empty();
}

/// Looks for devices until it has found some, or none for a reason that stays. Holds the mutex.
void look(Registry& registry) {
  registry.reason.clear();
  registry.notes.clear();
  registry.warnings.clear();
  bool settled = false;
  try {
    settled = enumerate(registry);
  } catch (const std::exception& error) {
    registry.slots.clear();
    registry.reason = std::string("OpenCL is not available: ") + error.what();
  }
  registry.settled.store(settled, std::memory_order_release);
}

// Leaked on purpose: drivers tear themselves down in their own exit handlers, in an order nobody
// controls, and releasing objects after that crashes the process at its very end.
Registry& registry() {
  static Registry* const instance = new Registry;
  // In a forked child a thread that is gone may hold the mutex: what was found by then stands.
  if (process_was_forked()) return *instance;
  if (!instance->settled.load(std::memory_order_acquire)) {
    std::lock_guard<std::mutex> lock(instance->mutex);
    if (!instance->settled.load(std::memory_order_relaxed)) look(*instance);
  }
  return *instance;
}

}  // namespace

bool is_initialized() noexcept { return initialized.load(std::memory_order_relaxed); }

void detail::throw_forked() { throw std::runtime_error(kForked); }

int device_count() noexcept {
  try {
    const Registry& all = registry();
    return all.settled.load(std::memory_order_acquire) ? static_cast<int>(all.slots.size()) : 0;
  } catch (...) {  // out of host memory
    return 0;
  }
}

std::vector<std::string> device_types() {
  std::vector<std::string> types;
  const Registry& all = registry();
  if (!all.settled.load(std::memory_order_acquire)) return {};
  for (const auto& slot : all.slots) {
    types.emplace_back(class_name(slot->properties.device_class));
  }
  return types;
}

std::string unavailable_reason() {
  if (process_was_forked()) return kForked;
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.reason;
}

std::vector<std::string> left_out_devices() {
  if (process_was_forked()) return {};
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<std::string> found = all.warnings;
  found.insert(found.end(), all.notes.begin(), all.notes.end());
  return found;
}

Device& detail::make_device(int index) {
  check_not_forked();
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.slots.empty()) throw std::runtime_error(all.reason);
  if (index < 0 || static_cast<size_t>(index) >= all.slots.size()) {
    throw std::runtime_error("OpenCL device index " + std::to_string(index) +
                             " is out of range; the devices are " + listing(all.slots) + ".");
  }
  Slot& slot = *all.slots[static_cast<size_t>(index)];
  if (slot.device == nullptr) {
    slot.device = new Device(index, slot.platform, slot.id, slot.properties);
  }
  if (index < kRemembered) made[index].store(slot.device, std::memory_order_release);
  return *slot.device;
}

}  // namespace ocl
