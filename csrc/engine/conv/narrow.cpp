// Convolutions with few columns per group (kernels/conv/narrow.cl, few_columns.cl).
#include <algorithm>
#include <array>
#include <limits>

#include "engine/conv/contraction.h"
#include "engine/conv/description.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::conv {

namespace {

// The kernels' form on any device: sums side by side, enough to hide the latency of an addition.
constexpr int kPlaneLines = 4, kDotRows = 9, kGroupRows = 8;
constexpr int64_t kSumsPerItem = 1 << 15;  // fewer are not worth a work-item

/// Lanes for stretches of `length` elements.
int width_of(const Contraction& contraction, int64_t length) {
  return static_cast<int>(
      vector_lanes(contraction.device, c10::elementSize(contraction.compute), length));
}

/// Whether vectors may run along that dimension, of what is read, and of both tensors.
bool reads_runs(const AffineIndex::Dimension& d) {
  return (d.first == 1 || d.first == 2) && d.size >= 4;
}
bool runs(const AffineIndex::Dimension& d) { return reads_runs(d) && d.second == 1; }

/// Lines that a work-item of conv_narrow_positions has: sums of all columns stay in registers, and
/// there are enough of them to hide the latency of an addition.
int64_t plane_lines(const Contraction& contraction) {
  constexpr int64_t kMostLines = 8;
  if (contraction.columns == 1) return kPlaneLines;
  // As many sums as a matrix product has in registers; fewer where b takes more of them, or sums
  // are transposed.
  const DeviceRow& row = device_row(contraction.device);
  const bool square = contraction.columns > kNarrowColumns || contraction.column_out == 1;
  const int64_t sums = row.packed_rows * row.packed_vectors, vectors = square ? sums * 2 / 3 : sums;
  return std::clamp<int64_t>(vectors / contraction.columns, 1, kMostLines);
}

void launch_narrow(Contraction& contraction, const KernelFamily& family,
                   const ContractionArguments& c, int width, int64_t step, int64_t rows,
                   const NDRange& range, int64_t columns = 1, bool by_group = false) {
  const Epilogue* const epilogue = contraction.take_epilogue();
  launch_with(epilogue,
              family_with(epilogue, family)
                  .get(contraction.device, {{"C", contraction.compute_tag()},
                                            {"IN", tag(contraction.b_dtype)},
                                            {"OUT", tag(contraction.dtype)},
                                            {"WIDTH", width},
                                            {"STEP", step},
                                            {"MR", rows},
                                            {"COLUMNS", columns},
                                            {"BY_GROUP", by_group}}),
              contraction.queue, range, Pointer{contraction.a}, Pointer{contraction.b},
              contraction.bias_or_out(), Pointer{contraction.out}, c);
}

/// The kernels' argument with k's dimensions as both operands have them.
ContractionArguments arguments_of(const Contraction& contraction) {
  ContractionArguments c = contraction.arguments();
  contraction.k.joined(AffineIndex::Join::both).store(c.k_size, c.k_a, c.k_b);
  return c;
}

/// Sums in one call, of something.
int64_t rows_per_item(const Contraction& contraction) {
  return contraction.columns <= kNarrowColumns ? 1 : 2;
}

const char* refuse_few_columns(const Contraction& contraction) {
  // More columns have tiles of their own, which do better unless there are many rows.
  constexpr int64_t kLongestSum = 1 << 12, kLeastRows = 1 << 11, kManyRows = 1 << 15;
  if (const char* reason = refuse_parts(contraction)) return reason;
  const int64_t terms = contraction.k.elements(), rows = contraction.rows.elements();
  if (contraction.columns > kFewColumns) return "there are many columns";
  if (terms > kLongestSum) return "the sums are long";
  if (rows < (contraction.columns <= kNarrowColumns ? kLeastRows : kManyRows)) {
    return "there are few rows";
  }
  // Neighbouring work-items are to read what is next to each other.
  if (contraction.rows.innermost().first > 2) return "neighbouring rows lie apart";
  // A part of k's elements, with a factor for each column and a place, is in local memory.
  const size_t term = round_up(
      static_cast<size_t>(contraction.columns) * contraction.element_size() + sizeof(int32_t), 16);
  const DeviceProperties& properties = contraction.device.properties();
  if (kFewColumnsPart * term > properties.local_memory)
    return "a part of the sum exceeds local memory";
  if (properties.max_work_group_size < group_of_rows(contraction.device))
    return "work-groups are too small";
  const int64_t span = contraction.rows.first_span() + contraction.k.first_span();
  return span > std::numeric_limits<int32_t>::max() ? "places past 2^31 elements" : nullptr;
}

void run_few_columns(Contraction& contraction) {
  static const KernelFamily family{"conv/few_columns.cl", "conv_few_columns"};
  const int64_t per_item = rows_per_item(contraction), rows = contraction.rows.elements();
  const auto items = static_cast<int64_t>(group_of_rows(contraction.device));
  const Epilogue* const epilogue = contraction.take_epilogue();
  launch_with(epilogue,
              family_with(epilogue, family)
                  .get(contraction.device, {{"C", contraction.compute_tag()},
                                            {"IN", tag(contraction.b_dtype)},
                                            {"OUT", tag(contraction.dtype)},
                                            {"COLUMNS", contraction.columns},
                                            {"ROWS", per_item},
                                            {"ITEMS", items}}),
              contraction.queue,
              NDRange::grid(static_cast<size_t>(ceil_div(rows, items * per_item) * items),
                            static_cast<size_t>(contraction.groups), items, 1),
              Pointer{contraction.a}, Pointer{contraction.b}, contraction.bias_or_out(),
              Pointer{contraction.out}, arguments_of(contraction));
}

const char* refuse_direct(const Contraction& contraction) {
  constexpr int64_t kLeastSums = 1 << 12, kLongestSum = 1 << 10;
  if (const char* reason = refuse_parts(contraction)) return reason;
  if (contraction.columns > kNarrowColumns) return "there are many columns";
  if (contraction.k.elements() > kLongestSum) return "the sums are long";
  if (contraction.rows.elements() * contraction.groups * contraction.columns < kLeastSums) {
    return "the sums are few";
  }
  return nullptr;
}

void run_direct(Contraction& contraction) {
  static const KernelFamily family{"conv/narrow.cl", "conv_direct"};
  constexpr size_t kLocal = 64;
  const ContractionArguments c = arguments_of(contraction);
  const bool by_group = contraction.out_group == 1 || contraction.column_out == 1;
  const auto channels = static_cast<size_t>(contraction.groups * contraction.columns);
  const NDRange range =
      by_group ? NDRange::grid(channels, c.m, kLocal, 1) : NDRange::grid(c.m, channels, kLocal, 1);
  launch_narrow(contraction, family, c, 1, 1, 1, range, 1, by_group);
}

const char* refuse_groups(const Contraction& contraction) {
  if (const char* reason = refuse_parts(contraction)) return reason;
  if (contraction.columns != 1) return "groups have several columns";
  if (contraction.groups < 4) return "groups are few";
  if (contraction.a_group != 1 || contraction.b_group != 1 || contraction.out_group != 1) {
    return "groups lie apart";
  }
  return nullptr;
}

void run_groups(Contraction& contraction) {
  static const KernelFamily family{"conv/narrow.cl", "conv_narrow_groups"};
  ContractionArguments c = arguments_of(contraction);
  const int width = width_of(contraction, contraction.groups);
  const int tile = c.m < kDotRows + 1 && c.m > kGroupRows ? kDotRows : kGroupRows;
  const int64_t vectors = ceil_div(contraction.groups, width), tiles = ceil_div(c.m, tile);
  const int64_t work = int64_t{c.k} * width * tile;
  c.block = static_cast<uint32_t>(std::clamp<int64_t>(
      std::min(kSumsPerItem / work, tiles * vectors / items_of_cores(contraction.device)), 1,
      tiles));
  launch_narrow(contraction, family, c, width, 1, tile,
                NDRange::grid(static_cast<size_t>(ceil_div(tiles, c.block)),
                              static_cast<size_t>(vectors), 1, 1));
}

const char* refuse_positions(const Contraction& contraction) {
  if (const char* reason = refuse_parts(contraction)) return reason;
  if (contraction.columns > kPlaneColumns) return "there are many columns";
  const auto line = contraction.rows.joined(AffineIndex::Join::both).innermost();
  if (!runs(line) && !(contraction.columns > 1 && reads_runs(line))) {
    return "neighbouring positions lie apart";
  }
  if (contraction.columns > kNarrowColumns && line.size < kPlaneLength) return "lines are short";
  return nullptr;
}

void run_positions(Contraction& contraction) {
  static const KernelFamily family{"conv/narrow.cl", "conv_narrow_positions"};
  const ContractionArguments c = arguments_of(contraction);
  const auto line = contraction.rows.joined(AffineIndex::Join::both).innermost();
  const int64_t lines = c.m / line.size, tile = plane_lines(contraction);
  launch_narrow(contraction, family, c, width_of(contraction, line.size), line.first, tile,
                NDRange::grid(static_cast<size_t>(ceil_div(lines, tile)),
                              static_cast<size_t>(contraction.groups), 1, 1),
                contraction.columns);
}

const char* refuse_k(const Contraction& contraction) {
  if (const char* reason = refuse_parts(contraction)) return reason;
  if (contraction.columns > kNarrowColumns) return "there are many columns";
  // Sums of windows have a bias, and are short.
  if (contraction.bias != nullptr) return "there is a bias";
  const auto line = contraction.k.joined(AffineIndex::Join::both).innermost();
  return runs(line) ? nullptr : "neighbouring terms lie apart";
}

void run_k(Contraction& contraction) {
  static const KernelFamily family{"conv/narrow.cl", "conv_narrow_k"};
  const ContractionArguments c = arguments_of(contraction);
  const auto line = contraction.k.joined(AffineIndex::Join::both).innermost();
  launch_narrow(contraction, family, c, width_of(contraction, line.size), line.first, kDotRows,
                NDRange::grid(static_cast<size_t>(ceil_div(c.m, kDotRows)),
                              static_cast<size_t>(contraction.groups * contraction.columns), 1, 1));
}

}  // namespace

const Contraction::Implementation few_columns{"few_columns", refuse_few_columns, run_few_columns};
const Contraction::Implementation direct{"direct", refuse_direct, run_direct};
const Contraction::Implementation narrow_groups{"narrow_groups", refuse_groups, run_groups};
const Contraction::Implementation narrow_positions{"narrow_positions", refuse_positions,
                                                   run_positions};
const Contraction::Implementation narrow_k{"narrow_k", refuse_k, run_k};

}  // namespace ocl::conv
