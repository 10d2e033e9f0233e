// Products in double precision by NVIDIA's tensor cores (kernels/gemm/tensor_core_f64.cl).
#include <cstring>

#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

constexpr double kLaunchCost = 1.0e6;  // about 5 us of an H200's compute unit

/// Each warp takes warp_m x warp_n of the tile's sums.
struct DoubleShape {
  TileShape tile;
  int warp_m, warp_n;
};

constexpr DoubleShape shape(int m, int n, int k, int warp_m, int warp_n, float efficiency) {
  return {{m, n, k, m / warp_m * (n / warp_n) * 32, efficiency}, warp_m, warp_n};
}

// Efficiencies as measured on an NVIDIA H200 (45 TFLOP/s is 1).
constexpr auto kShapes = shape_table(shape(128, 128, 8, 32, 64, 0.90F),  //
                                     shape(64, 128, 8, 32, 64, 1.00F),   //
                                     shape(64, 64, 16, 32, 32, 0.92F),   //
                                     shape(32, 64, 16, 16, 32, 0.75F),   //
                                     shape(32, 32, 16, 16, 16, 0.50F));

const char* refuse(const Plan& plan) {
  if (!plan.device.properties().has_tensor_cores) return "the device has none of NVIDIA's";
  if (std::strcmp(plan.compute_tag, "f64") != 0) return "not double precision";
  return nullptr;
}

void run(const Plan& source) {
  static const KernelFamily family{"gemm/tensor_core_f64.cl", "gemm_tensor_core_f64"};
  if (source.problem.out.column != 1 && source.problem.out.row == 1) {
    return run(source.transposed());
  }
  constexpr uint64_t kAll = (uint64_t{1} << kShapes.shapes.size()) - 1;
  TileChoice choice = choose_tile(source, kShapes.tiles, kAll, kLaunchCost);
  if (choice.index < 0) choice.index = 0;
  const DoubleShape& s = kShapes.shapes[static_cast<size_t>(choice.index)];
  // Compute capability 9.0 has a larger instruction.
  const int depth = source.device.properties().has_warpgroup_mma ? 8 : 4;
  run_tiles(family, source, s.tile, choice.splits,
            {{"WM", s.warp_m}, {"WN", s.warp_n}, {"MMA_K", depth}});
}

std::vector<Variation> vary(const Plan& plan, int stage) {
  constexpr uint64_t kAll = (uint64_t{1} << kShapes.shapes.size()) - 1;
  return vary_tile(plan, kShapes.tiles, kAll, stage);
}

}  // namespace

const Product tensor_core_f64{"tensor_core_f64", refuse, run, vary};

}  // namespace ocl::gemm
