// The constants that depend on the class of device: a row for each, which says where its numbers
// are from. What the tuner finds for one device takes their place; it starts from them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device_table.h"
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

  /// GPUs: what a further launch costs, in multiply-adds of a compute unit; work-items of a group
  /// of depthwise convolutions, a power of two from 32 on, and groups that fill a compute unit.
  double launch_cost = 0.9e6;
  int depthwise_group = 256, groups_per_unit = 8;
  /// Work-items of a compute unit that are on their way at once; in sums over columns.
  int resident_items = 1024, resident_column_items = 768;

  /// CPUs, in bytes. `staged`: what a first-level cache holds beside the rest. `panel`: likewise, a
  /// second-level cache. `reread`: of what is read again for every tile. `core`: of the last-level
  /// cache, for each core.
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
