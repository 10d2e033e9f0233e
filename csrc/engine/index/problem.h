// What the launchers of the index engine share: a TensorIterator's operands put in the kernels'
// order.
//
// Offers: Problem.
#pragma once

#include <ATen/TensorIterator.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "engine/argument_struct.h"
#include "engine/index/index.h"
#include "opencl/kernel.h"

namespace ocl::index {

/// With more the kernels' layouts have room for fewer dimensions.
inline constexpr int kFewIndices = 6;
inline constexpr int kMaxOperands = 2 + kMaxIndices;

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

  int indices = 0;
  int dims = 0;
  c10::ScalarType dtype, index_dtype;
  std::array<char*, kMaxOperands> data{};  // null: no such operand
  std::array<int64_t, 64> size;
  std::array<std::array<int64_t, 64>, kMaxOperands> stride;  // bytes
};

/// Puts what every layout starts with: byte offsets, sizes and strides of the indexed dimensions.
void put_operands(ArgumentStruct& arguments, std::array<cl_mem, kMaxOperands>& mems, Device& device,
                  const Problem& problem, const Indexing& indexing);

/// Sets the buffers, the layout, the assert buffer and site, and returns the next argument's index.
cl_uint set_arguments(Kernel& kernel, const Problem& problem, const Indexing& indexing,
                      const std::array<cl_mem, kMaxOperands>& mems,
                      const ArgumentStruct& arguments);

}  // namespace ocl::index
