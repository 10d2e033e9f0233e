#include "engine/tuner/scratch.h"

#include <algorithm>
#include <limits>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"

namespace ocl::tuner {

namespace {

using c10::ScalarType;

constexpr size_t kAlignment = 64;
constexpr size_t kGuard = 1024;  // bytes on either side, a multiple of every element's size

// A result may be off by this, in ulp: parts of k are added up in another order, and functions of
// vectors round otherwise than those of scalars.
constexpr double kUlp = 8;

NDRange range_for(const Device& device, size_t count) {
  const size_t local = device.is_cpu() ? group_of_lanes(device) : group_of_rows(device);
  return NDRange::linear(std::clamp<size_t>(count / 64, 1, 65536), local);
}

double epsilon_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
      return 0x1p-10;
    case ScalarType::BFloat16:
      return 0x1p-7;
    case ScalarType::Float:
      return std::numeric_limits<float>::epsilon();
    case ScalarType::Double:
      return std::numeric_limits<double>::epsilon();
    default:
      return 0;
  }
}

}  // namespace

Scratch::Scratch(ScalarType dtype, size_t count, const void* like)
    : dtype_(c10::toRealValueType(dtype)) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(like) % kAlignment;
  const size_t bytes = count * c10::elementSize(dtype);
  memory_ = allocator()->allocate(2 * kGuard + kAlignment + bytes);
  first_ = static_cast<char*>(memory_.get()) + misaligned;
  data_ = first_ + kGuard;
  count_ = (2 * kGuard + bytes) / c10::elementSize(dtype_);
}

void Scratch::fill(Queue& queue, uint32_t seed) const {
  static const KernelFamily family{"tuner/fill.cl", "tuner_fill"};
  Device& device = queue.device();
  launch(family.get(device, {{"TAG", tag(dtype_)}}), queue, range_for(device, count_),
         Pointer{first_}, cl_ulong{count_}, cl_uint{seed});
}

bool same_results(Queue& queue, const Scratch& x, const Scratch& y, double scale) {
  static const KernelFamily family{"tuner/compare.cl", "tuner_compare"};
  Device& device = queue.device();
  const c10::DataPtr memory = allocator()->allocate(sizeof(cl_int));
  cl_int different = 0;
  queue.fill(memory.get(), &different, sizeof different, sizeof different);
  launch(family.get(device, {{"TAG", tag(x.dtype_)}}), queue, range_for(device, x.count_),
         Pointer{x.first_}, Pointer{y.first_}, Pointer{memory.get()}, cl_ulong{x.count_},
         static_cast<cl_float>(kUlp * epsilon_of(x.dtype_)), static_cast<cl_float>(scale));
  queue.read(&different, memory.get(), sizeof different, true);
  return different == 0;
}

}  // namespace ocl::tuner
