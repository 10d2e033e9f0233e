// Sparse COO tensors as indices, values and places.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>

namespace ocl::native {

/// `like` with other entries.
inline at::Tensor with_entries(const at::Tensor& like, const at::Tensor& indices,
                               const at::Tensor& values, bool coalesced) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      like.sparse_dim(), like.dense_dim(), like.sizes(), indices, values,
      like.options().dtype(values.scalar_type()), coalesced);
}

/// The number of each entry's place among those of the sparse dimensions, in row-major order.
/// `without`: a sparse dimension that doesn't count, -1 for none.
inline at::Tensor places(const at::Tensor& sparse, int64_t without = -1) {
  const at::Tensor indices = sparse._indices();
  at::Tensor place;
  for (int64_t d = 0; d < sparse.sparse_dim(); ++d) {
    if (d == without) continue;
    const at::Tensor index = indices.select(0, d);
    place = place.defined() ? place.mul(sparse.size(d)).add_(index) : index;
  }
  return place.defined() ? place : indices.new_zeros({sparse._nnz()});
}

/// The places in the smallest dtype of indices that holds them all: numbers of 32 bits are sorted
/// in half the time.
inline at::Tensor short_places(const at::Tensor& sparse, int64_t without = -1) {
  double most = 1;
  for (int64_t d = 0; d < sparse.sparse_dim(); ++d) {
    if (d != without) most *= static_cast<double>(sparse.size(d));
  }
  const at::Tensor place = places(sparse, without);
  return most < static_cast<double>(INT32_MAX) ? place.to(at::kInt) : place;
}

/// A dense tensor with the sparse dimensions of `sparse` made one.
inline at::Tensor by_places(const at::Tensor& dense, const at::Tensor& sparse) {
  c10::DimVector sizes{-1};
  int64_t elements = 1;
  for (int64_t d = 0; d < sparse.dim(); ++d) {
    if (d >= sparse.sparse_dim()) sizes.push_back(sparse.size(d));
    if (d < sparse.sparse_dim()) elements *= sparse.size(d);
  }
  sizes[0] = elements;
  return dense.view(sizes);
}

/// Where in an ascending list of places the wanted ones are, and whether they are there at all. The
/// positions of others are any.
struct Found {
  at::Tensor position, there;
};
Found find_places(const at::Tensor& ascending, const at::Tensor& wanted);

/// The values [entries, ...] at the places that are there, 0 for the others.
at::Tensor values_at(const at::Tensor& ascending, const at::Tensor& values,
                     const at::Tensor& wanted);

}  // namespace ocl::native
