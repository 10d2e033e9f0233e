#include "engine/gemm/fragments.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gemm/launch.h"
#include "opencl/deferred.h"
#include "opencl/kernel_family.h"
#include "opencl/log.h"

namespace ocl::gemm {

namespace {

enum class Type : uint8_t { half, bfloat16, single };
constexpr size_t kTypes = 3;
enum class State : uint8_t { unknown, there, absent, wrong, fails };

/// A unit, and what became of its check.
struct Entry {
  WaveUnit unit{};
  std::atomic<State> state{State::unknown};
};
constexpr size_t kDevices = 64;
std::array<std::array<Entry, kTypes>, kDevices> entries;

/// The number of a name such as "gfx90a:sramecc+:xnack-"; 0 for others.
uint32_t number_of(const char* name) {
  unsigned target = 0;
  return std::sscanf(name, "gfx%x", &target) == 1 ? target : 0;
}

/// Whether AMD's own driver drives the device, whose compiler knows the instructions.
bool has_amd_driver(const DeviceProperties& properties) {
  return properties.device_class == DeviceClass::gpu &&
         properties.extensions.find("cl_amd_device_attribute_query") != std::string::npos;
}

uint32_t find_target(const Device& device) {
  if (const char* name = std::getenv("TORCH_OCL_AMD_TARGET")) return number_of(name);
  const DeviceProperties& properties = device.properties();
  return has_amd_driver(properties) ? number_of(properties.name.c_str()) : 0;
}

const char* reason_of(State state) {
  switch (state) {
    case State::wrong:
      return "this device's instructions gave wrong numbers";
    case State::fails:
      return "the driver does not build programs with the instructions";
    default:
      return "the device's waves have no instructions for that type";
  }
}

/// The documented unit of a processor for a type. Sources: LLVM's "User Guide for AMDGPU Backend"
/// has the processors, and clang's BuiltinsAMDGPU.def which of them have an instruction.
bool find_unit(uint32_t target, Type type, WaveUnit& unit) {
  const uint32_t generation = target >> 8;
  if (generation == 0x11 || generation == 0x12) {
    unit = {generation == 0x11 ? kWmmaGfx11 : kWmmaGfx12, 32};
    return type != Type::single;
  }
  const bool cdna2 = target == 0x90a || target == 0x950 || (target >= 0x940 && target <= 0x942);
  if (target == 0x908 || cdna2) {
    const bool pairs = type == Type::bfloat16 && !cdna2;
    unit = {pairs ? kMfmaGfx908 : kMfmaGfx9, 64, type == Type::single};
    return true;
  }
  const bool rdna = target == 0x1011 || target == 0x1012 || (target >= 0x1030 && target <= 0x1036);
  unit = {kDot2, rdna ? 32 : 64};
  return type == Type::half && (rdna || target == 0x906);
}

/// Whether the sums of one wave's tile are right, those of subnormal operands, and those of sums.
struct Right {
  bool all = true, subnormal = true, chained = true;
};

Right check(Queue& queue, const WaveUnit& unit, const char* tag, int rows) {
  static const KernelFamily family{"gemm/check_fragments.cl", "gemm_check_fragments"};
  const auto items = static_cast<size_t>(unit.size);
  const int columns = unit.fragments == kDot2 ? unit.size / 2 : rows;
  Kernel& kernel = family.get(queue.device(), {{"C", "f32"},
                                               {"IN0", tag},
                                               {"IN1", tag},
                                               {"OUT", tag},
                                               {"WM", rows},
                                               {"WN", columns},
                                               {"SIZE", unit.size},
                                               {"FRAGMENTS", static_cast<int>(unit.fragments)},
                                               {"EMULATED", unit.emulated},
                                               {"AS_FLOATS", unit.as_floats}});
  const Workspace memory(3 * items * sizeof(uint32_t));
  const uint32_t none = 0;
  queue.fill(memory.data(), &none, sizeof none, 3 * items * sizeof none);
  launch(kernel, queue, NDRange::linear(items, items), Pointer{memory.data()});
  std::vector<uint32_t> counts(3 * items);
  queue.read(counts.data(), memory.data(), counts.size() * sizeof counts[0], /*blocking=*/true);
  const auto each = static_cast<uint32_t>(rows * columns / unit.size);
  const auto right = [&](size_t part) {
    return std::ranges::all_of(std::span(counts).subspan(part * items, items),
                               [&](uint32_t count) { return count == each; });
  };
  return {right(0), right(1), right(2)};
}

/// Whether the unit is there and right. Half's subnormal numbers count where its instructions take
/// them for 0 (gfx90a's do): then its products are those of float.
State checked(Queue& queue, WaveUnit& unit, const char* tag, Type type) {
  const Undeferred here;
  const std::string name = queue.device().properties().name;
  const std::string products = name + ": products of " + tag + " without instructions of waves: ";
  try {
    const bool mfma = unit.fragments == kMfmaGfx9 || unit.fragments == kMfmaGfx908;
    const int large = unit.fragments == kWmmaGfx11 || unit.fragments == kWmmaGfx12 ? 16 : 32;
    for (;;) {
      Right right = check(queue, unit, tag, large);
      unit.chains = right.all && right.chained;
      if (mfma && right.all) {
        const Right small = check(queue, unit, tag, 16);
        right = {small.all, right.subnormal && small.subnormal, right.chained};
      }
      if (right.all && (right.subnormal || type != Type::half)) return State::there;
      if (right.all && mfma && !unit.as_floats) {
        unit.as_floats = true;
        continue;
      }
      warn(products +
           (right.all ? "they take subnormal numbers for 0" : "their numbers are wrong"));
      return State::wrong;
    }
  } catch (const Error& error) {
    warn(products + error.what());
    return State::fails;
  }
}

}  // namespace

uint32_t amd_target(const Device& device) {
  static constinit std::array<std::atomic<uint32_t>, kDevices> targets{};
  const auto index = static_cast<size_t>(device.index());
  if (index >= kDevices) return 0;
  // Kept with all bits turned, so that 0 is what nobody has read.
  uint32_t kept = targets[index].load(std::memory_order_relaxed);
  if (__builtin_expect(kept == 0, 0)) {
    kept = ~find_target(device);
    targets[index].store(kept, std::memory_order_relaxed);
  }
  return ~kept;
}

WaveAnswer wave_unit(Queue& queue, const char* tag) {
  const uint32_t target = amd_target(queue.device());
  if (target == 0) return {nullptr, "the device has none of AMD's processors that are known"};
  const std::string_view name = tag;
  const Type type = name == "f16" ? Type::half : name == "bf16" ? Type::bfloat16 : Type::single;
  const auto index = static_cast<size_t>(queue.device().index());
  if (index >= kDevices || (type == Type::single && name != "f32")) {
    return {nullptr, reason_of(State::absent)};
  }
  Entry& entry = entries[index][static_cast<size_t>(type)];
  State state = entry.state.load(std::memory_order_acquire);
  if (__builtin_expect(state == State::unknown, 0)) {
    // A capture runs later, and is not to hold a check.
    if (queue.capture() != nullptr) return {nullptr, "not checked before this graph's capture"};
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    state = entry.state.load(std::memory_order_acquire);
    if (state == State::unknown) {
      state = State::absent;
      if (find_unit(target, type, entry.unit)) {
        entry.unit.emulated = !has_amd_driver(queue.device().properties());
        // Asked for on a device with AMD's driver that runs nothing (tests/silicon).
        if (std::getenv("TORCH_OCL_AMD_TARGET") != nullptr && !entry.unit.emulated) {
          entry.unit.chains = entry.unit.fragments != kDot2;
          state = State::there;
        } else {
          state = checked(queue, entry.unit, tag, type);
        }
      }
      entry.state.store(state, std::memory_order_release);
    }
  }
  return state == State::there ? WaveAnswer{&entry.unit, nullptr}
                               : WaveAnswer{nullptr, reason_of(state)};
}

}  // namespace ocl::gemm
