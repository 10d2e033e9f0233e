// Sparse COO tensors: coalescing, masks, selection and the gradient of sums. Their sums and
// products with other tensors are in SparseBinaryOps.cpp and SparseBlas.cpp.
//
// They have a dispatch key of their own, so the op table, which is for dense tensors, lacks them.
// Ops that only move indices and values about are upstream's functions for every device, which
// codegen/sparse.py registers.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/sparse/Sparse.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace ocl::native {

using at::Tensor;
using c10::Scalar;

Found find_places(const Tensor& ascending, const Tensor& wanted) {
  if (ascending.numel() == 0) {
    return {at::zeros(wanted.sizes(), wanted.options()),
            at::zeros(wanted.sizes(), wanted.options().dtype(at::kBool))};
  }
  const Tensor position =
      at::searchsorted(ascending, wanted.contiguous()).clamp_max_(ascending.numel() - 1);
  return {position, ascending.index_select(0, position).eq(wanted)};
}

Tensor values_at(const Tensor& ascending, const Tensor& values, const Tensor& wanted) {
  c10::DimVector sizes(values.sizes());
  sizes[0] = wanted.numel();
  if (values.size(0) == 0) return at::zeros(sizes, values.options());
  const auto [position, there] = find_places(ascending, wanted);
  c10::DimVector mask_sizes(values.dim(), 1);
  mask_sizes[0] = wanted.numel();
  return values.index_select(0, position).masked_fill_(there.view(mask_sizes).logical_not(), 0);
}

namespace {

Tensor coalesce(const Tensor& self) {
  TORCH_INTERNAL_ASSERT(self.is_sparse() && !self.is_coalesced());
  const int64_t dims = self.sparse_dim();
  if (self._nnz() < 2) return with_entries(self, self._indices(), self._values(), true);
  const Tensor values = self._values();
  if (dims == 0) {
    return with_entries(self, self._indices().narrow(1, 0, 1), values.sum(0, true), true);
  }
  const auto [kept, entry_of, counts] = at::_unique2(short_places(self), true, true);
  c10::DimVector sizes(values.sizes());
  sizes[0] = kept.size(0);
  const Tensor sums = at::zeros(sizes, values.options()).index_add_(0, entry_of, values);
  std::vector<Tensor> indices(dims);
  Tensor rest = kept;
  for (int64_t d = dims - 1; d > 0; --d) {
    indices[d] = rest.remainder(self.size(d));
    rest = rest.floor_divide(self.size(d));
  }
  indices[0] = rest;
  return with_entries(self, at::stack(indices).to(at::kLong), sums, true);
}

/// The entries of `self` at those of the mask, which are kept.
Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.is_sparse(), "sparse_mask(): expected a sparse mask");
  TORCH_CHECK(self.sizes().equals(mask.sizes()),
              "sparse_mask(): operands have incompatible sizes; self has size ", self.sizes(),
              " but mask has size ", mask.sizes());
  if (self.is_same(mask)) return self;
  if (mask._nnz() == 0) return mask.clone().to(self.scalar_type());
  Tensor values;
  if (self.is_sparse()) {
    TORCH_CHECK(self.sparse_dim() == mask.sparse_dim(),
                "sparse_mask(): the sparse dimensions of self and mask differ");
    const Tensor entries = self.coalesce();
    values = values_at(places(entries), entries._values(), places(mask));
  } else if (mask.sparse_dim() == 0) {
    values = self.unsqueeze(0).expand(mask._values().sizes()).clone();
  } else {
    values = by_places(self.contiguous(), mask).index_select(0, places(mask));
  }
  return with_entries(mask, mask._indices().clone(), values, mask.is_coalesced());
}

/// The mask's values at the entries of `self`, which are kept.
Tensor sparse_mask_projection(const Tensor& self, const Tensor& mask, bool accumulate_matches) {
  TORCH_INTERNAL_ASSERT(self.is_sparse() && mask.is_sparse() && self.sizes() == mask.sizes());
  if (self._nnz() == 0 || self.is_same(mask)) return self.clone();
  const Tensor entries = mask.coalesce();
  // One where the mask has an entry, and as many as it has there if matches are accumulated.
  c10::DimVector ones(self._values().dim(), 1);
  ones[0] = self._nnz();
  Tensor factor;
  if (accumulate_matches && !mask.is_coalesced()) {
    const Tensor at_mask = find_places(places(entries), places(mask)).position;
    const Tensor counts =
        at::zeros({entries._nnz()}, self._values().options())
            .index_add_(0, at_mask, at::ones({mask._nnz()}, self._values().options()));
    factor = values_at(places(entries), counts, places(self));
  } else {
    factor = find_places(places(entries), places(self)).there.to(self.scalar_type());
  }
  return with_entries(self, self._indices().clone(), self._values().mul(factor.view(ones)),
                      self.is_coalesced());
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  const int64_t wrapped = c10::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.size(wrapped), sparse_dims = self.sparse_dim();
  TORCH_CHECK_INDEX(index.dim() == 1 && index.layout() == at::kStrided &&
                        (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt),
                    "index_select() argument index must be 1-D strided (non-sparse) long-tensor.");
  c10::DimVector sizes(self.sizes());
  sizes[wrapped] = index.numel();
  const auto made = [&](const Tensor& indices, const Tensor& values) {
    return at::_sparse_coo_tensor_with_dims_and_tensors(sparse_dims, self.dense_dim(), sizes,
                                                        indices, values, self.options(), false);
  };
  if (wrapped >= sparse_dims) {
    return made(self._indices().clone(),
                self._values().index_select(wrapped - sparse_dims + 1, index));
  }
  Tensor wanted = index.to(at::kLong);
  if (index.numel() != 0) {
    const Tensor extremes = at::stack({wanted.min(), wanted.max()}).cpu();
    const auto least = extremes.const_data_ptr<int64_t>()[0];
    const auto most = extremes.const_data_ptr<int64_t>()[1];
    TORCH_CHECK_INDEX(least >= -size && most < size, "index_select(): index contains ",
                      most >= size ? most : least, " that is out of range for tensor of size ",
                      self.sizes(), " at dimension ", wrapped);
    wanted = wanted.add(wanted.lt(0).to(at::kLong), size);
  }
  // Each entry comes as often as its index is wanted.
  const auto [sorted, order] = wanted.sort(std::optional<bool>(true), 0, false);
  const Tensor index_of = self._indices().select(0, wrapped).contiguous();
  const Tensor first = at::searchsorted(sorted, index_of);
  const Tensor times = at::searchsorted(sorted, index_of, false, /*right=*/true).sub_(first);
  const Tensor entry = at::arange(self._nnz(), index_of.options()).repeat_interleave(times);
  const Tensor before = times.cumsum(0).sub_(times);
  const Tensor turn = at::arange(entry.numel(), index_of.options())
                          .sub_(before.index_select(0, entry))
                          .add_(first.index_select(0, entry));
  Tensor indices = self._indices().index_select(1, entry);
  indices.select(0, wrapped).copy_(order.index_select(0, turn));
  return made(indices, self._values().index_select(0, entry));
}

Tensor sum_backward(const Tensor& grad_, const Tensor& self_, at::IntArrayRef dims) {
  TORCH_CHECK(grad_.defined() && self_.is_sparse(),
              "_sparse_sum_backward: expected a sparse 'self' and its gradient");
  // An entry that comes twice would count twice: whoever gets the gradient adds it up.
  const Tensor self = self_.coalesce();
  const int64_t sparse_dims = self.sparse_dim();
  std::vector<bool> summed(self.dim(), false);
  for (const int64_t dim : dims) summed[c10::maybe_wrap_dim(dim, self.dim())] = true;
  bool any_sparse = false, all_sparse = true;
  for (int64_t d = 0; d < sparse_dims; ++d) {
    any_sparse = any_sparse || summed[d];
    all_sparse = all_sparse && summed[d];
  }
  c10::DimVector sizes(self._values().sizes());
  // The gradient's dense dimensions with those that were summed put back.
  const auto spread = [&](Tensor values) {
    for (int64_t d = sparse_dims; d < self.dim(); ++d) {
      if (summed[d]) values = values.unsqueeze(d - sparse_dims + 1);
    }
    sizes[0] = values.size(0);
    return values.expand(sizes).clone(at::MemoryFormat::Contiguous);
  };
  if (all_sparse && any_sparse) {
    TORCH_CHECK(!grad_.is_sparse(),
                "_sparse_sum_backward: expected a dense gradient where all sparse dimensions are "
                "summed");
    const Tensor values = spread(grad_.unsqueeze(0));
    sizes[0] = self._nnz();
    return with_entries(self, self._indices().clone(), values.expand(sizes).clone(),
                        self.is_coalesced());
  }
  TORCH_CHECK(grad_.is_sparse(), "_sparse_sum_backward: expected a sparse gradient");
  const Tensor grad = any_sparse ? grad_.coalesce() : grad_;
  if (!any_sparse) {
    return with_entries(self, grad._indices().clone(), spread(grad._values()), grad.is_coalesced());
  }
  Tensor wanted;
  for (int64_t d = 0; d < sparse_dims; ++d) {
    if (summed[d]) continue;
    const Tensor index = self._indices().select(0, d);
    wanted = wanted.defined() ? wanted.mul(self.size(d)).add_(index) : index;
  }
  return with_entries(self, self._indices().clone(),
                      spread(values_at(places(grad), grad._values(), wanted)), self.is_coalesced());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_coalesce", TORCH_FN(coalesce));
  m.impl("_sparse_mask_projection", TORCH_FN(sparse_mask_projection));
  m.impl("_sparse_sum_backward", TORCH_FN(sum_backward));
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("sparse_mask", TORCH_FN(sparse_mask));
}

}  // namespace

}  // namespace ocl::native
