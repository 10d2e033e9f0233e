// The matrix products there are, and in which order each kind of device tries them. Besides its own
// two files, an added kernel touches this one, and the declarations in plan.h.
#include <span>

#include "engine/gemm/plan.h"

namespace ocl {

namespace {

constexpr const GemmImplementation* kOnCpu[] = {&gemm_small, &gemm_skinny, &gemm_blocks,
                                                &gemm_packed, &gemm_direct};

constexpr const GemmImplementation* kOnGpu[] = {&gemm_skinny,          &gemm_tensor_core,
                                                &gemm_tensor_core_f64, &gemm_tiled,
                                                &gemm_packed,          &gemm_direct};
// Where a kernel can ask for sub-groups of a size, on Intel's GPUs.
constexpr const GemmImplementation* kOnSubgroupGpu[] = {&gemm_skinny, &gemm_subgroup, &gemm_tiled,
                                                        &gemm_packed, &gemm_direct};
constexpr const GemmImplementation* kOnMatrixGpu[] = {
    &gemm_skinny, &gemm_subgroup_matrix, &gemm_subgroup, &gemm_tiled, &gemm_packed, &gemm_direct};
constexpr const GemmImplementation* kAll[] = {
    &gemm_small,           &gemm_skinny,   &gemm_blocks, &gemm_tensor_core, &gemm_tensor_core_f64,
    &gemm_subgroup_matrix, &gemm_subgroup, &gemm_tiled,  &gemm_packed,      &gemm_direct};

}  // namespace

Engine gemm_engine{"gemm", kAll};

std::span<const GemmImplementation* const> gemm_implementations(const Device& device) {
  if (device.is_cpu()) return kOnCpu;
  const DeviceProperties& p = device.properties();
  // A CPU that plays a GPU may have such sub-groups, but it is to run what most GPUs do.
  if (p.device_class != DeviceClass::gpu) return kOnGpu;
  if (p.subgroup_matrix_size != 0) return kOnMatrixGpu;
  if (p.required_sub_group_sizes != 0) return kOnSubgroupGpu;
  return kOnGpu;
}

std::span<const GemmImplementation* const> all_gemm_implementations() { return kAll; }

}  // namespace ocl
