// Each class of device has a row of the constants of device_constants.h, which says where its
// numbers are from. What the tuner finds for one device takes their place; it starts from them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "opencl/device.h"
#include "opencl/kernel.h"

namespace ocl {

#define DECLARE(type, name, value) type name = value;

#define REDUCE DECLARE
struct ReduceRow {
#include "engine/device_constants.h"
};
#define SCAN DECLARE
struct ScanRow {
#include "engine/device_constants.h"
};
#define FFT DECLARE
struct FftRow {
#include "engine/device_constants.h"
};
#define CHANNELS DECLARE
struct ChannelRow {
#include "engine/device_constants.h"
};

#define HARDWARE DECLARE
struct HardwareRow {
#include "engine/device_constants.h"
};

#define ROW DECLARE
struct DeviceRow {
  const char* device_class;
  /// The numbers were measured on this, or derived from it.
  const char* source;
#include "engine/device_constants.h"
  ReduceRow reduce;
  ScanRow scan;
  FftRow fft;
  ChannelRow channels;
  HardwareRow hardware;
};
#undef DECLARE

/// The device's row follows from what kernels are chosen for (Device::is_cpu()), a CPU's vectors
/// and a GPU's vendor. It takes one load when warm.
const DeviceRow& device_row(const Device& device);

/// Changes a row that device_row() makes, and says whether it did: what the tuner keeps for a
/// device takes the place of the table's constants (tuner/constants.h).
using RowEdit = bool (*)(const Device& device, DeviceRow& row);
void set_row_edit(RowEdit edit);
/// Has rows made again at their next use. References to the old ones stay valid.
void renew_device_rows();

/// Whether sums of single precision are faster in double precision than in pairs of numbers, which
/// take some ten operations in place of one.
inline bool has_fast_fp64(const Device& device) {
  return device.properties().has_fp64 &&
         (device.is_cpu() || device_row(device).hardware.fp64_rate >= 1.0 / 8);
}

/// Work-groups have these sizes: see row_group, element_group and lane_group.
inline size_t group_of_rows(const Device& device) {
  return static_cast<size_t>(device_row(device).row_group);
}
inline size_t group_of_elements(const Device& device) {
  return static_cast<size_t>(device_row(device).element_group);
}
inline size_t group_of_lanes(const Device& device) {
  return static_cast<size_t>(device_row(device).lane_group);
}

/// A vector has so many elements of `bytes` each. They are as many as a register holds, up to the
/// 16 of OpenCL C's vectors, and no more than a stretch of `length`: a power of two.
inline uint32_t vector_lanes(const Device& device, size_t bytes, int64_t length = 16) {
  auto lanes =
      static_cast<uint32_t>(device_row(device).register_bytes) / static_cast<uint32_t>(bytes);
  while (lanes > 1 && (lanes > 16 || lanes > length)) lanes /= 2;
  return std::max<uint32_t>(lanes, 1);
}

/// So many work-items keep a CPU's cores busy, `times` as many where they are short.
inline int64_t items_of_cores(const Device& device, int64_t times = 1) {
  return int64_t{device.properties().compute_units} * device_row(device).core_items * times;
}
/// So many work-groups fill a GPU's compute units, and so many work-items are on their way at once.
inline int64_t groups_of_units(const Device& device) {
  return int64_t{device.properties().compute_units} * device_row(device).groups_per_unit;
}
inline int64_t items_of_units(const Device& device) {
  return int64_t{device.properties().compute_units} * device_row(device).resident_items;
}
/// The device's cores share so many parts of work evenly: a CPU's work-items, a GPU's work-groups.
inline int64_t parts_of_work(const Device& device) {
  if (device.is_cpu()) return items_of_cores(device);
  return std::max(groups_of_units(device) / 2, int64_t{device.properties().compute_units});
}
/// So many work-items keep the device busy, where each does more than an element's work.
inline int64_t busy_items(const Device& device) {
  return device.is_cpu() ? items_of_cores(device) : items_of_units(device);
}

/// Each of n elements gets a work-item.
inline NDRange element_range(const Device& device, size_t n) {
  return NDRange::linear(n, group_of_elements(device));
}

}  // namespace ocl
