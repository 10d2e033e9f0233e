// Steps of transforms whose lines a GPU's work-items hold in registers: kernels/fft/registers.cl.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <algorithm>
#include <array>
#include <bit>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/fft/launcher.h"
#include "engine/fft/tables.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::fft {

namespace {

// The kernel's form needs this on any device: a line's elements are spread over the registers of a
// group's work-items. Smaller devices take the steps of `lines`. Work-items of a group: at most so
// many, and at least so many, of several short lines.
constexpr uint32_t kMostItems = 512;
constexpr uint32_t kItems = 64;
// Local memory that a work-group takes at most; GPUs offer 48 KiB or more.
constexpr uint64_t kLocalMemory = 46 << 10;
// Registers that the elements and what is computed of them take.
constexpr int kRegisters = 128;

const KernelFamily registers_family{"fft/registers.cl", "fft_registers"};

/// Bytes of local memory, at most, as kernels/fft/registers.cl lays lines out.
uint64_t local_bytes(uint32_t length, uint32_t lanes, int64_t real_size, bool halves) {
  const uint32_t cell = static_cast<uint32_t>(real_size) * (halves ? 1 : 2), run = 128 / cell;
  const uint32_t padded = length + length / run;
  const uint32_t pitch = ceil_div(padded, run) * run + (lanes <= run ? run / lanes : 1);
  return uint64_t{lanes} * pitch * cell;
}

/// The thread's next schedules may overwrite it.
const RegisterSchedule& remembered_schedule(uint32_t length) {
  struct Memo {
    uint32_t length;
    RegisterSchedule schedule;
  };
  static thread_local std::array<Memo, 64> memos{};
  Memo& memo = memos[(length ^ length >> 6) % memos.size()];
  if (memo.length != length) memo = {length, register_schedule(length)};
  return memo.schedule;
}

}  // namespace

bool Launcher::fits_registers(uint32_t length, uint32_t lanes) const {
  const DeviceProperties& properties = device_.properties();
  if (properties.max_work_group_size < kMostItems || properties.local_memory < kLocalMemory ||
      device_row(device_).hardware.item_registers < kRegisters) {
    return false;
  }
  const uint32_t items = remembered_schedule(length).items;
  return items > 0 && items * lanes <= kMostItems &&
         local_bytes(length, lanes, real_size_, true) <= kLocalMemory;
}

void Launcher::step_in_registers(const Place& in, const Place& out, const Ends& ends) {
  Arguments& a = arguments_;
  const RegisterSchedule schedule = remembered_schedule(a.length);
  const bool along = (a.flags & kAlongIn) && (a.flags & kAlongOut);
  uint32_t lanes = std::bit_floor(std::max(1u, kItems / schedule.items));
  if (!along) lanes = std::max(lanes, side_by_side());
  while (lanes > 1 && !fits_registers(a.length, lanes)) lanes /= 2;
  const bool halves = local_bytes(a.length, lanes, real_size_, false) > kLocalMemory;
  a.lanes = lanes;
  if ((a.flags & kUnpack) && a.before > 1) {
    // Half the lanes of a work-group have the lines that the other half's go together with.
    a.tiles = signals_ * ((a.before / 2 + lanes / 2) / (lanes / 2));
  } else {
    a.tiles = ceil_div(a.lines, lanes);
  }

  const at::Tensor twiddles = table(queue_, real_, TableKind::register_passes, a.length);
  at::Tensor cross;
  if (a.before > 1) cross = table(queue_, real_, TableKind::register_cross, a.length, a.before);
  const auto& radix = schedule.radix;
  Kernel& kernel = registers_family.get(device_, {{"R", tag(real_)},
                                                  {"LENGTH", a.length},
                                                  {"RADIX_0", radix[0]},
                                                  {"RADIX_1", radix[1]},
                                                  {"RADIX_2", radix[2]},
                                                  {"RADIX_3", radix[3]},
                                                  {"RADIX_4", radix[4]},
                                                  {"RADIX_5", radix[5]},
                                                  {"LINES", lanes},
                                                  {"HALVES", halves}});
  const auto pointer = [](const at::Tensor& tensor) {
    return Pointer{tensor.defined() ? tensor.const_data_ptr() : nullptr};
  };
  const size_t group = size_t{schedule.items} * lanes;
  const auto go = [&](const auto& scale) {
    launch(kernel, queue_, NDRange::linear(a.tiles * group, group), Pointer{in.address},
           Pointer{out.address}, pointer(twiddles), pointer(cross), pointer(chirp_),
           pointer(ends.factors), scale, a);
  };
  if (real_ == c10::ScalarType::Double) {
    go(ends.scale);
  } else {
    go(static_cast<float>(ends.scale));
  }
}

}  // namespace ocl::fft
