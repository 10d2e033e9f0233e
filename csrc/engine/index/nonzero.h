// Coordinates of nonzero elements.
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::index {

/// Counts the nonzero elements of a tensor on construction, without waiting.
class NonzeroScan {
 public:
  /// The kernels decode so many dimensions.
  static constexpr int kMaxDims = 16;

  /// At most kMaxDims dimensions and fewer than 2^31 elements.
  explicit NonzeroScan(const at::Tensor& self);

  /// How many there are: waits for the device.
  int64_t total() const;

  /// Writes the coordinates of the first out.size(0) of them to the rows of `out`, an int64 tensor
  /// with a column per dimension. Rows past total() are left alone.
  void write(const at::Tensor& out) const;

 private:
  at::Tensor self_;    // what the kernels read: contiguous if its strides are too large for them
  at::Tensor counts_;  // of the elements before each chunk; the last one is the total
  uint32_t chunk_ = 1;
  int64_t chunks_ = 0;
};

}  // namespace ocl::index
