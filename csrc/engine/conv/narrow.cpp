// Convolutions with few columns per group (kernels/conv/narrow.cl, few_columns.cl).
#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "engine/conv/plan.h"
#include "engine/dtype.h"
#include "opencl/kernel_family.h"

namespace ocl {

namespace {

constexpr int kPlaneLines = 4, kDotRows = 9, kLaneRows = 8;
constexpr int64_t kSumVectors = 24;        // of 64 bytes, in 32 registers of that size
constexpr int64_t kSquareVectors = 16;     // where factors take more registers, or sums are turned
constexpr int64_t kSumsPerItem = 1 << 15;  // fewer are not worth a work-item

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

/// Lanes for stretches of `length` elements.
int width_of(const ConvPlan& plan, int64_t length) {
  auto width = static_cast<int>(64 / c10::elementSize(plan.compute));
  while (width > length) width /= 2;
  return width;
}

/// Whether vectors may run along that dimension, of what is read, and of both tensors.
bool reads_runs(const AffineIndex::Dimension& d) {
  return (d.first == 1 || d.first == 2) && d.size >= 4;
}
bool runs(const AffineIndex::Dimension& d) { return reads_runs(d) && d.second == 1; }

/// Lines that a work-item of conv_planes has: sums of all columns stay in registers, and there are
/// enough of them to hide the latency of an addition.
int64_t plane_lines(const ConvPlan& plan) {
  constexpr int64_t kMostLines = 8;
  if (plan.columns == 1) return kPlaneLines;
  const bool square = plan.columns > kNarrowColumns || plan.column_out == 1;
  const int64_t most = square ? kSquareVectors : kSumVectors;
  const int64_t vectors = plan.device.properties().vector_width_float >= 16 ? most : most / 4;
  return std::clamp<int64_t>(vectors / plan.columns, 1, kMostLines);
}

void enqueue(const ConvPlan& plan, const KernelFamily& family, Contraction& c, int width,
             int64_t step, int64_t rows, const NDRange& range, int64_t columns = 1,
             bool by_group = false) {
  const ConvPlan::Buffers buffers = plan.locate(c);
  launch(family.get(plan.device, {{"C", plan.compute_tag()},
                                  {"IN", tag(plan.b_dtype)},
                                  {"OUT", tag(plan.dtype)},
                                  {"WIDTH", width},
                                  {"STEP", step},
                                  {"MR", rows},
                                  {"COLUMNS", columns},
                                  {"BY_GROUP", by_group}}),
         plan.queue, range, buffers.a, buffers.b, buffers.bias, buffers.out, c);
}

/// Whether the places of a group's elements of a are numbers of 32 bits.
bool places_fit_32_bits(const Contraction& c) {
  int64_t last = 0;
  for (int d = 0; d < 4; ++d) {
    last += (int64_t{c.row_size[d]} - 1) * std::abs(c.row_a[d]);
    last += (int64_t{c.k_size[d]} - 1) * std::abs(c.k_a[d]);
  }
  return last <= std::numeric_limits<int32_t>::max();
}

}  // namespace

bool run_conv_few_columns(const ConvPlan& plan) {
  static const KernelFamily family{"conv/few_columns.cl", "conv_few_columns"};
  // More columns have tiles of their own, which do better unless there are many rows.
  constexpr int64_t kLongestSum = 1 << 12, kLeastRows = 1 << 11, kManyRows = 1 << 15;
  constexpr int64_t kItems = 128;
  const int64_t terms = plan.k.elements(), rows = plan.rows.elements();
  const bool few = plan.columns <= kNarrowColumns;
  if (plan.columns > kFewColumns || terms == 0 || terms > kLongestSum ||
      rows < (few ? kLeastRows : kManyRows)) {
    return false;
  }
  // Neighbouring work-items are to read what is next to each other.
  if (plan.rows.innermost().first > 2) return false;
  // A part of k's elements, with a factor for each column and a place, is in local memory.
  constexpr size_t kPart = 256;
  const size_t term = NDRange::round_up(
      static_cast<size_t>(plan.columns) * c10::elementSize(plan.compute) + sizeof(int32_t), 16);
  if (kPart * term > plan.device.properties().local_memory) return false;
  const int64_t per_item = few ? 1 : 2;
  Contraction c = plan.contraction();
  plan.k.joined(AffineIndex::Join::both).store(c.k_size, c.k_a, c.k_b);
  if (!places_fit_32_bits(c)) return false;
  const ConvPlan::Buffers buffers = plan.locate(c);
  launch(family.get(plan.device, {{"C", plan.compute_tag()},
                                  {"IN", tag(plan.b_dtype)},
                                  {"OUT", tag(plan.dtype)},
                                  {"COLUMNS", plan.columns},
                                  {"ROWS", per_item}}),
         plan.queue,
         NDRange::grid(static_cast<size_t>(blocks(rows, kItems * per_item) * kItems),
                       static_cast<size_t>(plan.groups), kItems, 1),
         buffers.a, buffers.b, buffers.bias, buffers.out, c);
  return true;
}

bool run_conv_direct(const ConvPlan& plan) {
  static const KernelFamily family{"conv/narrow.cl", "conv_direct"};
  constexpr int64_t kLeastSums = 1 << 12, kLongestSum = 1 << 10;
  constexpr size_t kLocal = 64;
  const int64_t together = plan.groups * plan.columns;
  const int64_t terms = plan.k.elements();
  if (plan.columns > kNarrowColumns || terms == 0 || terms > kLongestSum ||
      plan.rows.elements() * together < kLeastSums) {
    return false;
  }
  Contraction c = plan.contraction();
  plan.k.joined(AffineIndex::Join::both).store(c.k_size, c.k_a, c.k_b);
  const bool by_group = plan.out_group == 1 || plan.column_out == 1;
  const auto channels = static_cast<size_t>(together);
  const NDRange range =
      by_group ? NDRange::grid(channels, c.m, kLocal, 1) : NDRange::grid(c.m, channels, kLocal, 1);
  enqueue(plan, family, c, 1, 1, 1, range, 1, by_group);
  return true;
}

bool run_conv_narrow(const ConvPlan& plan) {
  static const KernelFamily planes{"conv/narrow.cl", "conv_planes"};
  static const KernelFamily dots{"conv/narrow.cl", "conv_dots"};
  static const KernelFamily lanes{"conv/narrow.cl", "conv_lanes"};
  using Join = AffineIndex::Join;
  if (plan.columns > kPlaneColumns || plan.k.elements() == 0) return false;
  Contraction c = plan.contraction();
  const AffineIndex rows = plan.rows.joined(Join::both), k = plan.k.joined(Join::both);
  k.store(c.k_size, c.k_a, c.k_b);
  const int64_t cores = plan.device.properties().compute_units;
  const size_t together = static_cast<size_t>(plan.groups * plan.columns);

  if (plan.columns == 1 && plan.groups >= 4 && plan.a_group == 1 && plan.b_group == 1 &&
      plan.out_group == 1) {
    const int width = width_of(plan, plan.groups);
    const int tile = c.m < kDotRows + 1 && c.m > kLaneRows ? kDotRows : kLaneRows;
    const int64_t vectors = blocks(plan.groups, width), tiles = blocks(c.m, tile);
    const int64_t work = int64_t{c.k} * width * tile;
    c.block = static_cast<uint32_t>(std::clamp<int64_t>(
        std::min(kSumsPerItem / work, tiles * vectors / (cores * 4)), 1, tiles));
    enqueue(plan, lanes, c, width, 1, tile,
            NDRange::grid(static_cast<size_t>(blocks(tiles, c.block)), static_cast<size_t>(vectors),
                          1, 1));
    return true;
  }
  if (const auto line = rows.innermost();
      (runs(line) || (plan.columns > 1 && reads_runs(line))) &&
      (plan.columns <= kNarrowColumns || line.size >= kPlaneLength)) {
    const int64_t lines = c.m / line.size, tile = plane_lines(plan);
    enqueue(plan, planes, c, width_of(plan, line.size), line.first, tile,
            NDRange::grid(static_cast<size_t>(blocks(lines, tile)),
                          static_cast<size_t>(plan.groups), 1, 1),
            plan.columns);
    return true;
  }
  if (plan.columns > kNarrowColumns) return false;
  // Sums of windows have a bias, and are short.
  if (const auto line = k.innermost(); runs(line) && plan.bias == nullptr) {
    enqueue(plan, dots, c, width_of(plan, line.size), line.first, kDotRows,
            NDRange::grid(static_cast<size_t>(blocks(c.m, kDotRows)), together, 1, 1));
    return true;
  }
  return false;
}

}  // namespace ocl
