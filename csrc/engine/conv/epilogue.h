// Epilogues of convolutions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "engine/epilogue.h"
#include "opencl/device.h"

namespace ocl::conv {

/// An epilogue that gets a convolution's elements as those of a matrix
/// (kernels/conv/epilogue.clh). Channels last or not, they are dense.
struct MatrixEpilogue {
  const Epilogue& epilogue;
  bool channels_last = false;
  bool images_as_z = false;  // a matrix per image will do, if there is one group
};

/// Whether an epilogue that reads or writes another tensor of the result's size is no slower within
/// the kernels than in a pass of its own, in place. CPUs' kernels store a few elements of each of
/// many planes at a time, but for those of a channel per group. An epilogue would go through
/// another tensor so, too.
bool takes_other_tensors(const Device& device, bool channels_last, bool depthwise);

/// Applies the epilogue to dense memory of that dtype, where a kernel has no place for it: `rows`
/// rows of `columns`, from row `first` on (kernels/conv/epilogue.cl).
void apply(const MatrixEpilogue& epilogue, const void* memory, c10::ScalarType dtype, int64_t first,
           int64_t rows, int64_t columns);
/// Applies it to a whole result.
void apply(const MatrixEpilogue& epilogue, const at::Tensor& out);

}  // namespace ocl::conv
