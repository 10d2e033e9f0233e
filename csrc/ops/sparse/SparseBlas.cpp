// Products of sparse COO matrices: with dense ones, in batches, and with each other.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include "ops/sparse/Compressed.h"

namespace ocl::native {

using at::Tensor;
using c10::Scalar;

namespace {

Tensor coo(at::IntArrayRef sizes, const Tensor& indices, const Tensor& values, bool coalesced) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      indices.size(0), values.dim() - 1, sizes, indices, values,
      values.options().layout(at::kSparse), coalesced);
}

void check_matrices(const Tensor& sparse, const Tensor& dense) {
  if (!sparse.is_sparse() || dense.layout() != at::kStrided) {
    TORCH_CHECK(false, "addmm: computation on OCL is not implemented for ", sparse.layout(), " @ ",
                dense.layout());
  }
  TORCH_CHECK(sparse.sparse_dim() == 2, "addmm: matrices expected, got ", sparse.sparse_dim(),
              "D tensor");
  TORCH_CHECK(sparse.dense_dim() == 0, "addmm: scalar values expected, got ", sparse.dense_dim(),
              "D values");
  TORCH_CHECK(dense.dim() == 2, "addmm: matrices expected, got ", dense.dim(), "D tensor");
  TORCH_CHECK(dense.size(0) == sparse.size(1), "addmm: Argument #3 (dense): Expected dim 0 size ",
              sparse.size(1), ", got ", dense.size(0));
  TORCH_CHECK(sparse.scalar_type() == dense.scalar_type(), "expected scalar type ",
              sparse.scalar_type(), " but found ", dense.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(sparse.scalar_type() != at::kBool,
                              "\"addmm_sparse_dense\" not implemented for 'Bool'");
}

/// out = beta * self + alpha * sparse @ dense; what `self` holds doesn't count where beta is 0.
void add_product(const Tensor& self, const Tensor& sparse, const Tensor& dense, const Scalar& beta,
                 const Scalar& alpha, const Tensor& out) {
  if (!beta.equal(0) && !out.is_same(self)) out.copy_(self);
  sparse::product(sparse::rows_of_coo(sparse), dense, beta, alpha, out);
}

c10::MaybeOwned<Tensor> checked_start(const Tensor& self, const Tensor& sparse,
                                      const Tensor& dense) {
  check_matrices(sparse, dense);
  c10::MaybeOwned<Tensor> start =
      at::expand_size(self, {sparse.size(0), dense.size(1)}, "addmm_out");
  TORCH_CHECK(start->scalar_type() == dense.scalar_type(), "expected scalar type ",
              dense.scalar_type(), " but found ", start->scalar_type());
  return start;
}

Tensor addmm(const Tensor& self, const Tensor& sparse, const Tensor& dense, const Scalar& beta,
             const Scalar& alpha) {
  const auto start = checked_start(self, sparse, dense);
  const Tensor out = at::empty(start->sizes(), dense.options());
  add_product(*start, sparse, dense, beta, alpha, out);
  return out;
}

Tensor& addmm_out(const Tensor& self, const Tensor& sparse, const Tensor& dense, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  const auto start = checked_start(self, sparse, dense);
  at::native::resize_output(out, start->sizes());
  // A factor must not change while it is read.
  if (out.is_alias_of(dense) || (!out.is_same(self) && out.is_alias_of(self))) {
    return out.copy_(addmm(self, sparse, dense, beta, alpha));
  }
  add_product(*start, sparse, dense, beta, alpha, out);
  return out;
}

Tensor& addmm_(Tensor& self, const Tensor& sparse, const Tensor& dense, const Scalar& beta,
               const Scalar& alpha) {
  const auto start = checked_start(self, sparse, dense);
  TORCH_CHECK(self.sizes() == start->sizes(), "addmm_: Expected a tensor of size ", start->sizes(),
              ", got ", self.sizes());
  return addmm_out(self, sparse, dense, beta, alpha, self);
}

/// The matrices of a batch one below the other and one right of the other.
Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  TORCH_CHECK(mat2.layout() == at::kStrided,
              "bmm_sparse: Tensor 'mat2' must be dense, but has layout ", mat2.layout());
  TORCH_CHECK(self.dense_dim() == 0, "bmm_sparse: Tensor 'self' must have 0 dense dims, but has ",
              self.dense_dim());
  TORCH_CHECK(self.sparse_dim() == 3, "bmm_sparse: Tensor 'self' must have 3 sparse dims, but has ",
              self.sparse_dim());
  TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must have 3 dims, but has ", mat2.dim());
  TORCH_CHECK(self.size(0) == mat2.size(0),
              "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1),
              "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  TORCH_CHECK(self.scalar_type() == mat2.scalar_type(), "expected scalar type ", self.scalar_type(),
              " but found ", mat2.scalar_type());
  const int64_t batch = self.size(0), rows = self.size(1), inner = self.size(2);
  at::native::resize_output(out, {batch, rows, mat2.size(2)});
  if (out.numel() == 0) return out;
  const Tensor indices = self._indices();
  const Tensor down = indices.select(0, 0).mul(rows).add_(indices.select(0, 1));
  const Tensor across = indices.select(0, 0).mul(inner).add_(indices.select(0, 2));
  const Tensor matrix = coo({batch * rows, batch * inner}, at::stack({down, across}),
                            self._values(), self.is_coalesced());
  const Tensor results = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  sparse::product(sparse::rows_of_coo(matrix), mat2.reshape({batch * inner, mat2.size(2)}), 0, 1,
                  results.view({batch * rows, mat2.size(2)}));
  if (!out.is_contiguous()) out.copy_(results);
  return out;
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  Tensor out = at::empty({0}, mat2.options());
  return bmm_out(self, mat2, out);
}

/// Row by row, or: every entry of `a` meets the row of `b` that its column names, and the products
/// are coalesced.
Tensor sparse_sparse_matmul(const Tensor& a, const Tensor& b) {
  TORCH_INTERNAL_ASSERT(a.is_sparse() && b.is_sparse());
  TORCH_CHECK(a.dim() == 2 && a.dense_dim() == 0,
              "sparse_matmul: expected a 2-D sparse tensor without dense dimensions");
  TORCH_CHECK(b.dim() == 2 && b.dense_dim() == 0,
              "sparse_matmul: expected a 2-D sparse tensor without dense dimensions");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "mat1 dtype ", a.scalar_type(),
              " does not match mat2 dtype ", b.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isFloatingType(a.scalar_type()) || c10::isComplexType(a.scalar_type()),
      "\"sparse_matmul\" not implemented for '", a.scalar_type(), "'");
  const Tensor from = a.coalesce();
  const sparse::Rows with = sparse::rows_of_coo(b.coalesce());
  const sparse::Rows rows = sparse::rows_of_coo(from);
  if (sparse::takes_rows_by_rows(rows, with, b.size(1))) {
    const sparse::Entries made = sparse::rows_by_rows(rows, with, b.size(1));
    return coo({a.size(0), b.size(1)}, made.indices, made.values, true);
  }
  const Tensor inner = from._indices().select(0, 1).contiguous();
  const Tensor begin = with.offsets.index_select(0, inner);
  const Tensor count = with.offsets.diff().index_select(0, inner);
  const Tensor entry = at::arange(from._nnz(), inner.options()).repeat_interleave(count);
  const Tensor before = count.cumsum(0).sub_(count);
  const Tensor other = at::arange(entry.numel(), inner.options())
                           .sub_(before.index_select(0, entry))
                           .add_(begin.index_select(0, entry));
  const Tensor indices = at::stack(
      {from._indices().select(0, 0).index_select(0, entry), with.columns.index_select(0, other)});
  const Tensor products =
      from._values().index_select(0, entry).mul_(with.values.index_select(0, other));
  return coo({a.size(0), b.size(1)}, indices, products, false).coalesce();
}

/// sparse @ dense with the rows that have entries alone, as a tensor of one sparse dimension.
Tensor& hspmm_out(const Tensor& sparse, const Tensor& dense, Tensor& out) {
  TORCH_CHECK(sparse.sparse_dim() == 2, "hspmm: Argument #2: matrices expected, got ",
              sparse.sparse_dim(), "D tensor");
  TORCH_CHECK(sparse.dense_dim() == 0, "hspmm: Argument #2: scalar values expected, got ",
              sparse.dense_dim(), "D values");
  TORCH_CHECK(dense.dim() == 2, "hspmm: Argument #3: matrices expected, got ", dense.dim(),
              "D tensor");
  TORCH_CHECK(dense.size(0) == sparse.size(1), "hspmm: Argument #3: Expected dim 0 size ",
              sparse.size(1), ", got ", dense.size(0));
  const Tensor entries = sparse.coalesce();
  const auto [rows, row_of, counts] =
      at::_unique2(entries._indices().select(0, 0).contiguous(), true, true);
  const Tensor indices = at::stack({row_of, entries._indices().select(0, 1)});
  const Tensor values = at::empty({rows.size(0), dense.size(1)}, dense.options());
  sparse::product(
      sparse::rows_of_coo(coo({rows.size(0), sparse.size(1)}, indices, entries._values(), true)),
      dense, 0, 1, values);
  out.sparse_resize_and_clear_({sparse.size(0), dense.size(1)}, 1, 1);
  return out.copy_(coo({sparse.size(0), dense.size(1)}, rows.unsqueeze(0), values, false));
}

Tensor hspmm(const Tensor& sparse, const Tensor& dense) {
  Tensor out = at::empty({0}, sparse.options());
  return hspmm_out(sparse, dense, out);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_sparse_matmul", TORCH_FN(sparse_sparse_matmul));
  m.impl("addmm", TORCH_FN(addmm));
  m.impl("addmm.out", TORCH_FN(addmm_out));
  m.impl("addmm_", TORCH_FN(addmm_));
  m.impl("bmm", TORCH_FN(bmm));
  m.impl("bmm.out", TORCH_FN(bmm_out));
  m.impl("hspmm", TORCH_FN(hspmm));
  m.impl("hspmm.out", TORCH_FN(hspmm_out));
}

}  // namespace

}  // namespace ocl::native
