// Products with vectors.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/empty.h>

#include "ops/addmv.h"
#include "ops/dot.h"
#include "ops/linalg/LinearAlgebra.h"
#include "ops/vdot.h"

namespace ocl::native {

using at::Tensor;
using c10::Scalar;

namespace {

void check_dot(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(),
              "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", self.scalar_type(),
              " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [",
              self.numel(), "] and src [", other.numel(),
              "] to have the same number of elements, but got ", self.numel(), " and ",
              other.numel(), " elements respectively");
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device. Found: ", self.device(), ", ",
              other.device());
  TORCH_CHECK_NOT_IMPLEMENTED(gemm::takes(self.scalar_type()), "\"dot\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
}

/// A row times a column.
Tensor inner_product(const Tensor& self, const Tensor& other) {
  check_dot(self, other);
  if (self._is_zerotensor() || other._is_zerotensor()) {
    return at::_efficientzerotensor({}, self.options());
  }
  Tensor out = at::empty(c10::IntArrayRef{}, self.options());
  run_gemm("dot", self.unsqueeze(0), other.unsqueeze(1), Tensor(), out.view({1, 1}), 1, 0);
  return out;
}

}  // namespace

Tensor dot(const Tensor& self, const Tensor& tensor) { return inner_product(self, tensor); }

// An unresolved `other` gives an unresolved result, as on the CPU.
Tensor vdot(const Tensor& self, const Tensor& other) {
  if (other.is_conj()) {
    return self.is_conj() ? vdot(other.conj(), self.conj())
                          : inner_product(self, other.conj()).conj();
  }
  return inner_product(self.conj(), other);
}

TORCH_IMPL_FUNC(addmv_out)(const Tensor& self, const Tensor& mat, const Tensor& vec,
                           const Scalar& beta, const Scalar& alpha, const Tensor& out) {
  const Tensor addend = beta.equal(0) ? Tensor() : self.expand(out.sizes()).unsqueeze(1);
  run_gemm("addmv", mat, vec.unsqueeze(1), addend, out.unsqueeze(1), alpha, beta);
}

}  // namespace ocl::native
