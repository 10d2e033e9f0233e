// Logarithms of sums of exponentials along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/dispatch.h"

namespace ocl::softmax {

extern Engine engine;  // softmax.cpp

/// out[o][i] = log(sum over l of exp(input[o][l][i])), both contiguous and of one floating dtype,
/// with elements. False, and nothing is done, where few long rows would keep few cores busy.
bool logsumexp(const at::Tensor& input, int64_t outer, int64_t length, int64_t inner,
               const at::Tensor& out);

}  // namespace ocl::softmax
