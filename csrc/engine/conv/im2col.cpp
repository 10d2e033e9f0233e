// Convolutions on CPUs whose windows are fewer, or sums shorter, than panels of the other operand
// are worth (kernels/conv/im2col.cl).
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

constexpr int64_t kMostRows = 256, kShortSum = 256;

/// Whether im2col of `rows` windows costs less than packing the other operand and storing sums one
/// by one.
bool pays(const Contraction& contraction, int64_t rows, int64_t k) {
  if (rows <= kMostRows && rows * 2 <= contraction.columns) return true;
  // Sums that are stored one by one, and take little more time than that.
  if (packed_transposes(contraction)) return false;
  const AffineIndex out = contraction.rows.joined(AffineIndex::Join::second);
  return k <= kShortSum && contraction.column_out != 1 && out.innermost().second == 1 &&
         out.innermost().size >= 32 && contraction.columns >= 32;
}

struct Tiles {
  int64_t width, rows, vectors, panel_rows;
};

Tiles tiles_of(const Contraction& contraction) {
  const gemm::PackedParameters tile =
      gemm::parameters_of(contraction.device, contraction.element_size(), false).packed;
  const int64_t vectors = contraction.rows.elements() <= tile.width ? 1 : tile.vectors;
  return {tile.width, tile.rows, vectors, tile.width * vectors};
}

const char* refuse(const Contraction& contraction) {
  if (const char* reason = refuse_parts(contraction)) return reason;
  const int64_t k = contraction.k.elements(), rows = contraction.rows.elements();
  const Tiles tile = tiles_of(contraction);
  if (rows < tile.width / 2) return "the windows fill less than half a vector";
  if (!pays(contraction, rows, k)) return "packing the other operand costs less";
  if (k * tile.panel_rows * static_cast<int64_t>(contraction.element_size()) >
      device_row(contraction.device).panel_bytes) {
    return "a panel exceeds the second-level cache";
  }
  return nullptr;
}

void run(Contraction& contraction) {
  static const KernelFamily pack_family{"conv/im2col.cl", "conv_im2col"};
  static const KernelFamily family{"conv/im2col.cl", "conv_im2col_product"};
  ContractionArguments c = contraction.arguments();
  const Tiles tile = tiles_of(contraction);
  const int64_t k = c.k, panels = ceil_div(c.m, tile.panel_rows), tiles = ceil_div(c.n, tile.rows);
  const int64_t cores = contraction.device.properties().compute_units;
  const Workspace work(contraction, c,
                       static_cast<size_t>(contraction.groups * panels * tile.panel_rows * k) *
                           contraction.element_size(),
                       0);
  const std::array<Define, 6> defines{{{"C", contraction.compute_tag()},
                                       {"IN", tag(contraction.b_dtype)},
                                       {"OUT", tag(contraction.dtype)},
                                       {"WIDTH", tile.width},
                                       {"MR", tile.rows},
                                       {"NV", tile.vectors}}};
  c.split_k = static_cast<uint32_t>(std::clamp<int64_t>(kPackElements / tile.panel_rows, 1, k));
  launch(pack_family.get(contraction.device, defines), contraction.queue,
         NDRange::volume(
             {static_cast<size_t>(ceil_div(k, c.split_k)), static_cast<size_t>(panels), c.groups},
             {1, 1, 1}),
         Pointer{contraction.a}, work.own(), c);
  contraction.k.joined(AffineIndex::Join::second).store(c.k_size, nullptr, c.k_b);
  c.block = static_cast<uint32_t>(
      std::clamp<int64_t>(tiles * panels * contraction.groups / (cores * 8), 1, tiles));
  // Its vectors run along positions.
  const Epilogue* const epilogue = contraction.plane > 0 ? contraction.take_epilogue() : nullptr;
  launch_with(
      epilogue, family_with(epilogue, family).get(contraction.device, defines), contraction.queue,
      NDRange::volume(
          {static_cast<size_t>(panels), static_cast<size_t>(ceil_div(tiles, c.block)), c.groups},
          {1, 1, 1}),
      Pointer{contraction.b}, work.own(), contraction.bias_or_out(), Pointer{contraction.out}, c);
}

}  // namespace

const Contraction::Implementation im2col{"im2col", refuse, run};

}  // namespace ocl::conv
