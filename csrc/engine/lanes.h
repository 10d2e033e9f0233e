// Lanes of vectors that are the same on all CPUs.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>

namespace ocl {

/// Elements of a CPU's longest vector, which has 64 bytes. Compilers split it where registers are
/// shorter. vector_lanes() (device_table.h) has those of the device's registers.
inline size_t longest_lanes(c10::ScalarType dtype) { return 64 / c10::elementSize(dtype); }

}  // namespace ocl
