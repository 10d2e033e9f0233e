// One index tensor along one dimension: how gathers, scatters and slices by index see their
// operands.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/index/index.h"

namespace ocl::native {

inline at::Tensor at_least_1d(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

/// `tensor` seen with shape `sizes`, standing still along `dim`.
inline at::Tensor stand_still(const at::Tensor& tensor, c10::IntArrayRef sizes, int64_t dim) {
  c10::DimVector strides(tensor.strides().begin(), tensor.strides().end());
  strides[dim] = 0;
  return tensor.as_strided(sizes, strides);
}

/// A vector seen with shape `sizes`, moving along `dim` alone.
inline at::Tensor move_along(const at::Tensor& vector, c10::IntArrayRef sizes, int64_t dim) {
  std::vector<int64_t> strides(sizes.size(), 0);
  strides[dim] = vector.dim() == 0 ? 0 : vector.stride(0);
  return vector.as_strided(sizes, strides);
}

/// Operands of any dtype, not resized; which overlap is allowed has been checked before.
inline at::TensorIterator iterator(const at::Tensor& out, c10::ArrayRef<at::Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  config.add_owned_output(out);
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build();
}

/// Nothing of `tensor` can be meant by an index along a dimension without elements.
inline void check_not_empty(const char* name, const at::Tensor& tensor, int64_t dim) {
  TORCH_CHECK_INDEX(tensor.size(dim) > 0, name, "(): index out of range for a dimension of size 0");
}

/// One index tensor that stands for dimension `dim` of `tensor`.
struct AlongDimension {
  AlongDimension(const at::Tensor& tensor, int64_t dim, const AssertSite& site, bool wrap = false)
      : size(tensor.size(dim)),
        stride(tensor.stride(dim) * tensor.itemsize()),
        indexing{size, stride, wrap, site} {}
  AlongDimension(const AlongDimension&) = delete;
  int64_t size, stride;
  index::Indexing indexing;  // refers to size and stride
};

}  // namespace ocl::native
