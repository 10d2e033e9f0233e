// Convolutions on CPUs: b packed into panels, a read where it lies (kernels/conv/packed.cl).
#include <algorithm>
#include <array>

#include "engine/conv/contraction.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/gemm/parameters.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::conv {

namespace {

/// So much of a panel at a time stays in a core's second cache: two vectors of it are 128 bytes.
constexpr int64_t kPanelDepth = 1024;
constexpr size_t kTableEntry = 8;  // bytes of the table of places in a

/// With two vectors of columns. As many rows as a matrix product's would leave too few registers:
/// compilers load all rows' elements before they use the first.
constexpr int kMostRows = 8;

/// The tile of sums in registers: as the matrix product's, but not wider than the columns.
struct Tile {
  int width, rows, vectors;
  int64_t columns() const { return int64_t{width} * vectors; }
};

Tile tile_of(const gemm::PackedParameters& parameters, int64_t columns) {
  Tile tile{parameters.width, parameters.rows, parameters.vectors};
  if (columns <= tile.width) tile.vectors = 1;
  while (tile.width > 1 && columns <= tile.width / 2) tile.width /= 2;
  if (tile.vectors > 1) tile.rows = std::min(tile.rows, kMostRows);
  return tile;
}

}  // namespace

bool packed_transposes(const Contraction& contraction) {
  const size_t element = c10::elementSize(contraction.compute);
  const Tile tile =
      tile_of(gemm::parameters_of(contraction.device, element, false).packed, contraction.columns);
  return tile.vectors == 2 && 2 * tile.rows == tile.width;
}

int64_t packed_panel_columns(const Contraction& contraction) {
  const size_t element = c10::elementSize(contraction.compute);
  return tile_of(gemm::parameters_of(contraction.device, element, false).packed,
                 contraction.columns)
      .columns();
}

namespace {

void run(Contraction& contraction) {
  static const KernelFamily pack_family{"conv/packed.cl", "conv_pack"};
  static const KernelFamily family{"conv/packed.cl", "conv_packed"};
  static const KernelFamily finish_family{"conv/packed.cl", "conv_finish"};
  const Accumulator* const accumulator = contraction.accumulator;
  const size_t element = c10::elementSize(contraction.compute);
  const gemm::PackedParameters parameters =
      gemm::parameters_of(contraction.device, element, false).packed;
  const Tile tile = tile_of(parameters, contraction.columns);
  ContractionArguments c = contraction.arguments();
  const int64_t tiles = ceil_div(c.m, tile.rows), panels = ceil_div(c.n, tile.columns());
  const int64_t cores = contraction.device.properties().compute_units;

  // As many tiles per work-item as leave every core enough of them, and even shares.
  const int64_t most = std::clamp<int64_t>(
      tiles * panels * contraction.groups / items_of_cores(contraction.device, 2), 1, 64);
  const int64_t block = ceil_div(tiles, ceil_div(tiles, most));
  const int64_t items = ceil_div(tiles, block) * panels * contraction.groups;
  int64_t splits = 1;
  if (accumulator != nullptr && !accumulator->first) {
    splits = accumulator->splits;
  } else if (items < cores * 2) {
    splits = std::clamp<int64_t>(cores * 2 / items, 1, std::max<int64_t>(c.k / 1024, 1));
  }
  c.block = static_cast<uint32_t>(block);
  // Even parts of k: a short one at the end would fetch and store all sums for little.
  const int64_t parts = std::max<int64_t>(1, ceil_div(c.k, kPanelDepth));
  c.chunk = static_cast<uint32_t>(std::max<int64_t>(1, ceil_div(c.k, parts)));
  c.splits = static_cast<uint32_t>(splits);
  c.split_k = static_cast<uint32_t>(std::max<int64_t>(ceil_div(c.k, splits), 1));
  const bool several = splits > 1 || c.k > c.chunk || !contraction.is_whole();
  const auto padded_columns = static_cast<size_t>(contraction.groups * panels * tile.columns());
  const Workspace work(
      contraction, c, round_up(padded_columns * c.k * element, kTableEntry) + c.k * kTableEntry,
      several ? padded_columns * static_cast<size_t>(tiles * tile.rows * splits) * element : 0);

  const AffineIndex::Dimension row = contraction.rows.joined(AffineIndex::Join::both).innermost();
  const AffineIndex::Dimension k = contraction.k.joined(AffineIndex::Join::first).innermost();
  // Each kernel has a program of its own, for they depend on different parameters.
  const bool run_of_k = k.first == 1 && k.size == c.k;
  const Define of_sums{"C", contraction.compute_tag()}, of_b{"IN", tag(contraction.b_dtype)},
      of_out{"OUT", tag(contraction.dtype)}, width{"WIDTH", tile.width}, rows{"MR", tile.rows},
      vectors{"NV", tile.vectors}, table{"RUN_OF_K", run_of_k};
  // Those of GPUs have one element alone.
  const Epilogue* const epilogue =
      contraction.device.is_cpu() && c.k > 0 ? contraction.take_epilogue() : nullptr;
  if (c.k > 0) {
    ContractionArguments pack = c;
    std::copy_n(c.k_size, 4, pack.row_size);
    std::copy_n(c.k_a, 4, pack.row_a);
    contraction.k.joined(AffineIndex::Join::second).store(pack.k_size, nullptr, pack.k_b);
    pack.split_k =
        static_cast<uint32_t>(std::clamp<int64_t>(kPackElements / tile.columns(), 1, c.k));
    launch(pack_family.get(contraction.device, {of_sums, of_b, width, vectors, table, {"ONLY", 1}}),
           contraction.queue,
           NDRange::volume({static_cast<size_t>(ceil_div(c.k, pack.split_k)),
                            static_cast<size_t>(panels), c.groups},
                           {1, 1, 1}),
           Pointer{contraction.b}, work.own(), pack);
    launch_with(
        epilogue,
        family_with(epilogue, family)
            .get(contraction.device, {of_sums,
                                      of_b,
                                      of_out,
                                      width,
                                      rows,
                                      vectors,
                                      {"ADJACENT", row.first == 1 && row.size >= tile.rows},
                                      table,
                                      {"ONLY", 2}}),
        contraction.queue,
        NDRange::volume({static_cast<size_t>(panels), static_cast<size_t>(ceil_div(tiles, block)),
                         static_cast<size_t>(c.groups) * c.splits},
                        {1, 1, 1}),
        Pointer{contraction.a}, work.own(), contraction.bias_or_out(), Pointer{contraction.out},
        work.totals(), c);
  }
  if (work.finishes()) {
    launch_with(epilogue,
                family_with(epilogue, finish_family)
                    .get(contraction.device, {of_sums, of_out, width, rows, vectors, {"ONLY", 3}}),
                contraction.queue, NDRange::volume({c.n, c.m, c.groups}, {1, 1, 1}),
                contraction.bias_or_out(), Pointer{contraction.out}, work.totals(), c);
  }
}

}  // namespace

const Contraction::Implementation packed{
    "packed", [](const Contraction&) -> const char* { return nullptr; }, run};

}  // namespace ocl::conv
