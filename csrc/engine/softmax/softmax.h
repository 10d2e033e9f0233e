// Softmax and log_softmax of contiguous tensors, forward and backward.
//
// Offers: softmax(), softmax_backward().
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl {

/// out = softmax (or its logarithm) of `input` along `dim` (not negative). Both contiguous, of the
/// same shape and of a floating dtype each; computed in float for half and bfloat16.
void softmax(const at::Tensor& input, int64_t dim, bool log, const at::Tensor& out);

/// grad_input from the gradient of the result and the result. All contiguous, of the same shape.
void softmax_backward(const at::Tensor& grad, const at::Tensor& result, int64_t dim, bool log,
                      const at::Tensor& grad_input);

}  // namespace ocl
