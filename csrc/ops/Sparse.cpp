// Sparse COO tensors as far as sparse gradients need them: making, coalescing, adding to dense
// tensors, scaling, copies.
//
// They have a dispatch key of their own, so the op table, which is for dense tensors, lacks them.
// What only moves indices and values about is upstream's function for the CPU, which serves every
// device.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_dense_native.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zero_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace ocl::native {

using at::Tensor;
using c10::Scalar;

namespace {

/// `like` with other entries.
Tensor with_entries(const Tensor& like, const Tensor& indices, const Tensor& values,
                    bool coalesced) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      like.sparse_dim(), like.dense_dim(), like.sizes(), indices, values,
      like.options().dtype(values.scalar_type()), coalesced);
}

/// The number of each entry's place among those of the sparse dimensions, in row-major order.
Tensor places(const Tensor& sparse) {
  const Tensor indices = sparse._indices();
  Tensor place = indices.select(0, 0);
  for (int64_t d = 1; d < sparse.sparse_dim(); ++d) {
    place = place.mul(sparse.size(d)).add_(indices.select(0, d));
  }
  return place;
}

/// A dense tensor with the sparse dimensions of `sparse` made one.
Tensor by_places(const Tensor& dense, const Tensor& sparse) {
  c10::DimVector sizes{-1};
  int64_t elements = 1;
  for (int64_t d = 0; d < sparse.dim(); ++d) {
    if (d >= sparse.sparse_dim()) sizes.push_back(sparse.size(d));
    if (d < sparse.sparse_dim()) elements *= sparse.size(d);
  }
  sizes[0] = elements;
  return dense.view(sizes);
}

Tensor coalesce(const Tensor& self) {
  TORCH_INTERNAL_ASSERT(self.is_sparse() && !self.is_coalesced());
  const int64_t dims = self.sparse_dim();
  if (self._nnz() < 2) return with_entries(self, self._indices(), self._values(), true);
  const Tensor values = self._values();
  if (dims == 0) {
    return with_entries(self, self._indices().narrow(1, 0, 1), values.sum(0, true), true);
  }
  const auto [kept, entry_of, counts] = at::_unique2(places(self), true, true);
  c10::DimVector sizes(values.sizes());
  sizes[0] = kept.size(0);
  const Tensor sums = at::zeros(sizes, values.options()).index_add_(0, entry_of, values);
  std::vector<Tensor> indices(dims);
  Tensor rest = kept;
  for (int64_t d = dims - 1; d >= 0; --d) {
    indices[d] = rest.remainder(self.size(d));
    rest = rest.floor_divide(self.size(d));
  }
  return with_entries(self, at::stack(indices), sums, true);
}

Tensor& add_to_dense(Tensor& self, const Tensor& other, const Scalar& alpha) {
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected 'self' and 'other' to have same sizes, ", self.sizes(), " and ",
              other.sizes());
  TORCH_CHECK(other.sparse_dim() > 0, "ocl: a sparse tensor without sparse dimensions");
  TORCH_CHECK(c10::canCast(other.scalar_type(), self.scalar_type()), "Can't convert result type ",
              other.scalar_type(), " to output ", self.scalar_type());
  if (other._nnz() == 0) return self;
  const Tensor place = places(other), values = other._values().to(self.scalar_type());
  if (self.is_contiguous()) {
    by_places(self, other).index_add_(0, place, values, alpha);
    return self;
  }
  Tensor sum = self.contiguous();
  by_places(sum, other).index_add_(0, place, values, alpha);
  return self.copy_(sum);
}

/// The entries of both; those at one place are left for coalescing.
std::pair<Tensor, Tensor> joined(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  TORCH_CHECK(self.sizes() == other.sizes() && self.sparse_dim() == other.sparse_dim(),
              "add: expected sparse tensors of the same sizes and sparse dimensions");
  const Tensor more = other._values();
  return {at::cat({self._indices(), other._indices()}, 1),
          at::cat({self._values(), alpha.equal(1) ? more : more.mul(alpha)}, 0)};
}

void check_summands(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(other.is_sparse() || !self.is_sparse(),
              "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
}

Tensor& add_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  check_summands(self, other);
  if (!self.is_sparse()) return add_to_dense(self, other, alpha);
  const auto [indices, values] = joined(self, other, alpha);
  at::sparse::get_sparse_impl(self)->set_indices_and_values_unsafe(indices,
                                                                   values.to(self.scalar_type()));
  return self._coalesced_(false);
}

Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  check_summands(self, other);
  if (!self.is_sparse()) {
    Tensor sum = self.clone();
    return add_to_dense(sum, other, alpha);
  }
  const auto [indices, values] = joined(self, other, alpha);
  return with_entries(self, indices, values, false);
}

Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.is_sparse() && self.sizes() == mask.sizes(),
              "sparse_mask(): expected a sparse mask of the size of self, ", self.sizes());
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_sparse() && mask.sparse_dim() > 0,
                              "ocl: sparse_mask of a sparse tensor");
  const Tensor values = by_places(self.contiguous(), mask).index_select(0, places(mask));
  return with_entries(mask, mask._indices().clone(), values, mask.is_coalesced());
}

void check_factor(const Tensor& self, const Tensor& other) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_sparse() && !other.is_sparse() && other.dim() == 0,
                              "ocl: sparse tensors are multiplied and divided by numbers only");
}

Tensor mul(const Tensor& self, const Tensor& other) {
  check_factor(self, other);
  return with_entries(self, self._indices(), self._values().mul(other), self.is_coalesced());
}

Tensor& mul_(Tensor& self, const Tensor& other) {
  check_factor(self, other);
  self._values().mul_(other);
  return self;
}

/// What mul_ with a number calls, the number first.
Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  const bool turned = out.is_same(other);
  TORCH_CHECK_NOT_IMPLEMENTED(turned || out.is_same(self),
                              "ocl: mul of sparse tensors into another one");
  return mul_(out, turned ? self : other);
}

Tensor div(const Tensor& self, const Tensor& other) {
  check_factor(self, other);
  // Quotients of sums differ from sums of quotients only by rounding.
  return with_entries(self, self._indices(), self._values().div(other), self.is_coalesced());
}

Tensor& div_(Tensor& self, const Tensor& other) {
  check_factor(self, other);
  self._values().div_(other);
  return self;
}

Tensor neg(const Tensor& self) {
  return with_entries(self, self._indices(), self._values().neg(), self.is_coalesced());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_coalesce", TORCH_FN(coalesce));
  m.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  m.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(at::native::new_with_dims_sparse));
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
  m.impl("_to_dense", TORCH_FN(at::native::sparse_to_dense));
  m.impl("_values", TORCH_FN(at::native::_values_sparse));
  m.impl("add.Tensor", TORCH_FN(add));
  m.impl("add_.Tensor", TORCH_FN(add_));
  m.impl("clone", TORCH_FN(at::native::clone_sparse));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("div.Tensor", TORCH_FN(div));
  m.impl("div_.Tensor", TORCH_FN(div_));
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse_symint));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_coo));
  m.impl("indices", TORCH_FN(at::native::indices_sparse));
  m.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  m.impl("mul.Tensor", TORCH_FN(mul));
  m.impl("mul.out", TORCH_FN(mul_out));
  m.impl("mul_.Tensor", TORCH_FN(mul_));
  m.impl("neg", TORCH_FN(neg));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("sparse_mask", TORCH_FN(sparse_mask));
  m.impl("sparse_resize_", TORCH_FN(at::native::sparse_resize_));
  m.impl("sparse_resize_and_clear_", TORCH_FN(at::native::sparse_resize_and_clear_));
  m.impl("values", TORCH_FN(at::native::values_sparse));
  m.impl("zero_", TORCH_FN(at::native::zero_sparse_));
}

}  // namespace

}  // namespace ocl::native
