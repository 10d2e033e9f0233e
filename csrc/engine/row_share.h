// How the work-items of a GPU share a contiguous row that is passed over several times.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/device_table.h"
#include "engine/occupancy.h"
#include "opencl/ceil_div.h"

namespace ocl {

struct RowShare {
  uint32_t items = 1;
  int64_t vectors = 0;   // of a row in registers of each; 0: the row is read again
  int64_t occupied = 0;  // how well a unit does with it (occupancy.h)
};

/// The work-items whose registers hold a row of `length` elements between them, in vectors of
/// `width`: as many as do best by the device's registers, and of those the fewest, which wait the
/// least for each other. Where none can, some vectors for each; a short row is left to one.
/// `element_size`: in memory, in bytes. `rows`: that are held at once. `values`: that a work-item
/// has for each element of one.
inline RowShare share_row(const Device& device, int64_t length, int64_t width, size_t element_size,
                          int64_t rows = 1, int64_t values = 1) {
  const DeviceRow& row = device_row(device);
  const int64_t least_items = row.least_sharers, most_items = row.most_sharers;
  if (length < least_items) return {};
  const int64_t most = row.row_register_bytes / (width * static_cast<int64_t>(element_size) * rows);
  RowShare best;
  for (int64_t items = least_items; length % width == 0 && items <= most_items; items *= 2) {
    const int64_t vectors = ceil_div(length / width, items);
    if (vectors > most) continue;
    const int64_t occupied =
        held_occupancy(device, vectors * width * values, std::max<size_t>(element_size, 4), items);
    if (occupied > best.occupied) best = {static_cast<uint32_t>(items), vectors, occupied};
  }
  if (best.vectors > 0) return best;
  const auto items = static_cast<uint64_t>(length / (width * row.vectors_per_sharer));
  const auto rounded = static_cast<int64_t>(std::bit_floor(items));
  return {static_cast<uint32_t>(std::clamp(rounded, least_items, most_items)), 0};
}

/// Elements of a vector of a row: 16 bytes, or fewer, down to four, if they are no part of its
/// length.
inline int64_t gpu_row_width(int64_t length, size_t element_size) {
  auto width = static_cast<int64_t>(16 / element_size);
  while (width > 4 && length % width != 0) width /= 2;
  return width;
}

}  // namespace ocl
