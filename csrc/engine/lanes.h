// Vectors that are the same on all CPUs, and on all GPUs.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>

namespace ocl {

/// Bytes of a CPU's longest vector, and of one that a GPU moves at a time. torch.compile has them
/// from here (torch_ocl/inductor/plan/sizes.py).
inline constexpr size_t kCpuVectorBytes = 64, kGpuVectorBytes = 16;

/// Elements of a CPU's longest vector. Compilers split it where registers are shorter.
/// vector_lanes() (device_table.h) has those of the device's registers.
inline size_t longest_lanes(c10::ScalarType dtype) {
  return kCpuVectorBytes / c10::elementSize(dtype);
}

}  // namespace ocl
