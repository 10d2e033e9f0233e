// The launchers of the index engine share these: a TensorIterator's operands put in the kernels'
// order, and the arguments that all kernels take.
#pragma once

#include <ATen/TensorIterator.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/dispatch.h"
#include "engine/index/index.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"

namespace ocl::index {

/// With more the kernels' arguments have room for fewer dimensions.
inline constexpr int kFewIndices = 6;
inline constexpr int kMaxOperands = 2 + kMaxIndices;
/// The cost in NDRange::work of an element that is looked up: it takes a division per dimension.
inline constexpr int64_t kLookup = 4;

/// The indexed operand, the other one, then the index tensors; dimensions innermost first.
struct Problem {
  enum Roles { indexed_first, indexed_second, no_other };

  /// Throws NotImplementedError for more than kMaxIndices index tensors.
  Problem(at::TensorIteratorBase& iter, const Indexing& indexing, Roles roles);

  int operands() const { return 2 + indices; }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= size[d];
    return n;
  }
  /// The dimensions that one launch decodes, DIMS in the kernels; more are looped over on the host.
  int max_dims() const { return indices > kFewIndices ? 4 : kMaxDims; }
  /// Those of one kind that a reduction's does, REDUCE_DIMS in the kernels.
  int max_reduce_dims() const { return max_dims() / 2; }
  Pointers pointers() const { return {{data.data(), static_cast<size_t>(operands())}}; }

  int indices = 0;
  int dims = 0;
  c10::ScalarType dtype, index_dtype;
  std::array<char*, kMaxOperands> data{};  // null: no such operand
  std::array<int64_t, 64> size;
  std::array<std::array<int64_t, 64>, kMaxOperands> stride;  // bytes
};

extern Engine engine;

/// The problem in a line of trace: what is done, of which sizes, with how many index tensors.
std::string describe(const char* what, const Problem& problem);

/// Fills in what all kernels' arguments say of the index tensors.
template <class Arguments>
void put_indices(Arguments& arguments, const Indexing& indexing) {
  for (size_t k = 0; k < indexing.sizes.size(); ++k) {
    arguments.index_size[k] = indexing.sizes[k];
    arguments.index_stride[k] = indexing.strides[k];
  }
}

/// The part of the arguments that kernels of so many index tensors have.
template <class Arguments>
Bytes used_part(const Arguments& arguments, const Problem& problem) {
  const size_t strides = static_cast<size_t>(problem.operands()) * problem.max_dims();
  const size_t bytes = offsetof(Arguments, stride) + strides * sizeof arguments.stride[0];
  return {&arguments, round_up(bytes, alignof(Arguments))};
}

}  // namespace ocl::index
