// Convolutions on GPUs: tiles in local memory (kernels/conv/tiled.cl).
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <span>

#include "engine/conv/contraction.h"
#include "engine/device_table.h"
#include "engine/device_tiles.h"
#include "engine/dtype.h"
#include "engine/gemm/tiles.h"
#include "engine/occupancy.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::conv {

namespace {

constexpr int64_t kMostSplits = 128, kLeastPart = 128;

constexpr int64_t kMostTable = 2048;  // elements of k in a table of each work-group

using Candidates = TileCandidates<TiledShape>;

Candidates candidates_of(const Device& device, size_t element) {
  if (element == 8) return Candidates(kConvTiled8);
  return device_row(device).hardware.wanted_items > 0 ? Candidates(kConvTiledWaves4)
                                                      : Candidates(kConvTiled4);
}

int64_t registers_of(const TiledShape& s, size_t element) {
  constexpr int64_t kPlaces = 32;  // of what is loaded next, and addresses
  return tile_registers(s.rows * s.columns, s.rows + s.columns, element, kPlaces);
}

/// A bit for each shape that the device has the registers and the memory for, with a table of so
/// many elements of k.
uint64_t fitting(const Device& device, std::span<const TiledShape> shapes, size_t element,
                 int64_t table) {
  return best_occupied(device, shapes, [&](const TiledShape& s) -> GroupNeed {
    const TileShape& t = s.tile;
    const int64_t operands = 2 * t.k * (t.m + t.n + 2 * s.run) * static_cast<int64_t>(element);
    return {registers_of(s, element), t.items,
            operands + t.m * 12 + 2 * table * static_cast<int64_t>(sizeof(int32_t))};
  });
}

const char* refuse(const Contraction& contraction) {
  if (contraction.bias_channels != 0) return "the bias repeats";
  // The places of a group's elements are numbers of 32 bits.
  const int64_t a = contraction.rows.first_span() + contraction.k.first_span();
  const int64_t b =
      contraction.k.second_span() + (contraction.columns - 1) * std::abs(contraction.column_b);
  if (std::max(a, b) > std::numeric_limits<int32_t>::max()) return "places past 2^31 elements";
  const size_t element = contraction.element_size();
  const Candidates candidates = candidates_of(contraction.device, element);
  return fitting(contraction.device, candidates.shapes, element, kMostTable) != 0
             ? nullptr
             : "no tile fits into local memory and a work-group";
}

void run(Contraction& contraction) {
  static const KernelFamily table_family{"conv/tiled_parts.cl", "conv_table"};
  static const KernelFamily family{"conv/tiled.cl", "conv_tiled"};
  static const KernelFamily finish_family{"conv/tiled_parts.cl", "conv_tiled_finish"};
  ContractionArguments c = contraction.arguments();
  if (c.k == 0) return;
  contraction.k.store(c.k_size, c.k_a, c.k_b);
  const size_t element = c10::elementSize(contraction.compute);
  const Accumulator* const accumulator = contraction.accumulator;
  const bool separate = !contraction.is_whole();
  const int64_t least = gemm::least_parts(c.k, size_t{c.m} * c.n * c.groups * element);
  const Candidates candidates = candidates_of(contraction.device, element);
  const gemm::TileSearch search{contraction.device,
                                c.m,
                                c.n,
                                c.k,
                                c.groups,
                                least,
                                kMostSplits,
                                kLeastPart,
                                device_row(contraction.device).launch_cost};
  const uint64_t fits = fitting(contraction.device, candidates.shapes, element, kMostTable);
  auto [index, splits] = gemm::cheapest_tile(search, candidates.tiles, fits, candidates.model);
  const TiledShape& s = candidates.shapes[static_cast<size_t>(index)];
  if (separate && !accumulator->first) splits = accumulator->splits;
  c.splits = static_cast<uint32_t>(splits);
  c.split_k = static_cast<uint32_t>(ceil_div(ceil_div(c.k, splits), s.tile.k) * s.tile.k);
  const size_t total_bytes = size_t{c.m} * c.n * c.groups * c.splits * element;
  const bool own_table = c.split_k <= kMostTable;
  const Workspace work(contraction, c, own_table ? 1 : size_t{c.k} * 8,
                       splits > 1 || separate ? total_bytes : 0);

  const AffineIndex::Dimension row = contraction.rows.innermost(), k = contraction.k.innermost();
  const std::array<Define, 16> defines{
      {{"C", contraction.compute_tag()},
       {"IN", tag(contraction.b_dtype)},
       {"OUT", tag(contraction.dtype)},
       {"BM", s.tile.m},
       {"BN", s.tile.n},
       {"BK", s.tile.k},
       {"TM", s.rows},
       {"TN", s.columns},
       {"RUN", s.run},
       {"SLICES", s.slices},
       {"TABLE", own_table},
       {"A_BY_K", k.first == 1 && row.first != 1},
       {"B_BY_K", contraction.column_b != 1},
       {"OUT_BY_ROW", contraction.column_out != 1},
       {"ROLLED", device_row(contraction.device).hardware.loads_early},
       large_registers(contraction.device, registers_of(s, element))}};
  const std::array<Define, 4> parts_defines{{{"C", contraction.compute_tag()},
                                             {"IN", tag(contraction.b_dtype)},
                                             {"OUT", tag(contraction.dtype)},
                                             {"OUT_BY_ROW", contraction.column_out != 1}}};
  const auto items = static_cast<size_t>(s.tile.items);
  const int64_t tiles = ceil_div(c.m, s.tile.m) * ceil_div(c.n, s.tile.n);
  if (!own_table) {
    launch(table_family.get(contraction.device, parts_defines), contraction.queue,
           NDRange::linear(c.k, group_of_lanes(contraction.device)), work.own(), c);
  }
  const Epilogue* const epilogue = contraction.take_epilogue();
  launch_with(
      epilogue, family_with(epilogue, family).get(contraction.device, defines), contraction.queue,
      NDRange::volume({static_cast<size_t>(tiles) * items, c.groups, c.splits}, {items, 1, 1}),
      Pointer{contraction.a}, Pointer{contraction.b}, contraction.bias_or_out(),
      Pointer{contraction.out}, work.own(), work.totals(),
      LocalMemory{own_table ? 2 * c.split_k * sizeof(int32_t) : sizeof(int32_t)}, c);
  if (work.finishes()) {
    launch_with(epilogue,
                family_with(epilogue, finish_family).get(contraction.device, parts_defines),
                contraction.queue, NDRange::grid(size_t{c.m} * c.n, c.groups, 64, 1),
                contraction.bias_or_out(), Pointer{contraction.out}, work.totals(), c);
  }
}

}  // namespace

const Contraction::Implementation tiled{"tiled", refuse, run};

}  // namespace ocl::conv
