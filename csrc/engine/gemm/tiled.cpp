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
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

using Candidates = TileCandidates<TiledShape>;

Candidates candidates_of(const Plan& plan) {
  if (plan.complex)
    return plan.compute_size == 8 ? Candidates(kTiledComplex8) : Candidates(kTiledComplex16);
  return plan.compute_size == 8 ? Candidates(kTiled8) : Candidates(kTiled4);
}

/// A bit for each shape that the device has the memory for.
uint64_t fitting(const Plan& plan, std::span<const TiledShape> shapes) {
  const DeviceProperties& properties = plan.device.properties();
  uint64_t fits = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const TiledShape& s = shapes[i];
    const size_t lines = static_cast<size_t>(s.tile.m + s.tile.n + 2 * s.run);
    const size_t local = 2 * static_cast<size_t>(s.tile.k) * lines * plan.compute_size;
    const size_t values = static_cast<size_t>(s.rows * s.columns + s.rows + s.columns);
    const size_t registers = values * plan.compute_size / 4 + 16;
    if (local <= properties.local_memory &&
        static_cast<size_t>(s.tile.items) <= properties.max_work_group_size &&
        (registers <= properties.registers_per_item || i + 1 == shapes.size())) {
      fits |= uint64_t{1} << i;
    }
  }
  return fits;
}

const char* refuse_tiled(const Plan& plan) {
  if (plan.plane_terms > 1) return "operands lie in planes";
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
             {"OUT_WIDTH", store_width(source)}});
}

std::vector<Variation> vary_tiled(const Plan& plan, int stage) {
  const Candidates candidates = candidates_of(plan);
  return vary_tile(plan, candidates.tiles, fitting(plan, candidates.shapes), stage);
}

}  // namespace

const Method tiled{"tiled", refuse_tiled, run_tiled, vary_tiled};

}  // namespace ocl::gemm
