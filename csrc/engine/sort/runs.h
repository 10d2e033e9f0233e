// Runs of equal neighbours, and the lexicographic order of rows: what unique() is made of.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/dispatch.h"
#include "engine/sort/sort.h"
#include "opencl/kernel_family.h"

namespace ocl::sort {

/// Counts the runs of equal neighbours on construction, without waiting. Zeros are equal to each
/// other, NaNs to nothing.
class Runs {
 public:
  /// Among `n` items of `columns` neighbouring keys each. `index` (n uint32, device memory): the
  /// items' order; null: as they are. Single keys lie in that order already, rows of keys don't.
  Runs(const KeyType& key, const void* keys, const void* index, uint32_t n, uint32_t columns,
       const at::TensorOptions& options);

  /// The number of items.
  uint32_t size() const { return n_; }

  /// How many runs there are: waits for the device.
  int64_t total() const;

  /// Writes of each run: `firsts`, the number of its first item in the input; `starts` (total() +
  /// 1), where it begins among the ordered items. Each item of the input has its run's number in
  /// `inverse`. Contiguous int64; those that are undefined are left out.
  void write(const at::Tensor& firsts, const at::Tensor& starts, const at::Tensor& inverse) const;

 private:
  /// The implementations among which the engine `sort` chooses (plan.h).
  struct Forms;
  friend std::span<const Implementation<Runs>* const> runs_implementations();

  void count(bool in_groups);
  Kernel& get(const KernelFamily& family) const;
  NDRange range() const;

  Queue& queue_;
  KeyType key_;
  const void *keys_, *index_;
  uint32_t n_, columns_, chunk_ = 1, chunks_ = 0;
  bool in_groups_ = false;  // a work-group per chunk
  at::Tensor counts_;       // int32: of the runs before each chunk; the last one is the total
};

/// The runs of equal neighbours in a vector: their first elements, and as Runs::write says.
struct Consecutive {
  at::Tensor firsts, inverse, starts;
};

/// Why consecutive() does not take a vector; null if it does.
const char* refuse_consecutive(const at::Tensor& flat);

/// Without keys, but otherwise what Runs finds. `inverse` and `starts` stay undefined unless
/// wanted.
Consecutive consecutive(const at::Tensor& flat, bool wants_inverse, bool wants_starts);

/// The order of the rows of keys as rows of one table: rows.rows() uint32 in device memory, null if
/// there are none. Stable.
c10::DataPtr sort_lexicographic(const Rows& rows);

}  // namespace ocl::sort
