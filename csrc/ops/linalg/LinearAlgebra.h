// Tensors as operands of the matrix product engine.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/gemm/gemm.h"

namespace ocl::native {

/// A tensor of 2 or 3 dimensions ([batch,] rows, columns).
gemm::Operand gemm_operand(const at::Tensor& matrix);

/// out = activation(alpha * a @ b + beta * c) for tensors of 2 or 3 dimensions whose shapes fit; c
/// is expanded to out's shape and may be undefined where beta is 0. Settles what the engine leaves
/// to its caller: lazy negation, operands that overlap out, dtypes without a product. `name` is the
/// function a NotImplementedError names.
void run_gemm(const char* name, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
              const at::Tensor& out, const c10::Scalar& alpha, const c10::Scalar& beta,
              gemm::Activation activation = gemm::Activation::none);

}  // namespace ocl::native
