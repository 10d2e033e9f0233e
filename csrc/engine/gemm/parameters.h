// Implementations' kernels are compiled for these sizes of registers' tiles, which the tuner may
// vary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "opencl/device.h"

namespace ocl::gemm {

/// The packed kernel: rows x (vectors * width) sums in registers, added up every kc of k; a
/// work-item covers about block_bytes of row panels.
struct PackedParameters {
  int width, rows, vectors, kc;
  int64_t block_bytes;
};
/// The skinny kernels: rows per work-item (vectors of rows for the axpy one) of `width` elements;
/// `local` work-items per row where a work-group shares it.
struct SkinnyParameters {
  int width, rows, local;
};

/// The kernels with tiles in local memory: which of their shapes, and into how many parts k is
/// split. By default a cost model says.
struct TileParameters {
  int shape = -1;
  int splits = 0;
};

/// The tuner may vary these, for one device and one type computed with.
struct Parameters {
  PackedParameters packed;
  SkinnyParameters skinny;
  TileParameters tile;
  int64_t max_workspace;  // bytes; larger problems are packed in blocks
};

/// The defaults of the device's class (the table in parameters.cpp) for values of
/// `compute_size` bytes.
Parameters parameters_of(const Device& device, size_t compute_size, bool complex);

/// Rows of a panel for x86's AMX: two of its tiles. No other panel has as many.
constexpr int kAmxRows = 32;
/// The defaults for panels that AMX multiplies.
PackedParameters parameters_of_amx();

}  // namespace ocl::gemm
