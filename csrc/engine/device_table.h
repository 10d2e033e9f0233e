// The constants that depend on the class of device: a row for each, which says where its numbers
// are from. What the tuner finds for one device takes their place; it starts from them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "opencl/device.h"
#include "opencl/kernel.h"

namespace ocl {

/// Reductions (reduce/README.md). Elements of a column that are summed before their sum is added
/// to the others; those worth a work-item; of a row, where a GPU's groups take many and where the
/// moments' work-items have them in registers.
struct ReduceRow {
  uint32_t column_chunk = 32, long_row_chunk = 16384;
  int64_t item_elements = 256, register_elements = 32;
  /// GPUs: results for each compute unit from which small groups keep it busy; rows shared by
  /// `large_group` where results are fewer; those worth `small_group`; contiguous ones worth
  /// `least_group`.
  int64_t many_rows_per_unit = 32, large_row = 1024, small_row = 256, least_row = 32;
  size_t large_group = 256, small_group = 64, least_group = 32;
  /// A GPU's group adds up so many partial results, and so many work-items take those of one
  /// output; of as many outputs as lie in a cache line, the group takes them all.
  uint32_t shared_splits = 32;
  size_t partials_group = 64, partials_outputs = 16, partials_group_of_each = 16;
};

/// Scans: elements of a GPU's work-item at a time, the lines worth a group of them, and the
/// elements of columns that are worth a work-item.
struct ScanRow {
  int items = 8;
  int64_t group_length = 512, column_elements = 256;
};

/// Fourier transforms on GPUs: lines side by side that fill a memory transaction, the bytes of the
/// smallest one, the elements a group has at hand, and the lengths that registers pay for.
struct FftRow {
  uint32_t side_by_side = 8, elements = 1024, register_length = 32;
  int64_t sector = 32;
};

/// Batch norms: positions worth a part of their own, where they are adjacent and where channels
/// are. GPUs: vectors of adjacent channels of a group, and groups of a compute unit for sums and
/// for elements (norm/channels.cpp); channels of a group, and the work-items of each.
struct ChannelRow {
  int64_t positions = 2048, column_positions = 64;
  int64_t vectors = 32, sum_groups_per_unit = 8, element_groups_per_unit = 32;
  int64_t group_channels = 8, part_items = 128;
};

struct DeviceRow {
  const char* device_class;
  /// The numbers were measured on this, or derived from it.
  const char* source;

  /// Matrix products, and convolutions with their register tiles: the bytes of a vector; rows x
  /// vectors of sums in registers, added up every kc of k, and the bytes of row panels that a
  /// work-item covers; rows of a work-item of the skinny kernels, and work-items per row.
  int register_bytes;
  int packed_rows, packed_vectors = 2, packed_kc = 512;
  int64_t packed_block_bytes;
  int skinny_rows, skinny_local;

  /// Work-items of a group, where each has a row or column of its own, or elements alone. Where a
  /// row is worth a CPU's work-item, its group has that one.
  int row_group = 128, element_group = 256;
  /// The size of a group whose work-items have little in common: a vector of a CPU, a few waves of
  /// a GPU.
  int lane_group = 64;
  /// Elements that are worth a CPU's work-item: fewer are done before another one begins. Sums and
  /// norms, which pass over elements faster, take a multiple.
  int64_t item_elements = 4096;
  /// Work-items for each of a CPU's cores: few enough to be worth their start, and enough that no
  /// core waits long for the last one. Short ones take a multiple.
  int64_t core_items = 4;
  /// GPUs: elements of which a work-item takes one; of more it takes several, one after another.
  int64_t spread_elements = 1 << 20, spread_copies = 1 << 18, most_spread = 8;
  /// GPUs: elements to add by index that are worth sorting; for fewer one launch is less.
  int64_t sorted_indices = 64;
  /// GPUs: channels of a work-item that samples an image at places that all of them share.
  int64_t sampled_channels = 8;

  /// GPUs: what a further launch costs, in multiply-adds of a compute unit, of its tensor cores,
  /// and of those in double precision; what a part of a result costs to write and read, in the
  /// second.
  double launch_cost = 0.9e6, tensor_launch_cost = 1.2e7, f64_launch_cost = 1.0e6,
         tensor_part_cost = 700;
  /// Where single precision is multiplied in parts of bfloat16: what the launches that split the
  /// factors cost, in multiply-adds of the whole device that this saves, and an element that is
  /// split, or copied besides.
  double plane_launch_cost = 2.8e8, plane_element_cost = 128, plane_copy_cost = 100;
  /// Registers of 4 bytes of a compute unit.
  int unit_registers = 65536;
  /// Work-items of a group of depthwise convolutions, a power of two from 32 on, and groups that
  /// fill a compute unit.
  int depthwise_group = 256, groups_per_unit = 8;
  /// Work-items of a compute unit that are on their way at once; in sums over columns.
  int resident_items = 1024, resident_column_items = 768;
  /// Rows that work-items share (row_share.h): the bytes of a row that one has in registers, how
  /// many share it, and vectors of a row for each where no registers hold it. With more in
  /// registers too few work-items run at once to hide the memory's latency.
  int row_register_bytes = 64, least_sharers = 32, most_sharers = 256, vectors_per_sharer = 4;
  /// A row too long for these (softmax/rows_held.cl): the bytes of one's registers, and how many
  /// share it at most: so long a row that one at a time keeps a compute unit busy.
  int64_t long_row_register_bytes = 100, long_row_sharers = 1024;
  /// The backward pass of norms over rows in registers: the registers a work-item may take, and the
  /// groups of a compute unit that then run at once.
  int norm_registers = 96, norm_groups_per_unit = 10;

  ReduceRow reduce;
  ScanRow scan;
  FftRow fft;
  ChannelRow channels;

  /// CPUs, in bytes. `first_cache`: a first-level cache. `staged`: what it holds beside the rest.
  /// `panel`: likewise, a second-level cache. `reread`: of what is read again for every tile.
  /// `core`: of the last-level cache, for each core. `large_group`: work-items of a group of
  /// element-wise ops where every core gets several.
  int large_group = 1024;
  int64_t first_cache_bytes = 32 << 10, staged_bytes = 16 << 10, panel_bytes = 768 << 10,
          reread_bytes = 256 << 10, core_bytes = 2 << 20;
};

/// The device's row, by what kernels are chosen for (Device::is_cpu()), a CPU's vectors and a GPU's
/// vendor. A load when warm.
const DeviceRow& device_row(const Device& device);

/// Changes a row that device_row() makes, and says whether it did: what the tuner keeps for a
/// device takes the place of the table's constants (tuner/constants.h).
using RowEdit = bool (*)(const Device& device, DeviceRow& row);
void set_row_edit(RowEdit edit);
/// Has rows made again at their next use. References to the old ones stay valid.
void renew_device_rows();

/// The sizes of work-groups: see row_group, element_group and lane_group.
inline size_t group_of_rows(const Device& device) {
  return static_cast<size_t>(device_row(device).row_group);
}
inline size_t group_of_elements(const Device& device) {
  return static_cast<size_t>(device_row(device).element_group);
}
inline size_t group_of_lanes(const Device& device) {
  return static_cast<size_t>(device_row(device).lane_group);
}

/// Elements of `bytes` each of a vector: as many as a register holds, up to the 16 that OpenCL C's
/// vectors have, and no more than a stretch of `length`. A power of two.
inline uint32_t vector_lanes(const Device& device, size_t bytes, int64_t length = 16) {
  auto lanes =
      static_cast<uint32_t>(device_row(device).register_bytes) / static_cast<uint32_t>(bytes);
  while (lanes > 1 && (lanes > 16 || lanes > length)) lanes /= 2;
  return std::max<uint32_t>(lanes, 1);
}

/// Work-items that keep a CPU's cores busy, `times` as many where they are short.
inline int64_t items_of_cores(const Device& device, int64_t times = 1) {
  return int64_t{device.properties().compute_units} * device_row(device).core_items * times;
}
/// Work-groups that fill a GPU's compute units, and work-items that are on their way at once.
inline int64_t groups_of_units(const Device& device) {
  return int64_t{device.properties().compute_units} * device_row(device).groups_per_unit;
}
inline int64_t items_of_units(const Device& device) {
  return int64_t{device.properties().compute_units} * device_row(device).resident_items;
}
/// Parts of work that the device's cores share evenly: a CPU's work-items, a GPU's work-groups.
inline int64_t parts_of_work(const Device& device) {
  if (device.is_cpu()) return items_of_cores(device);
  return std::max(groups_of_units(device) / 2, int64_t{device.properties().compute_units});
}
/// Work-items that keep the device busy, where each does more than an element's work.
inline int64_t busy_items(const Device& device) {
  return device.is_cpu() ? items_of_cores(device) : items_of_units(device);
}

/// A work-item for each of n elements.
inline NDRange element_range(const Device& device, size_t n) {
  return NDRange::linear(n, group_of_elements(device));
}

}  // namespace ocl
