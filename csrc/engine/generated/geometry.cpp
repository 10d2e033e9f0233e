#include "engine/generated/geometry.h"

#include <algorithm>
#include <bit>

#include "engine/device_table.h"
#include "opencl/ceil_div.h"

namespace ocl::generated {
namespace {

// Work-items of CPUs: enough for all cores, each with enough to do, and none that takes so much
// that the others wait for it.
constexpr int64_t kMostElements = int64_t{1} << 14;
constexpr int64_t kLeastElements = int64_t{1} << 11;

}  // namespace

Geometry geometry_of(const Description& of, const Device& device, const Sizes& sizes) {
  Geometry geometry;
  const int64_t items = items_of_cores(device, 2);
  const auto width = static_cast<int64_t>(of.width);
  const auto group = static_cast<int64_t>(of.group);
  switch (of.form) {
    case Form::item_lanes: {
      const int64_t total = sizes.columns * sizes.rows * sizes.length;
      const int64_t each =
          std::clamp(ceil_div(total, items), std::min(kLeastElements, total), kMostElements);
      // Columns first; what is left of the share are rows.
      const int64_t columns = std::max<int64_t>(each / sizes.length, 1);
      geometry.columns_each = std::min(ceil_div(columns, 4 * width) * 4 * width,
                                       ceil_div(sizes.columns, width) * width);
      geometry.rows_each = std::clamp<int64_t>(
          each /
              std::max<int64_t>(std::min(geometry.columns_each, sizes.columns) * sizes.length, 1),
          1, sizes.rows);
      geometry.range = NDRange::grid(ceil_div(sizes.columns, geometry.columns_each),
                                     ceil_div(sizes.rows, geometry.rows_each), 1, 1);
      break;
    }
    case Form::item_rows: {
      const int64_t least = ceil_div(kLeastElements, std::max<int64_t>(sizes.length, 1));
      const int64_t even =
          ceil_div(sizes.rows, static_cast<int64_t>(device.properties().compute_units));
      geometry.rows_each = std::clamp<int64_t>(
          std::max(ceil_div(sizes.rows, items), std::min(least, even)), 1, sizes.rows);
      geometry.range = NDRange::linear(ceil_div(sizes.rows, geometry.rows_each), 1);
      break;
    }
    case Form::group_lanes: {
      // Short lines share a work-group.
      const auto items = static_cast<size_t>(ceil_div(sizes.columns, width));
      const size_t local = std::min(std::bit_ceil(std::max<size_t>(items, 1)), of.group);
      geometry.range = NDRange::grid(
          items, static_cast<size_t>(sizes.rows), local,
          std::min(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(sizes.rows, 1))),
                   of.group / local));
      break;
    }
    case Form::group_columns:
    case Form::group_tiles:
      geometry.range =
          NDRange::grid(static_cast<size_t>(ceil_div(sizes.columns, width)),
                        static_cast<size_t>(sizes.rows) * of.lines, of.group, of.lines);
      break;
    case Form::group_rows:
      geometry.range = NDRange::linear(sizes.rows * group, group);
      break;
  }
  const double operations =
      static_cast<double>(sizes.columns) * sizes.rows * sizes.length * static_cast<double>(of.work);
  geometry.range.work = operations < 1e15 ? static_cast<int64_t>(operations) : int64_t{1} << 50;
  return geometry;
}

}  // namespace ocl::generated
