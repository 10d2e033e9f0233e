// Products of every dtype and stride by tiles in local memory, for GPUs.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "engine/device_table.h"
#include "engine/device_tiles.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "engine/occupancy.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

using Candidates = TileCandidates<TiledShape>;

Candidates candidates_of(const Plan& plan) {
  if (plan.complex)
    return plan.compute_size == 8 ? Candidates(kTiledComplex8) : Candidates(kTiledComplex16);
  if (plan.compute_size == 8) return Candidates(kTiled8);
  return device_row(plan.device).hardware.wanted_items > 0 ? Candidates(kTiledWaves4)
                                                           : Candidates(kTiled4);
}

int64_t registers_of(const Plan& plan, const TiledShape& s) {
  return tile_registers(s.rows * s.columns, s.rows + s.columns, plan.compute_size);
}

/// A bit for each shape that the device has the registers and the memory for.
uint64_t fitting(const Plan& plan, std::span<const TiledShape> shapes) {
  return best_occupied(plan.device, shapes, [&](const TiledShape& s) -> GroupNeed {
    const int64_t lines = s.tile.m + s.tile.n + 2 * s.run;
    return {registers_of(plan, s), s.tile.items,
            2 * s.tile.k * lines * static_cast<int64_t>(plan.compute_size)};
  });
}

const char* refuse_tiled(const Plan& plan) {
  if (plan.exact_terms > 1) return "operands are bfloat16x3's parts";
  return fitting(plan, candidates_of(plan).shapes) == 0
             ? "its tiles exceed the local memory or the largest work-group"
             : nullptr;
}

/// Elements per store of the result, which then is what the kernel computes with.
int store_width(const Plan& plan) {
  const Arguments& p = plan.problem;
  const int width = static_cast<int>(16 / plan.compute_size);
  const auto wide = [&](const char* data, const Strides& s) {
    return s.column == 1 && reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
           s.row % static_cast<uint64_t>(width) == 0 && s.batch % static_cast<uint64_t>(width) == 0;
  };
  const bool takes = !plan.complex && plan.epilogue == nullptr &&
                     std::strcmp(plan.out_tag, plan.compute_tag) == 0 &&
                     p.n % static_cast<uint32_t>(width) == 0 && wide(plan.out, p.out) &&
                     ((p.flags & kAddend) == 0 || wide(plan.c, p.c));
  const bool rows =
      plan.windows == nullptr || plan.windows->rows_are_multiples(static_cast<uint64_t>(width));
  return takes && rows ? width : 1;
}

void run_tiled(const Plan& source) {
  static const KernelFamily family{"gemm/tiled.cl", "gemm_tiled"};
  // The epilogue's neighbouring work-items store along a row.
  if (source.windows == nullptr && source.problem.out.column != 1 && source.problem.out.row == 1) {
    return run_tiled(source.transposed());
  }
  const Candidates candidates = candidates_of(source);
  const uint64_t fits = fitting(source, candidates.shapes);
  TileChoice choice = choose_tile(source, candidates.tiles, fits,
                                  device_row(source.device).launch_cost, candidates.model);
  // A forced tile that isn't there.
  if (choice.index < 0) choice.index = std::countr_zero(fits);
  const TiledShape& s = candidates.shapes[static_cast<size_t>(choice.index)];
  if (source.windows != nullptr) {
    const Arguments& p = source.problem;
    const size_t bytes = size_t{p.m} * p.n * p.batch * source.compute_size;
    choice.splits = std::max(choice.splits, least_parts(p.k, bytes));
  }
  run_tiles(family, source, s.tile, choice.splits,
            {{"TM", s.rows},
             {"TN", s.columns},
             {"RUN", s.run},
             {"SLICES", s.slices},
             {"OUT_WIDTH", store_width(source)},
             {"ROLLED", device_row(source.device).hardware.loads_early},
             large_registers(source.device, registers_of(source, s))});
}

std::vector<Variation> vary_tiled(const Plan& plan, int stage) {
  const Candidates candidates = candidates_of(plan);
  return vary_tile(plan, candidates.tiles, fitting(plan, candidates.shapes), stage);
}

}  // namespace

const Implementation tiled{"tiled", refuse_tiled, run_tiled, vary_tiled};

}  // namespace ocl::gemm
