// Softmax and log_softmax of contiguous tensors, forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::softmax {

/// out = softmax (or its logarithm) of `input` along `dim` (not negative). Both contiguous, of the
/// same shape and of a floating dtype each; computed in float for half and bfloat16.
void forward(const at::Tensor& input, int64_t dim, bool log, const at::Tensor& out);

/// grad_input from the gradient of the result and the result. All contiguous, of the same shape.
void backward(const at::Tensor& grad, const at::Tensor& result, int64_t dim, bool log,
              const at::Tensor& grad_input);

}  // namespace ocl::softmax
