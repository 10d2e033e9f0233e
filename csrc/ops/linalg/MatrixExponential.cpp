// The exponential of a matrix by scaling and squaring. Upstream's function moves its coefficients
// to devices it knows only.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_matrix_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>

#include <array>

#include "ops/DtypeChecks.h"
#include "ops/linalg_matrix_exp.h"

namespace ocl::native {

using at::Tensor;

namespace {

constexpr int kDegree = 16, kPowers = 4;

/// The largest 1-norm at which the Taylor polynomial of degree 15 is exact to rounding: A. Al-Mohy,
/// N. Higham, "Computing the action of the matrix exponential", table 3.1.
double largest_norm(c10::ScalarType dtype) {
  return c10::toRealValueType(dtype) == at::kDouble ? 0.64 : 2.2;
}

/// The Taylor polynomial of degree 16 in six products (Paterson and Stockmeyer): a polynomial in
/// a^4 whose coefficients are polynomials of degree 3 in a.
Tensor taylor(const Tensor& a) {
  std::array<double, kDegree + 1> coefficient{1};
  for (int i = 1; i <= kDegree; ++i) coefficient[i] = coefficient[i - 1] / i;
  const Tensor a2 = at::matmul(a, a), a3 = at::matmul(a2, a), a4 = at::matmul(a2, a2);
  const auto part = [&](int j) {
    const double* c = &coefficient[j * kPowers];
    Tensor sum = a3.mul(c[3]).add_(a2, c[2]).add_(a, c[1]);
    sum.diagonal(0, -2, -1).add_(c[0]);
    return sum;
  };
  Tensor sum = part(kDegree / kPowers - 1).add_(a4, coefficient[kDegree]);
  for (int j = kDegree / kPowers - 2; j >= 0; --j) sum = at::matmul(sum, a4).add_(part(j));
  return sum;
}

}  // namespace

Tensor linalg_matrix_exp(const Tensor& self) {
  at::native::squareCheckInputs(self, "linalg.matrix_exp");
  at::native::checkFloatingOrComplex(self, "linalg.matrix_exp");
  check_supported("linalg.matrix_exp", self.scalar_type(),
                  self.numel() == 0 || !c10::isFloat8Type(self.scalar_type()));
  if (self.numel() == 0) return at::empty_like(self);
  if (self.size(-1) == 1) return self.exp();
  // The powers of a matrix leave the range of float16, and the digits of both half types, soon.
  if (c10::isReducedFloatingType(self.scalar_type())) {
    return linalg_matrix_exp(self.to(at::kFloat)).to(self.scalar_type());
  }
  // Halve each matrix until its norm is small, then square its exponential as often. What isn't
  // finite stays as it is.
  const Tensor norm = at::linalg_matrix_norm(self, 1, {-2, -1}, /*keepdim=*/true);
  const Tensor halvings =
      norm.div(largest_norm(self.scalar_type())).log2_().ceil_().nan_to_num_(0, 0, 0).clamp_min_(0);
  Tensor result = taylor(self.mul(halvings.neg().exp2_()));
  // One wait: the number of launches depends on it.
  const auto most = static_cast<int64_t>(halvings.max().item<double>());
  for (int64_t i = 0; i < most; ++i) {
    result = at::where(halvings.gt(i), at::matmul(result, result), result);
  }
  return result;
}

}  // namespace ocl::native
