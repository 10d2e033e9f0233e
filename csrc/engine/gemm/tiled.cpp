// Products of every dtype and stride by tiles in local memory, for GPUs.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "engine/device_table.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

/// A shape, the sums of a work-item: rows x columns, in runs of `run` elements (16 bytes), and the
/// work-items that share them.
struct TiledShape {
  TileShape tile;
  int rows, columns, run, slices;
};

constexpr TiledShape shape(int m, int n, int k, int rows, int columns, int run, float efficiency,
                           int slices = 1) {
  return {{m, n, k, m * n / (rows * columns) * slices, efficiency}, rows, columns, run, slices};
}

// Efficiencies as measured on an NVIDIA H200 in float32 (44 TFLOP/s is 1) and float64.
constexpr auto kShapes4 =
    shape_table(shape(256, 128, 8, 16, 8, 4, 1.24F), shape(128, 128, 8, 16, 8, 4, 1.20F),
                shape(64, 128, 8, 16, 8, 4, 1.20F), shape(64, 128, 16, 8, 8, 4, 1.18F, 2),
                shape(64, 64, 32, 8, 8, 4, 1.03F, 4), shape(64, 64, 16, 8, 4, 4, 1.03F),
                shape(32, 64, 32, 4, 8, 4, 0.83F, 4), shape(128, 16, 16, 8, 4, 4, 0.64F),
                shape(32, 32, 32, 4, 4, 4, 0.73F), shape(32, 32, 8, 4, 4, 4, 0.60F));
constexpr auto kShapes8 =
    shape_table(shape(64, 128, 8, 8, 8, 2, 1.00F), shape(64, 64, 8, 8, 8, 2, 0.96F),
                shape(64, 64, 8, 8, 4, 2, 0.86F), shape(64, 64, 8, 4, 4, 2, 0.72F),
                shape(32, 32, 8, 4, 4, 2, 0.60F));
constexpr auto kShapesComplex8 =
    shape_table(shape(64, 64, 8, 4, 4, 1, 1.00F), shape(32, 32, 8, 4, 2, 1, 0.70F));
constexpr auto kShapesComplex16 =
    shape_table(shape(32, 32, 8, 4, 2, 1, 1.00F), shape(16, 16, 8, 2, 2, 1, 0.60F));

using Candidates = TileCandidates<TiledShape>;

Candidates candidates_of(const Plan& plan) {
  if (plan.complex)
    return plan.compute_size == 8 ? Candidates(kShapesComplex8) : Candidates(kShapesComplex16);
  return plan.compute_size == 8 ? Candidates(kShapes8) : Candidates(kShapes4);
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
  const bool takes = !plan.complex && std::strcmp(plan.out_tag, plan.compute_tag) == 0 &&
                     p.n % static_cast<uint32_t>(width) == 0 && wide(plan.out, p.out) &&
                     ((p.flags & kAddend) == 0 || wide(plan.c, p.c));
  return takes ? width : 1;
}

void run_tiled(const Plan& source) {
  static const KernelFamily family{"gemm/tiled.cl", "gemm_tiled"};
  // The epilogue's neighbouring work-items store along a row.
  if (source.problem.out.column != 1 && source.problem.out.row == 1) {
    return run_tiled(source.transposed());
  }
  const Candidates candidates = candidates_of(source);
  const uint64_t fits = fitting(source, candidates.shapes);
  TileChoice choice =
      choose_tile(source, candidates.tiles, fits, device_row(source.device).launch_cost);
  // A forced tile that isn't there.
  if (choice.index < 0) choice.index = std::countr_zero(fits);
  const TiledShape& s = candidates.shapes[static_cast<size_t>(choice.index)];
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

const Product tiled{"tiled", refuse_tiled, run_tiled, vary_tiled};

}  // namespace ocl::gemm
