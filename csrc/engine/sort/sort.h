// The sort engine: the rows of a tensor along one dimension as unsigned keys, sorted, and what is
// read off sorted rows.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/sort/plan.h"

namespace ocl::sort {

/// The key type of a dtype. Throws NotImplementedError in the name of `op` for complex dtypes.
KeyType key_type(const char* op, c10::ScalarType dtype);

class Rows {
 public:
  /// Enqueues the keys of `self`'s rows along `dim` (0 for a 0-dim tensor, which is one row of one
  /// element). Throws NotImplementedError in the name of `op` for complex dtypes and for 2^32
  /// elements or more.
  Rows(const char* op, const at::Tensor& self, int64_t dim, bool descending = false);

  /// Sorts the rows.
  void sort();
  /// Sorts only so far that the first k elements of each row, at least 1, are in place; others may
  /// be gone.
  void sort_first(int64_t k);

  // The functions below need sorted rows. `values` and `indices` have self's shape but their own
  // size along the dimension, any strides, self's dtype and int64; they must not overlap self.

  /// As many elements of each row as there is room for, and their positions.
  void take(const at::Tensor& values, const at::Tensor& indices) const;
  /// Element number k, from 0; rows must not be empty, here and below.
  void pick(int64_t k, const at::Tensor& values, const at::Tensor& indices) const;
  /// The lower median of ascending rows; NaN, at the first one, where there is one.
  void median(const at::Tensor& values, const at::Tensor& indices) const;
  /// The lower median of what is not NaN; NaN where all is.
  void nanmedian(const at::Tensor& values, const at::Tensor& indices) const;
  /// The smallest of the most frequent elements of ascending rows, and the last position it is at.
  void mode(const at::Tensor& values, const at::Tensor& indices) const;

  Queue& queue() const { return plan_.queue; }
  const KeyType& key() const { return plan_.key; }
  uint32_t rows() const { return plan_.rows; }
  uint32_t n() const { return plan_.n; }
  /// Device memory: rows() * n() keys, and as many positions (uint32), null before sort().
  const void* keys() const { return plan_.keys.get(); }
  const void* index() const { return plan_.index.get(); }

 private:
  void pick(uint32_t which, int64_t k, const at::Tensor& values, const at::Tensor& indices) const;
  template <class Launch>
  void write(const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices,
             const Launch& launch) const;

  at::Tensor self_;
  int64_t dim_;
  bool descending_;
  Plan plan_;
};

/// out = (elements are in the one ascending row `sorted`) != invert. `elements` and `out` (bool)
/// are contiguous, of one shape, `elements` of the dtype that was sorted. NaN is nowhere.
void is_in(const Rows& sorted, const at::Tensor& elements, bool invert, const at::Tensor& out);

}  // namespace ocl::sort
