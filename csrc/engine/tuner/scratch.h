// Operands and results that a tuner may try kernels on without touching anybody's.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include "opencl/queue.h"

namespace ocl::tuner {

/// Memory like an operand's, with the same alignment and some elements on either side that kernels
/// must leave alone. Throws OutOfMemoryError.
class Scratch {
 public:
  Scratch() = default;
  /// For `count` elements like those at `like` (an address of the operand).
  Scratch(c10::ScalarType dtype, size_t count, const void* like);

  char* data() const { return data_; }
  /// Gives all elements, those on either side too, scattered values that depend on the seed only.
  void fill(Queue& queue, uint32_t seed) const;

 private:
  friend bool same_results(Queue& queue, const Scratch& x, const Scratch& y, double scale);
  c10::DataPtr memory_;
  char* data_ = nullptr;                            // the operand
  char* first_ = nullptr;                           // the elements in front of it
  size_t count_ = 0;                                // real numbers from there
  c10::ScalarType dtype_ = c10::ScalarType::Float;  // of those
};

/// True if every element of x is y's but for rounding: within some ulp of |y| + scale, where
/// `scale` is the size of sums that may have cancelled. Integers must be equal. Waits.
bool same_results(Queue& queue, const Scratch& x, const Scratch& y, double scale);

}  // namespace ocl::tuner
