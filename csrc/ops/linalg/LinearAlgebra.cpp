// Products of matrices and of batches of matrices.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/linalg/LinearAlgebra.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>

#include "ops/DtypeChecks.h"
#include "ops/_addmm_activation.h"
#include "ops/_int_mm.h"
#include "ops/addmm.h"
#include "ops/baddbmm.h"
#include "ops/bmm.h"
#include "ops/linalg/Float32Precision.h"
#include "ops/linalg/GemmEpilogue.h"
#include "ops/mm.h"

namespace ocl::native {

using at::Tensor;
using c10::Scalar;

namespace {

/// The bytes between a tensor's first and last element.
struct Extent {
  uintptr_t begin, end;
};

Extent extent_of(const Tensor& tensor) {
  int64_t elements = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) elements += (tensor.size(d) - 1) * tensor.stride(d);
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + elements * tensor.element_size()};
}

bool overlap(const Tensor& x, const Tensor& y) {
  if (x.numel() == 0 || y.numel() == 0 || !x.is_alias_of(y)) return false;
  const Extent a = extent_of(x), b = extent_of(y);
  return a.begin < b.end && b.begin < a.end;
}

bool same_elements(const Tensor& x, const Tensor& y) {
  return x.const_data_ptr() == y.const_data_ptr() && x.sizes() == y.sizes() &&
         x.strides() == y.strides();
}

/// A tensor that a kernel may read while it writes out.
Tensor readable(const Tensor& tensor, const Tensor& out) {
  const Tensor resolved = tensor.is_neg() ? tensor.resolve_neg() : tensor;
  return overlap(resolved, out) ? resolved.clone() : resolved;
}

void check_dtype(const char* name, const Tensor& out) {
  TORCH_CHECK_NOT_IMPLEMENTED(gemm::takes(out.scalar_type()), '"', name, "\" not implemented for '",
                              c10::toString(out.scalar_type()), "'");
}

/// Upstream's meta functions leave this to the CPU's and CUDA's kernels.
void check_factors(const Tensor& mat1, const Tensor& mat2) {
  TORCH_CHECK(mat1.dtype() == mat2.dtype(),
              "expected m1 and m2 to have the same dtype, but got: ", mat1.dtype(),
              " != ", mat2.dtype());
}

void check_batches(const Tensor& batch1, const Tensor& batch2) {
  TORCH_CHECK(batch1.scalar_type() == batch2.scalar_type(), "expected scalar type ",
              batch1.scalar_type(), " but found ", batch2.scalar_type());
}

void check_addend(const Tensor& self, const Tensor& mat2) {
  TORCH_CHECK(self.dtype() == mat2.dtype(), "self and mat2 must have the same dtype, but got ",
              self.dtype(), " and ", mat2.dtype());
}

void check_int_mm(const Tensor& self, const Tensor& mat2, const Tensor& out) {
  constexpr const char* kName = "int_mm_out_ocl";
  TORCH_CHECK(self.dim() == 2, kName, ": Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, kName, ": Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.size(1) == mat2.size(0), kName,
              ": self.size(1) needs to match mat2.size(0) but got ", self.size(1), " and ",
              mat2.size(0));
  TORCH_CHECK(self.scalar_type() == at::kChar || self.scalar_type() == at::kByte, kName,
              ": Expected self dtype to be int8 or uint8 but got ", self.dtype());
  TORCH_CHECK(mat2.scalar_type() == at::kChar, kName,
              ": Expected mat2 dtype to be of type int8 but got ", mat2.dtype());
  TORCH_CHECK(out.scalar_type() == at::kInt, kName,
              ": Expected result dtype to be of type kInt but got ", out.dtype());
  TORCH_CHECK(out.dim() == 2 && out.size(0) == self.size(0) && out.size(1) == mat2.size(1), kName,
              ": Expected result to be of size ", self.size(0), " x ", mat2.size(1), " but got ",
              out.sizes());
}

}  // namespace

gemm::Operand gemm_operand(const Tensor& matrix) {
  const int64_t dims = matrix.dim();
  gemm::Operand operand;
  operand.data = matrix.const_data_ptr();
  operand.dtype = matrix.scalar_type();
  operand.row_stride = matrix.stride(dims - 2);
  operand.column_stride = matrix.stride(dims - 1);
  operand.batch_stride = dims == 3 ? matrix.stride(0) : 0;
  operand.conjugate = matrix.is_conj();
  return operand;
}

namespace {

/// The matrices, copied unless their rows are contiguous; an expanded one once.
Tensor with_contiguous_rows(const Tensor& matrices) {
  if (matrices.size(-1) <= 1 || matrices.stride(-1) == 1) return matrices;
  const bool expanded = matrices.dim() == 3 && matrices.stride(0) == 0;
  return expanded ? matrices[0].contiguous().expand(matrices.sizes()) : matrices.contiguous();
}

/// A description of a @ b, and the tensors that it points to.
struct Factors {
  Tensor a, b;
  gemm::Description description;
};

Factors factors_of(const Tensor& a, const Tensor& b, at::IntArrayRef sizes,
                   c10::ScalarType out_dtype) {
  Factors factors{a, b, {}};
  gemm::Description& description = factors.description;
  const size_t dims = sizes.size();
  description.m = sizes[dims - 2];
  description.n = sizes[dims - 1];
  description.k = a.size(a.dim() - 1);
  description.batch = dims == 3 ? sizes[0] : 1;
  description.a = gemm_operand(a);
  description.b = gemm_operand(b);
  description.out.dtype = out_dtype;
  // Both: the kernels of fewer bits read operands as they lie, and integers of 8 bits are none.
  if (out_dtype == at::kFloat && a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat) {
    const Float32Precision precision = allowed_precision(Float32Use::matmul);
    description.tf32 = precision == Float32Precision::tf32;
    description.rounded_terms = rounded_terms(precision);
  }
  if (gemm::wants_contiguous_k(description)) {
    factors.a = with_contiguous_rows(a);
    factors.b = with_contiguous_rows(b.mT()).mT();
    description.a = gemm_operand(factors.a);
    description.b = gemm_operand(factors.b);
  }
  return factors;
}

}  // namespace

void run_gemm(const char* name, const Tensor& a, const Tensor& b, const Tensor& c,
              const Tensor& out, const Scalar& alpha, const Scalar& beta,
              gemm::Activation activation) {
  if (out.numel() == 0) return;
  at::assert_no_internal_overlap(out);
  const bool addend = c.defined() && !beta.equal(0);
  if (a.numel() == 0 && !addend) {
    // Also for dtypes without a product, as on the CPU.
    const_cast<Tensor&>(out).zero_();
    return;
  }
  Tensor expanded = addend ? c.expand(out.sizes()) : Tensor();
  if (a.numel() == 0 && !gemm::takes(out.scalar_type()) && out.scalar_type() != at::kBool) {
    at::mul_out(const_cast<Tensor&>(out), expanded, at::scalar_tensor(beta, out.scalar_type()));
    return;
  }
  check_dtype(name, out);
  Factors factors = factors_of(readable(a, out), readable(b, out), out.sizes(), out.scalar_type());
  gemm::Description& description = factors.description;
  description.out = gemm_operand(out);
  description.out.data = out.mutable_data_ptr();
  description.alpha = alpha;
  description.activation = activation;
  if (addend) {
    if (!same_elements(expanded, out)) expanded = readable(expanded, out);
    description.beta = beta;
    description.c = gemm_operand(expanded);
  }
  gemm::run(description);
}

void run_gemm_with_epilogue(const Tensor& a, const Tensor& b, const Tensor& c, const Scalar& alpha,
                            const Scalar& beta, const Epilogue& epilogue) {
  const auto resolved = [](const Tensor& t) { return t.is_neg() ? t.resolve_neg() : t; };
  c10::DimVector sizes(a.sizes().begin(), a.sizes().end());
  sizes.back() = b.size(b.dim() - 1);
  if (c10::multiply_integers(sizes) == 0) return;
  Factors factors = factors_of(resolved(a), resolved(b), sizes,
                               c10::promoteTypes(a.scalar_type(), b.scalar_type()));
  gemm::Description& description = factors.description;
  description.out.data = epilogue.operands.back();
  description.out.row_stride = description.n;
  description.out.column_stride = 1;
  description.out.batch_stride = description.m * description.n;
  description.alpha = alpha;
  Tensor expanded;
  if (c.defined() && !beta.equal(0)) {
    expanded = resolved(c).expand(sizes);
    description.beta = beta;
    description.c = gemm_operand(expanded);
  }
  gemm::run(description, &epilogue);
}

namespace {

/// run_gemm() for two matrices, also of the float8 types: their products are summed in float and
/// rounded once, as on the CPU.
void multiply(const char* name, const Tensor& a, const Tensor& b, const Tensor& c,
              const Tensor& out, const Scalar& alpha, const Scalar& beta) {
  const c10::ScalarType dtype = out.scalar_type();
  const bool addend = c.defined() && !beta.equal(0);
  if (!c10::isFloat8Type(dtype) || (a.numel() == 0 && !addend)) {
    return run_gemm(name, a, b, c, out, alpha, beta);
  }
  at::assert_no_internal_overlap(out);
  check_supported(name, dtype, a.numel() == 0 || dtype != at::kFloat8_e8m0fnu);
  const Tensor wide = at::empty(out.sizes(), out.options().dtype(at::kFloat));
  // Without products the CPU scales the addend in its own dtype.
  const Scalar factor = a.numel() == 0 ? at::scalar_tensor(beta, dtype).item() : beta;
  run_gemm(name, a.to(at::kFloat), b.to(at::kFloat), addend ? c.to(at::kFloat) : Tensor(), wide,
           alpha, factor);
  out.copy_(wide);
}

}  // namespace

TORCH_IMPL_FUNC(mm_out)(const Tensor& self, const Tensor& mat2, const Tensor& out) {
  check_factors(self, mat2);
  multiply("mm", self, mat2, Tensor(), out, 1, 0);
}

TORCH_IMPL_FUNC(addmm_out)(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                           const Scalar& beta, const Scalar& alpha, const Tensor& out) {
  if (out.numel() == 0) (void)self.expand(out.sizes());  // throws where that can't be
  check_factors(mat1, mat2);
  check_addend(self, mat2);
  multiply("addmm", mat1, mat2, self, out, alpha, beta);
}

TORCH_IMPL_FUNC(_addmm_activation_out)(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                                       const Scalar& beta, const Scalar& alpha, bool use_gelu,
                                       const Tensor& out) {
  check_factors(mat1, mat2);
  check_addend(self, mat2);
  if (at::isFloatingType(out.scalar_type())) {
    run_gemm("addmm", mat1, mat2, self, out, alpha, beta,
             use_gelu ? gemm::Activation::gelu : gemm::Activation::relu);
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!use_gelu, "\"gelu\" not implemented for '",
                              c10::toString(out.scalar_type()), "'");
  TORCH_CHECK_NOT_IMPLEMENTED(!out.is_complex(), "relu is not supported for complex types");
  run_gemm("addmm", mat1, mat2, self, out, alpha, beta);
  out.relu_();
}

TORCH_IMPL_FUNC(bmm_out)(const Tensor& self, const Tensor& mat2, const Tensor& out) {
  check_batches(self, mat2);
  run_gemm("bmm", self, mat2, Tensor(), out, 1, 0);
}

TORCH_IMPL_FUNC(baddbmm_out)(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                             const Scalar& beta, const Scalar& alpha, const Tensor& out) {
  run_gemm("baddbmm", batch1, batch2, self, out, alpha, beta);
}

Tensor& _int_mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  check_int_mm(self, mat2, out);
  run_gemm("_int_mm", self, mat2, Tensor(), out, 1, 0);
  return out;
}

Tensor _int_mm(const Tensor& self, const Tensor& mat2) {
  TORCH_CHECK(self.dim() == 2 && mat2.dim() == 2, "int_mm_out_ocl: Expected two matrices but got ",
              self.dim(), " and ", mat2.dim(), " dimensions");
  Tensor out = at::empty({self.size(0), mat2.size(1)}, self.options().dtype(at::kInt));
  return _int_mm_out(self, mat2, out);
}

}  // namespace ocl::native
