// Products in double precision by NVIDIA's tensor cores (kernels/gemm/tensor_core_f64.cl).
#include <cstring>

#include "engine/device_table.h"
#include "engine/device_tiles.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

const char* refuse(const Plan& plan) {
  if (!plan.device.properties().has_tensor_cores) return "the device has no tensor cores of NVIDIA";
  if (std::strcmp(plan.compute_tag, "f64") != 0) return "not double precision";
  return nullptr;
}

void run(const Plan& source) {
  static const KernelFamily family{"gemm/tensor_core_f64.cl", "gemm_tensor_core_f64"};
  if (source.problem.out.column != 1 && source.problem.out.row == 1) {
    return run(source.transposed());
  }
  constexpr uint64_t kAll = (uint64_t{1} << kTensorCoreF64.shapes.size()) - 1;
  TileChoice choice =
      choose_tile(source, kTensorCoreF64.tiles, kAll, device_row(source.device).f64_launch_cost);
  if (choice.index < 0) choice.index = 0;
  const TensorCoreF64Shape& s = kTensorCoreF64.shapes[static_cast<size_t>(choice.index)];
  // Compute capability 9.0 has a larger instruction.
  const int depth = source.device.properties().has_warpgroup_mma ? 8 : 4;
  run_tiles(family, source, s.tile, choice.splits,
            {{"WM", s.warp_m}, {"WN", s.warp_n}, {"MMA_K", depth}});
}

std::vector<Variation> vary(const Plan& plan, int stage) {
  constexpr uint64_t kAll = (uint64_t{1} << kTensorCoreF64.shapes.size()) - 1;
  return vary_tile(plan, kTensorCoreF64.tiles, kAll, stage);
}

}  // namespace

const Implementation tensor_core_f64{"tensor_core_f64", refuse, run, vary};

}  // namespace ocl::gemm
