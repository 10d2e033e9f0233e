// The constants that depend on the class of device: a row for each, which says where its numbers
// are from. What the tuner finds for one device takes their place; it starts from them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "opencl/device.h"
#include "opencl/kernel.h"

namespace ocl {

struct DeviceRow {
  const char* device_class;
  /// What the numbers were measured on, or derived from.
  const char* source;

  /// Matrix products, and convolutions with their register tiles: the bytes of a vector; rows x
  /// vectors of sums in registers, added up every kc of k, and the bytes of row panels that a
  /// work-item covers; rows of a work-item of the skinny kernels, and work-items per row.
  int register_bytes;
  int packed_rows, packed_vectors = 2, packed_kc = 512;
  int64_t packed_block_bytes;
  int skinny_rows, skinny_local;

  /// Work-items of a group whose items have rows or columns of their own, or elements alone. Where
  /// a row is worth a CPU's work-item, its group has that one.
  int row_group = 128, element_group = 256;

  /// GPUs: what a further launch costs, in multiply-adds of a compute unit, of its tensor cores,
  /// and of those in double precision; what a part of a result costs to write and read, in the
  /// second.
  double launch_cost = 0.9e6, tensor_launch_cost = 1.2e7, f64_launch_cost = 1.0e6,
         tensor_part_cost = 700;
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
  /// The backward pass of norms over rows in registers: the registers a work-item may take, and the
  /// groups of a compute unit that then run at once.
  int norm_registers = 96, norm_groups_per_unit = 10;

  /// CPUs, in bytes. `staged`: what a first-level cache holds beside the rest. `panel`: likewise, a
  /// second-level cache. `reread`: of what is read again for every tile. `core`: of the last-level
  /// cache, for each core.
  /// `large_group`: work-items of a group of element-wise ops where every core gets several.
  int large_group = 1024;
  int64_t staged_bytes = 16 << 10, panel_bytes = 768 << 10, reread_bytes = 256 << 10,
          core_bytes = 2 << 20;
};

/// The device's row, by what kernels are chosen for (Device::is_cpu()), a CPU's vectors and a GPU's
/// vendor. A load when warm.
const DeviceRow& device_row(const Device& device);

/// The sizes of work-groups: see row_group and element_group.
inline size_t group_of_rows(const Device& device) {
  return static_cast<size_t>(device_row(device).row_group);
}
inline size_t group_of_elements(const Device& device) {
  return static_cast<size_t>(device_row(device).element_group);
}

/// A work-item for each of n elements.
inline NDRange element_range(const Device& device, size_t n) {
  return NDRange::linear(n, group_of_elements(device));
}

}  // namespace ocl
