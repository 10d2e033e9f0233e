// A reduction on its way to its kernels: how it is cut up, and what launches them.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <string>

#include "engine/device_table.h"
#include "engine/geometry.h"
#include "engine/kernel_types.h"
#include "engine/reduce/operands.h"
#include "engine/reduce/reduce.h"
#include "opencl/kernel.h"
#include "runtime/stream.h"

namespace ocl::reduce {

using namespace kernel_types;
#include "reduce/arguments.clh"

/// One reduction on its way: geometry in, launches out.
class Plan {
 public:
  Plan(const Op& op, Queue& queue, const Operands& operands, Geometry& geometry, Scalars scalars);

  const Device& device() const { return device_; }
  bool contiguous_rows() const { return contiguous_rows_; }
  /// The size of the contiguous dimension of what is kept, by which columns lie side by side; 0:
  /// there is none, or rows are contiguous.
  int64_t columns() const { return columns_; }
  int width() const { return operands_.max_width; }
  /// The vectors of a row in each work-item's registers, where a GPU's work-group can hold one
  /// between the two passes that moments take; else 0.
  int64_t held_vectors() const { return held_vectors_; }
  std::string describe() const;

  void run_rows(int64_t held);
  void run_columns(int width, uint32_t most_vectors);

 private:
  void fill_arguments();
  void choose_chunks(uint32_t chunk);
  /// Splits each output's chunks so that there are about as many parts as the device can use.
  void choose_splits(int64_t parts_per_split, int64_t elements_per_split);
  void even_out_chunks(uint64_t most, uint64_t unit);
  size_t row_group() const;
  void choose_row_splits(size_t group);
  int64_t held_elements() const;
  int64_t hold_rows();
  bool long_rows(size_t group) const;
  void allocate_partials();
  void run_partials();
  /// Whether every vector of `width` elements starts at a multiple of its size, for a GPU's sake.
  bool aligned_input(int width, const Dimension* walked) const;
  bool aligned_columns(int width) const;
  NDRange of_work(const NDRange& range) const {
    return range.of_work(int64_t{arguments_.outputs} * geometry_.reduced_elements());
  }
  void enqueue(Kernel& kernel, const NDRange& range);
  ScalarArgument scalar(double value) const {
    const bool wide = operands_.scalar_tag[1] == '6';
    return scalar_argument(wide ? c10::ScalarType::Double : c10::ScalarType::Float, value);
  }
  /// Work-items that keep the device busy.
  int64_t wanted_items() const {
    return device_.is_cpu() ? items_of_cores(device_, 2)
                            : int64_t{device_.properties().compute_units} * gpu_items_;
  }

  const Op& op_;
  Queue& queue_;
  Device& device_;
  const ReduceRow& table_ = device_row(device_).reduce;
  const Operands& operands_;
  Geometry& geometry_;
  const Scalars scalars_;
  Arguments arguments_{};
  int64_t gpu_items_ = device_row(device_).resident_items;
  c10::DataPtr partials_;
  bool contiguous_rows_;
  int64_t columns_ = 0, held_vectors_ = 0;
};

}  // namespace ocl::reduce
