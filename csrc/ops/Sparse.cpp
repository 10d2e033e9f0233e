// Sparse COO tensors as far as sparse gradients need them: making, coalescing, copies; their sums
// and products are in SparseBinaryOps.cpp.
//
// They have a dispatch key of their own, so the op table, which is for dense tensors, lacks them.
// What only moves indices and values about is upstream's function for the CPU, which serves every
// device.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/Sparse.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_dense_native.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/_values_native.h>
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

Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.is_sparse() && self.sizes() == mask.sizes(),
              "sparse_mask(): expected a sparse mask of the size of self, ", self.sizes());
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_sparse() && mask.sparse_dim() > 0,
                              "ocl: sparse_mask of a sparse tensor");
  const Tensor values = by_places(self.contiguous(), mask).index_select(0, places(mask));
  return with_entries(mask, mask._indices().clone(), values, mask.is_coalesced());
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
  m.impl("clone", TORCH_FN(at::native::clone_sparse));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse_symint));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_coo));
  m.impl("indices", TORCH_FN(at::native::indices_sparse));
  m.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
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
