// Tensors as operands of matrix products with an epilogue.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/epilogue.h"
#include "engine/gemm/gemm.h"

namespace ocl::native {

/// alpha * a @ b + beta * c of tensors of 2 or 3 dimensions, whose elements the epilogue takes. a
/// or b may have a dtype that the other's, a floating-point one, holds; c has the wider one. c is
/// expanded to the result's shape, and may be undefined. The last of the epilogue's operands is one
/// that it writes; none that it writes is memory of a, b or c.
void run_gemm_with_epilogue(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                            const c10::Scalar& alpha, const c10::Scalar& beta,
                            const Epilogue& epilogue);

}  // namespace ocl::native
