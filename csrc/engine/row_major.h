// Row-major layouts of strided tensors for kernels that care about the order of elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace ocl {

/// Sizes and strides of up to three tensors of one shape, innermost dimension first. Unlike a
/// TensorIterator's, the order of dimensions is the tensor's own.
struct RowMajor {
  static constexpr int kMaxOperands = 3;
  static constexpr int kMaxKernelDims = 16;

  int64_t n = 1;
  int dims = 0;
  bool contiguous = true;  // every operand lies in memory in the order of its elements
  bool fits = true;        // 16 dimensions and 32-bit byte offsets do
  std::array<int64_t, 64> size;
  std::array<std::array<int64_t, 64>, kMaxOperands> stride;  // bytes
};

/// The layout of `tensors`, each of shape `sizes`. With `merge`, neighbouring dimensions that all
/// operands step through evenly become one, and dimensions of size 1 vanish.
RowMajor row_major(c10::IntArrayRef sizes, std::initializer_list<at::TensorBase> tensors,
                   bool merge = true);

/// Fills in `dims`, `size` and `stride` of a kernel's argument struct: uint dims, size[16],
/// stride[operands][16].
template <class Arguments>
void put_layout(Arguments& arguments, const RowMajor& layout) {
  static_assert(std::size(Arguments{}.size) == RowMajor::kMaxKernelDims);
  arguments.dims = layout.dims;
  for (int d = 0; d < RowMajor::kMaxKernelDims; ++d) {
    const bool used = d < layout.dims && layout.fits;
    arguments.size[d] = used ? layout.size[d] : 1;
    for (size_t k = 0; k < std::size(arguments.stride); ++k) {
      arguments.stride[k][d] = used ? layout.stride[k][d] : 0;
    }
  }
}

}  // namespace ocl
