// Convolutions in half types by matrix instructions: operands in the layout that those want.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/conv/conv.h"

namespace ocl::native {

/// Each as its namesake in Convolution.cpp. False, having done nothing, where there are no matrix
/// instructions for the convolution.
bool output_by_matrix(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
                      const at::Tensor& bias, const conv::Window& window);
bool input_by_matrix(const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
                     const at::Tensor& bias, const conv::Window& window);
bool weight_by_matrix(const at::Tensor& weight, const at::Tensor& in, const at::Tensor& out,
                      const conv::Window& window);

}  // namespace ocl::native
