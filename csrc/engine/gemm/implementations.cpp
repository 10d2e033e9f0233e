// The matrix products there are, and in which order each kind of device tries them. Besides its own
// two files, an added kernel touches this one, and the declarations in plan.h.
#include <span>

#include "engine/gemm/plan.h"

namespace ocl::gemm {

namespace {

constexpr const Product* kOnCpu[] = {&small,          &skinny_axpy, &skinny_dot, &k_blocking,
                                     &bfloat16_parts, &packed,      &direct};

constexpr const Product* kOnGpu[] = {&group_axpy,      &group_dot,   &bfloat16_parts,
                                     &bfloat16_planes, &tensor_core, &tensor_core_f64,
                                     &tiled,           &packed,      &direct};
// Where a kernel can ask for sub-groups of a size, on Intel's GPUs.
constexpr const Product* kOnSubgroupGpu[] = {&group_axpy, &group_dot, &subgroup,
                                             &tiled,      &packed,    &direct};
constexpr const Product* kOnMatrixGpu[] = {&group_axpy,      &group_dot, &bfloat16_parts,
                                           &subgroup_matrix, &subgroup,  &tiled,
                                           &packed,          &direct};
constexpr const Product* kAll[] = {
    &small,           &skinny_axpy,    &skinny_dot,      &group_axpy,  &group_dot,
    &k_blocking,      &bfloat16_parts, &bfloat16_planes, &tensor_core, &tensor_core_f64,
    &subgroup_matrix, &subgroup,       &tiled,           &packed,      &direct};

constexpr const Product* kAllOfWindows[] = {&tensor_core, &subgroup_matrix, &tiled};
constexpr const Product* kOfWindows[] = {&tensor_core, &tiled};

}  // namespace

Engine engine{"gemm", kAll};

std::span<const Product* const> products(const Device& device) {
  if (device.is_cpu()) return kOnCpu;
  const DeviceProperties& p = device.properties();
  // A CPU that plays a GPU may have such sub-groups, but it is to run what most GPUs do.
  if (p.device_class != DeviceClass::gpu) return kOnGpu;
  if (p.subgroup_matrix_size != 0) return kOnMatrixGpu;
  if (p.required_sub_group_sizes != 0) return kOnSubgroupGpu;
  return kOnGpu;
}

std::span<const Product* const> all_products() { return kAll; }

std::span<const Product* const> products_of_windows(const Device& device) {
  if (device.properties().subgroup_matrix_size != 0) return kAllOfWindows;
  return kOfWindows;
}

std::span<const Product* const> all_products_of_windows() { return kAllOfWindows; }

}  // namespace ocl::gemm
