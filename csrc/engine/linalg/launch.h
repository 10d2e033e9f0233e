// The linear algebra launchers share this: how a batch of matrices becomes a kernel's arguments,
// and how a kernel is chosen.
#pragma once

#include <algorithm>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/lanes.h"
#include "engine/linalg/linalg.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "runtime/stream.h"

namespace ocl::linalg {

using namespace kernel_types;
#include "linalg/arguments.clh"

/// A batch in a line of trace.
std::string describe(const Engine& engine, const MatrixBatch& matrices);

inline Strides strides_of(const MatrixBatch& matrices) {
  return {static_cast<uint64_t>(matrices.row_stride), static_cast<uint64_t>(matrices.column_stride),
          static_cast<uint64_t>(matrices.batch_stride)};
}

/// Where to halve n > multiple: at a multiple of `multiple`.
inline int64_t half_of(int64_t n, int64_t multiple) {
  return static_cast<int64_t>(round_up((n + 1) / 2, multiple));
}

/// The work-items of a group that shares one matrix: vector lanes on a CPU, rows in flight on a
/// GPU.
inline size_t group_of(const Device& device) {
  return device.is_cpu() ? group_of_lanes(device) : group_of_rows(device);
}

/// LANES of kernels/linalg/columns.clh, whose work-items have a matrix to themselves; 1 where that
/// doesn't serve: GPUs, and columns whose elements aren't adjacent.
inline size_t vector_lanes(const MatrixBatch& matrices) {
  if (matrices.row_stride != 1 || !current_queue(matrices.device).device().is_cpu()) return 1;
  size_t lanes = longest_lanes(c10::toRealValueType(matrices.dtype));
  const int64_t parts = c10::isComplexType(matrices.dtype) ? 2 : 1;
  while (static_cast<int64_t>(lanes) > parts * matrices.rows) lanes /= 2;
  return lanes;
}

/// Work-groups of `local` columns each (COLUMN_OF_GROUP of kernels/linalg/matrix.clh).
inline NDRange columns_range(const MatrixBatch& matrices, size_t local) {
  return NDRange::linear(matrices.batch * round_up(matrices.columns, local), local);
}

}  // namespace ocl::linalg
