// Products of a sparse COO matrix and a dense one.
//
// The rows of the dense matrix that entries meet are gathered, scaled and added up by row: memory
// for them is as many elements as the entries have times the columns.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_native.h>
#include <ATen/ops/mv_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace ocl::native {

using at::Tensor;
using c10::Scalar;

namespace {

void check_matrices(const Tensor& sparse, const Tensor& dense) {
  TORCH_CHECK(sparse.is_sparse() && !dense.is_sparse(),
              "addmm: expected a sparse first and a dense second matrix");
  TORCH_CHECK(sparse.sparse_dim() == 2, "addmm: matrices expected, got ", sparse.sparse_dim(),
              "D tensor");
  TORCH_CHECK(sparse.dense_dim() == 0, "addmm: scalar values expected, got ", sparse.dense_dim(),
              "D values");
  TORCH_CHECK(dense.dim() == 2, "addmm: matrices expected, got ", dense.dim(), "D tensor");
  TORCH_CHECK(dense.size(0) == sparse.size(1), "addmm: Argument #3 (dense): Expected dim 0 size ",
              sparse.size(1), ", got ", dense.size(0));
  TORCH_CHECK(sparse.scalar_type() == dense.scalar_type(), "expected scalar type ",
              sparse.scalar_type(), " but found ", dense.scalar_type());
}

/// beta * self + alpha * sparse @ dense; what `self` holds doesn't count where beta is 0.
Tensor sum_of_products(const Tensor& self, const Tensor& sparse, const Tensor& dense,
                       const Scalar& beta, const Scalar& alpha) {
  check_matrices(sparse, dense);
  const c10::MaybeOwned<Tensor> start =
      at::expand_size(self, {sparse.size(0), dense.size(1)}, "addmm_out");
  TORCH_CHECK(start->scalar_type() == dense.scalar_type(), "expected scalar type ",
              dense.scalar_type(), " but found ", start->scalar_type());
  Tensor sum =
      beta.equal(0) ? at::zeros(start->sizes(), dense.options()) : start->mul(beta).contiguous();
  if (sparse._nnz() == 0) return sum;
  const Tensor indices = sparse._indices();
  const Tensor rows = dense.index_select(0, indices.select(0, 1));
  return sum.index_add_(0, indices.select(0, 0), rows.mul_(sparse._values().unsqueeze(1)), alpha);
}

Tensor& addmm_out(const Tensor& self, const Tensor& sparse, const Tensor& dense, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  const Tensor sum = sum_of_products(self, sparse, dense, beta, alpha);
  out.resize_(sum.sizes());
  return out.copy_(sum);
}

Tensor& addmm_(Tensor& self, const Tensor& sparse, const Tensor& dense, const Scalar& beta,
               const Scalar& alpha) {
  const Tensor sum = sum_of_products(self, sparse, dense, beta, alpha);
  TORCH_CHECK(self.sizes() == sum.sizes(), "addmm_: Expected a tensor of size ", sum.sizes(),
              ", got ", self.sizes());
  return self.copy_(sum);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("addmm", TORCH_FN(sum_of_products));
  m.impl("addmm.out", TORCH_FN(addmm_out));
  m.impl("addmm_", TORCH_FN(addmm_));
  m.impl("mm", [](const Tensor& a, const Tensor& b) { return at::native::_sparse_mm(a, b); });
  m.impl("mm.out", TORCH_FN(at::native::_sparse_mm_out));
  m.impl("mv", TORCH_FN(at::native::mv_sparse));
}

}  // namespace

}  // namespace ocl::native
