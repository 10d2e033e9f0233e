// Convolutions on GPUs: tiles in local memory (kernels/conv/tiled.cl).
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "engine/conv_plan.h"
#include "engine/dtype.h"

namespace ocl {

namespace {

/// A work-group's tile and the sums of a work-item, in runs of `run`.
struct TileShape {
  int m, n, k, rows, columns, run;
  size_t items() const { return static_cast<size_t>((m / rows) * (n / columns)); }
};

// The first for wide results, the last for few columns; 8-byte numbers take half the runs.
constexpr TileShape kShapes4[] = {{128, 128, 8, 8, 8, 4},
                                  {128, 64, 8, 8, 4, 4},
                                  {64, 64, 8, 4, 4, 4},
                                  {128, 32, 8, 8, 4, 4},
                                  {64, 16, 8, 4, 4, 4}};
constexpr TileShape kShapes8[] = {{64, 64, 8, 4, 4, 2}, {64, 32, 8, 4, 4, 2}, {64, 16, 8, 4, 4, 2}};

constexpr int64_t kMostSplits = 32, kLeastPart = 128;
// Longer parts would round more than CPU torch's sums; their totals may take that many bytes.
constexpr int64_t kLongestPart = 4096, kTotalBytes = int64_t{64} << 20;

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

bool fits(const Device& device, const TileShape& s, size_t element) {
  const size_t local = 2 * static_cast<size_t>(s.k * (s.m + s.n + 2 * s.run)) * element;
  return local <= device.properties().local_memory &&
         s.items() <= device.properties().max_work_group_size;
}

/// The shape with the least work on the busiest compute unit.
template <size_t count>
const TileShape& best_of(const TileShape (&shapes)[count], const Device& device,
                         const Contraction& c, size_t element) {
  const int64_t units = device.properties().compute_units;
  const TileShape* best = &shapes[count - 1];
  int64_t best_cost = INT64_MAX;
  for (const TileShape& s : shapes) {
    if (!fits(device, s, element)) continue;
    const int64_t tiles = blocks(c.m, s.m) * blocks(c.n, s.n) * c.groups;
    const int64_t parts =
        std::clamp<int64_t>(std::min<int64_t>(units * 2 / tiles, c.k / kLeastPart), 1, kMostSplits);
    // Smaller tiles load more per sum.
    const int64_t sums = int64_t{s.m} * s.n + 16 * (s.m + s.n);
    const int64_t cost = blocks(tiles * parts, units) * sums * blocks(c.k, parts);
    if (cost < best_cost) {
      best_cost = cost;
      best = &s;
    }
  }
  return *best;
}

}  // namespace

void run_conv_tiled(const ConvPlan& plan, ConvAccumulator* accumulator) {
  static const KernelFamily table_family{"conv/tiled.cl", "conv_table"};
  static const KernelFamily family{"conv/tiled.cl", "conv_tiled"};
  static const KernelFamily finish_family{"conv/tiled.cl", "conv_tiled_finish"};
  Contraction c = plan.contraction();
  if (c.k == 0) return;
  plan.k.store(c.k_size, c.k_a, c.k_b);
  const size_t element = c10::elementSize(plan.compute);
  const TileShape& s = element == 8 ? best_of(kShapes8, plan.device, c, element)
                                    : best_of(kShapes4, plan.device, c, element);
  const int64_t tiles = blocks(c.m, s.m) * blocks(c.n, s.n);
  const int64_t units = plan.device.properties().compute_units;
  const bool separate = accumulator != nullptr && !(accumulator->first && accumulator->last);
  int64_t splits = std::clamp<int64_t>(
      std::min<int64_t>(units * 2 / (tiles * c.groups), c.k / kLeastPart), 1, kMostSplits);
  const int64_t most =
      kTotalBytes / (int64_t{c.m} * c.n * c.groups * static_cast<int64_t>(element));
  splits = std::max(splits, std::min(c.k / kLongestPart, most));
  if (separate && !accumulator->first) splits = accumulator->splits;
  c.splits = static_cast<uint32_t>(splits);
  c.split_k = static_cast<uint32_t>(blocks(blocks(c.k, splits), s.k) * s.k);
  const size_t total_bytes = size_t{c.m} * c.n * c.groups * c.splits * element;
  const ConvPlan::Buffers buffers = plan.locate(c);
  const ConvWorkspace work(plan, accumulator, c, size_t{c.k} * 8,
                           splits > 1 || separate ? total_bytes : 0);

  const AffineIndex::Dimension row = plan.rows.innermost(), k = plan.k.innermost();
  const std::array<Define, 12> defines{{{"C", plan.compute_tag()},
                                        {"IN", tag(plan.b_dtype)},
                                        {"OUT", tag(plan.dtype)},
                                        {"BM", s.m},
                                        {"BN", s.n},
                                        {"BK", s.k},
                                        {"TM", s.rows},
                                        {"TN", s.columns},
                                        {"RUN", s.run},
                                        {"A_BY_K", k.first == 1 && row.first != 1},
                                        {"B_BY_K", plan.column_b != 1},
                                        {"OUT_BY_ROW", plan.column_out != 1}}};
  const size_t items = s.items();
  launch(table_family.get(plan.device, defines), plan.queue, NDRange::linear(c.k, 64), work.own(),
         c);
  launch(family.get(plan.device, defines), plan.queue,
         NDRange::volume({static_cast<size_t>(tiles) * items, c.groups, c.splits}, {items, 1, 1}),
         buffers.a, buffers.b, buffers.bias, buffers.out, work.own(), work.totals(), c);
  if (work.finishes()) {
    launch(finish_family.get(plan.device, defines), plan.queue,
           NDRange::grid(size_t{c.m} * c.n, c.groups, 64, 1), buffers.bias, buffers.out,
           work.totals(), c);
  }
}

}  // namespace ocl
