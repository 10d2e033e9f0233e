// Convolutions of tensors with an epilogue.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/conv/conv.h"

namespace ocl::native {

/// The convolution of tensors of one floating-point dtype with a batch and up to three spatial
/// dimensions, whose elements the epilogue takes. bias may be undefined. Nothing that the epilogue
/// writes is memory of the operands.
void run_convolution_with_epilogue(const at::Tensor& input, const at::Tensor& weight,
                                   const at::Tensor& bias, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation,
                                   int64_t groups, const conv::MatrixEpilogue& epilogue);

}  // namespace ocl::native
