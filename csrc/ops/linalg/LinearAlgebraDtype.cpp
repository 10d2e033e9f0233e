// Products of half types with a result of single precision (`out_dtype`), as CUDA has them.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "ops/addmm.h"
#include "ops/baddbmm.h"
#include "ops/bmm.h"
#include "ops/linalg/LinearAlgebra.h"
#include "ops/mm.h"

namespace ocl::native {

namespace {

using at::Tensor;
using c10::Scalar;
using c10::ScalarType;

void check(const Tensor& a, const Tensor& b, ScalarType dtype, int64_t dims) {
  TORCH_CHECK(a.dim() == dims && b.dim() == dims, "expected two tensors of ", dims,
              " dimensions, but got ", a.dim(), " and ", b.dim());
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected both factors to have the same dtype, ",
              "but got: ", a.dtype(), " != ", b.dtype());
  TORCH_CHECK(a.size(dims - 1) == b.size(dims - 2) && (dims == 2 || a.size(0) == b.size(0)),
              "shapes cannot be multiplied: ", a.sizes(), " and ", b.sizes());
  const ScalarType from = a.scalar_type();
  const bool half = from == ScalarType::Half || from == ScalarType::BFloat16;
  TORCH_CHECK(dtype == from || (half && dtype == ScalarType::Float),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

/// alpha * a @ b + beta * c into `out`, whose shape it gets; `c` may be undefined.
Tensor& multiply(const char* name, const Tensor& a, const Tensor& b, const Tensor& c,
                 const Scalar& beta, const Scalar& alpha, ScalarType dtype, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == dtype,
              "out_dtype must be the same as the dtype of the provided out tensor");
  at::DimVector sizes(a.sizes());
  sizes.back() = b.sizes().back();
  Tensor addend = c;
  if (c.defined()) {
    TORCH_CHECK(c.scalar_type() == dtype || c.scalar_type() == a.scalar_type(),
                "self dtype must match either out_dtype or the factors' dtype");
    addend = c.expand(sizes).to(dtype);
  }
  at::native::resize_output(out, sizes);
  run_gemm(name, a, b, addend, out, alpha, beta);
  return out;
}

Tensor result_of(const Tensor& a, ScalarType dtype) {
  return at::empty({0}, a.options().dtype(dtype));
}

}  // namespace

Tensor& mm_dtype_out(const Tensor& self, const Tensor& mat2, ScalarType out_dtype, Tensor& out) {
  check(self, mat2, out_dtype, 2);
  return multiply("mm", self, mat2, Tensor(), 0, 1, out_dtype, out);
}

Tensor mm_dtype(const Tensor& self, const Tensor& mat2, ScalarType out_dtype) {
  Tensor out = result_of(self, out_dtype);
  return mm_dtype_out(self, mat2, out_dtype, out);
}

Tensor& bmm_dtype_out(const Tensor& self, const Tensor& mat2, ScalarType out_dtype, Tensor& out) {
  check(self, mat2, out_dtype, 3);
  return multiply("bmm", self, mat2, Tensor(), 0, 1, out_dtype, out);
}

Tensor bmm_dtype(const Tensor& self, const Tensor& mat2, ScalarType out_dtype) {
  Tensor out = result_of(self, out_dtype);
  return bmm_dtype_out(self, mat2, out_dtype, out);
}

Tensor& addmm_dtype_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                        ScalarType out_dtype, const Scalar& beta, const Scalar& alpha,
                        Tensor& out) {
  check(mat1, mat2, out_dtype, 2);
  return multiply("addmm", mat1, mat2, self, beta, alpha, out_dtype, out);
}

Tensor addmm_dtype(const Tensor& self, const Tensor& mat1, const Tensor& mat2, ScalarType out_dtype,
                   const Scalar& beta, const Scalar& alpha) {
  Tensor out = result_of(mat1, out_dtype);
  return addmm_dtype_out(self, mat1, mat2, out_dtype, beta, alpha, out);
}

Tensor& baddbmm_dtype_out(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                          ScalarType out_dtype, const Scalar& beta, const Scalar& alpha,
                          Tensor& out) {
  check(batch1, batch2, out_dtype, 3);
  return multiply("baddbmm", batch1, batch2, self, beta, alpha, out_dtype, out);
}

Tensor baddbmm_dtype(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                     ScalarType out_dtype, const Scalar& beta, const Scalar& alpha) {
  Tensor out = result_of(batch1, out_dtype);
  return baddbmm_dtype_out(self, batch1, batch2, out_dtype, beta, alpha, out);
}

}  // namespace ocl::native
