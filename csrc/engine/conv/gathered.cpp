// Convolutions on CPUs whose windows are fewer, or sums shorter, than panels of the other operand
// are worth (kernels/conv/gathered.cl).
#include <algorithm>
#include <array>

#include "engine/conv/plan.h"
#include "engine/dtype.h"
#include "engine/gemm/gemm.h"
#include "opencl/kernel_family.h"

namespace ocl {

namespace {

constexpr int64_t kGatherElements = 8192;   // of a panel, for one work-item
constexpr int64_t kPanelBytes = 768 << 10;  // what a second-level cache holds beside the rest
constexpr int64_t kMostRows = 256, kShortSum = 256;

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

/// Whether gathering `rows` windows costs less than packing the other operand and storing sums one
/// by one.
bool pays(const ConvPlan& plan, int64_t rows, int64_t k) {
  if (rows <= kMostRows && rows * 2 <= plan.columns) return true;
  // Sums that are stored one by one, and take little more time than that.
  if (conv_panels_turn(plan)) return false;
  const AffineIndex out = plan.rows.joined(AffineIndex::Join::second);
  return k <= kShortSum && plan.column_out != 1 && out.innermost().second == 1 &&
         out.innermost().size >= 32 && plan.columns >= 32;
}

}  // namespace

bool run_conv_gathered(const ConvPlan& plan) {
  static const KernelFamily gather{"conv/gathered.cl", "conv_gather"};
  static const KernelFamily family{"conv/gathered.cl", "conv_gathered"};
  const size_t element = c10::elementSize(plan.compute);
  Contraction c = plan.contraction();
  const PackedParameters tile = gemm_parameters(plan.device, element, false).packed;
  const int64_t width = tile.width, k = c.k;
  if (k == 0 || c.m < width / 2 || !pays(plan, c.m, k)) return false;
  const int64_t vectors = c.m <= width ? 1 : tile.vectors, panel_rows = width * vectors;
  if (k * panel_rows * static_cast<int64_t>(element) > kPanelBytes) return false;
  const int64_t panels = blocks(c.m, panel_rows), tiles = blocks(c.n, tile.rows);
  const int64_t cores = plan.device.properties().compute_units;
  const ConvPlan::Buffers buffers = plan.locate(c);
  const ConvWorkspace work(plan, nullptr, c,
                           static_cast<size_t>(plan.groups * panels * panel_rows * k) * element, 0);
  const std::array<Define, 6> defines{{{"C", plan.compute_tag()},
                                       {"IN", tag(plan.b_dtype)},
                                       {"OUT", tag(plan.dtype)},
                                       {"WIDTH", width},
                                       {"MR", tile.rows},
                                       {"NV", vectors}}};
  c.split_k = static_cast<uint32_t>(std::clamp<int64_t>(kGatherElements / panel_rows, 1, k));
  launch(gather.get(plan.device, defines), plan.queue,
         NDRange::volume(
             {static_cast<size_t>(blocks(k, c.split_k)), static_cast<size_t>(panels), c.groups},
             {1, 1, 1}),
         buffers.a, work.own(), c);
  plan.k.joined(AffineIndex::Join::second).store(c.k_size, nullptr, c.k_b);
  c.block = static_cast<uint32_t>(
      std::clamp<int64_t>(tiles * panels * plan.groups / (cores * 8), 1, tiles));
  launch(family.get(plan.device, defines), plan.queue,
         NDRange::volume(
             {static_cast<size_t>(panels), static_cast<size_t>(blocks(tiles, c.block)), c.groups},
             {1, 1, 1}),
         buffers.b, work.own(), buffers.bias, buffers.out, c);
  return true;
}

}  // namespace ocl
