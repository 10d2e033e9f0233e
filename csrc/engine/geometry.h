// The shape of a reduction: which dimensions are reduced, and how a kernel should walk them.
#pragma once

#include <array>
#include <cstdint>

namespace ocl::reduce {

struct Dimension {
  int64_t size;
  int64_t in;  // byte strides
  int64_t out[2];
};

/// Reduced and kept dimensions, without those of size 1. After order(): each kind sorted by the
/// input's stride, smallest first, and neighbours merged where all operands allow it.
struct Geometry {
  static constexpr int kMaxDims = 64;

  void add(bool is_reduced, const Dimension& dimension);
  void order();
  /// Moves the kept dimension along which the input is contiguous to the front, if there is one.
  bool column_first(int64_t element_size);

  int64_t outputs() const;
  /// Elements per output.
  int64_t reduced_elements() const;

  std::array<Dimension, kMaxDims> reduced, kept;
  int reduced_count = 0, kept_count = 0;
};

}  // namespace ocl::reduce
