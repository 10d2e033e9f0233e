// Products by sub-groups of Intel's GPUs (kernels/gemm/subgroup.cl): by matrix instructions in half
// and bfloat16, and by broadcasts in every type that can be broadcast.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "engine/device_table.h"
#include "engine/device_tiles.h"
#include "engine/gemm/fragments.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "engine/occupancy.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

using Candidates = TileCandidates<SubgroupShape>;

Candidates candidates_of(const Plan& plan, bool matrix) {
  if (matrix) return Candidates(kSubgroupMatrix);
  return plan.compute_size == 8 ? Candidates(kSubgroup8) : Candidates(kSubgroup4);
}

/// Registers of a work-item, as a thread of the row's wave shares them: fewer work-items have more.
/// Fitted to what Intel's compiler takes and spills.
int64_t registers_of(const Plan& plan, const SubgroupShape& s) {
  const int64_t sums = s.rows * s.columns / s.size;
  return tile_registers(3 * sums, 0, plan.compute_size, 40) * s.size /
         device_row(plan.device).hardware.wave_items;
}

/// A bit for each shape that the device has the sub-groups, the registers and the memory for.
uint64_t fitting(const Plan& plan, bool matrix) {
  const DeviceProperties& properties = plan.device.properties();
  const std::span<const SubgroupShape> shapes = candidates_of(plan, matrix).shapes;
  const size_t element = matrix ? 2 : plan.compute_size;
  // Matrix instructions take sub-groups of one size. Broadcasts do best in the smaller ones, whose
  // work-items have more registers.
  uint32_t sizes = properties.required_sub_group_sizes;
  if (matrix && properties.subgroup_matrix_size != 0) sizes = properties.subgroup_matrix_size;
  return best_occupied(plan.device, shapes, [&](const SubgroupShape& s) -> GroupNeed {
    const size_t row = static_cast<size_t>(s.tile.k) + 16 / element;
    const size_t stage =
        (static_cast<size_t>(s.tile.m) * row + static_cast<size_t>(s.tile.n * s.tile.k)) * element;
    const size_t lines = static_cast<size_t>(s.tile.m / s.rows * 8 * s.tile.n) * plan.compute_size;
    // The compiler can't take smaller sub-groups instead of more registers.
    const int64_t registers = registers_of(plan, s);
    const bool enough = properties.offers_large_registers ||
                        registers <= device_row(plan.device).hardware.item_registers;
    const bool there = enough && (sizes & static_cast<uint32_t>(s.size)) != 0;
    return {registers, there ? s.tile.items : INT64_MAX,
            static_cast<int64_t>(std::max(2 * stage, lines))};
  });
}

bool is_half_tag(const char* tag) {
  return std::strcmp(tag, "f16") == 0 || std::strcmp(tag, "bf16") == 0;
}

template <bool matrix>
const char* refuse(const Plan& plan) {
  if (plan.exact_terms > 1) return "operands are bfloat16x3's parts";
  if (plan.device.properties().required_sub_group_sizes == 0) {
    return "the device has no sub-groups of a size that can be asked for";
  }
  if (plan.complex) return "complex";
  if (matrix) {
    if (!is_half_tag(plan.a_tag)) return "neither half nor bfloat16";
    const bool same = std::strcmp(plan.a_tag, plan.out_tag) == 0;
    if ((!same && std::strcmp(plan.out_tag, "f32") != 0) ||
        std::strcmp(plan.a_tag, plan.b_tag) != 0) {
      return "operands of several types";
    }
  }
  if (fitting(plan, matrix) == 0) return "its tiles exceed what the device has";
  return nullptr;
}

template <bool matrix>
void run(const Plan& source) {
  static const KernelFamily family{"gemm/subgroup.cl", "gemm_subgroup"};
  // The epilogue's neighbouring work-items store along a row.
  if (source.windows == nullptr && source.problem.out.column != 1 && source.problem.out.row == 1) {
    return run<matrix>(source.transposed());
  }
  const Candidates candidates = candidates_of(source, matrix);
  const uint64_t fits = fitting(source, matrix);
  TileChoice choice =
      choose_tile(source, candidates.tiles, fits, device_row(source.device).launch_cost);
  // A forced tile that isn't there.
  if (choice.index < 0) choice.index = std::countr_zero(fits);
  const SubgroupShape& s = candidates.shapes[static_cast<size_t>(choice.index)];
  // A device without such instructions gets here where TORCH_OCL_GEMM says so, and does without.
  const bool emulated = matrix && source.device.properties().subgroup_matrix_size == 0;
  run_tiles(family, source, s.tile, choice.splits,
            {{"WM", s.rows},
             {"WN", s.columns},
             {"SIZE", s.size},
             {"FRAGMENTS", static_cast<int>(matrix ? kIntel : kBroadcast)},
             {"EMULATED", emulated},
             large_registers(source.device, registers_of(source, s))});
}

template <bool matrix>
std::vector<Variation> vary(const Plan& plan, int stage) {
  return vary_tile(plan, candidates_of(plan, matrix).tiles, fitting(plan, matrix), stage);
}

}  // namespace

const Implementation subgroup_matrix{"subgroup_matrix", refuse<true>, run<true>, vary<true>};
const Implementation subgroup{"subgroup", refuse<false>, run<false>, vary<false>};

}  // namespace ocl::gemm
