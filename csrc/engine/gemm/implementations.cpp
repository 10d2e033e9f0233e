// The implementations there are, and in which order each kind of device tries them. Besides its own
// two files, an added implementation touches this one, and the declarations in plan.h.
#include <c10/util/Exception.h>

#include <span>
#include <string>

#include "engine/dispatch.h"
#include "engine/gemm/fragments.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "engine/tuner/tuner.h"

namespace ocl::gemm {

namespace {

constexpr const Implementation* kOnCpu[] = {&small,          &skinny_axpy, &skinny_dot, &k_blocking,
                                            &bfloat16_parts, &packed,      &direct};

constexpr const Implementation* kOnGpu[] = {&group_axpy, &group_dot,   &bfloat16_parts,
                                            &bfloat16x3, &tensor_core, &tensor_core_f64,
                                            &tiled,      &packed,      &direct};
// Where a kernel can ask for sub-groups of a size, on Intel's GPUs.
constexpr const Implementation* kOnSubgroupGpu[] = {&group_axpy, &group_dot, &subgroup,
                                                    &tiled,      &packed,    &direct};
constexpr const Implementation* kOnMatrixGpu[] = {&group_axpy,      &group_dot, &bfloat16_parts,
                                                  &subgroup_matrix, &subgroup,  &tiled,
                                                  &packed,          &direct};
// AMD's GPUs, by their own driver.
constexpr const Implementation* kOnWaveGpu[] = {
    &group_axpy, &group_dot, &bfloat16_parts, &wave_matrix, &tiled, &packed, &direct};
constexpr const Implementation* kAll[] = {
    &small,          &skinny_axpy, &skinny_dot,  &group_axpy,      &group_dot,       &k_blocking,
    &bfloat16_parts, &bfloat16x3,  &tensor_core, &tensor_core_f64, &subgroup_matrix, &subgroup,
    &wave_matrix,    &tiled,       &packed,      &direct};

constexpr const Implementation* kAllOfWindows[] = {&tensor_core, &subgroup_matrix, &wave_matrix,
                                                   &tiled};
constexpr const Implementation* kOfWindows[] = {&tensor_core, &tiled};
constexpr const Implementation* kOfWindowsOnMatrixGpu[] = {&subgroup_matrix, &tiled};
constexpr const Implementation* kOfWindowsOnWaveGpu[] = {&wave_matrix, &tiled};

// Operands that are bfloat16x3's parts.
constexpr const Implementation* kOfParts[] = {&tensor_core};

// The columns of b lie in several tensors.
constexpr const Implementation* kOfPieces[] = {&skinny_dot, &group_dot};

std::string describe(const Plan& plan) {
  const Arguments& p = plan.problem;
  return "gemm " + std::to_string(p.batch) + "x" + std::to_string(p.m) + "x" + std::to_string(p.n) +
         "x" + std::to_string(p.k) + " " + plan.a_tag + "," + plan.b_tag + "->" + plan.out_tag +
         (plan.windows != nullptr ? ", windows" : "") + (plan.pieces != nullptr ? ", pieces" : "") +
         (plan.exact_terms > 1 ? ", bfloat16x3" : "");
}

void run_listed(const Plan& plan) {
  const bool runs = plan.windows != nullptr
                        ? run_first(engine, kAllOfWindows, implementations_of_windows(plan.device),
                                    plan, describe)
                    : plan.exact_terms > 1
                        ? run_first(engine, kOfParts, plan, describe)
                        : run_first(engine, kAll, implementations(plan.device), plan, describe);
  TORCH_INTERNAL_ASSERT(runs, "no kernel takes ", describe(plan));
}

}  // namespace

Engine engine{"gemm", kAll};

std::span<const Implementation* const> implementations(const Device& device) {
  if (device.is_cpu()) return kOnCpu;
  const DeviceProperties& p = device.properties();
  // A CPU that plays a GPU may have such sub-groups, but it is to run what most GPUs do.
  if (p.device_class != DeviceClass::gpu) return kOnGpu;
  if (p.subgroup_matrix_size != 0) return kOnMatrixGpu;
  if (p.required_sub_group_sizes != 0) return kOnSubgroupGpu;
  if (amd_target(device) != 0) return kOnWaveGpu;
  return kOnGpu;
}

std::span<const Implementation* const> implementations_of_windows(const Device& device) {
  const DeviceProperties& p = device.properties();
  if (p.subgroup_matrix_size != 0) return kOfWindowsOnMatrixGpu;
  if (amd_target(device) != 0) return kOfWindowsOnWaveGpu;
  return kOfWindows;
}

std::span<const Implementation* const> all_implementations_of_windows() { return kAllOfWindows; }

void run_plan(const Plan& plan) {
  const DispatchBlock block(engine);  // some choose again
  // A packed operand is for that kernel alone, small as the product may be.
  if (plan.b_packed) {
    if (dispatch_is_traced()) trace_dispatch(engine, describe(plan) + ": packed runs");
    packed.run(plan);
    return;
  }
  if (plan.windows != nullptr) return run_listed(plan);
  check_forced_tile();
  if (__builtin_expect(tuner::epoch() != 0, 0) && engine.forced() == nullptr &&
      plan.rounded_terms == 0 && run_tuned(plan)) {
    return;
  }
  run_listed(plan);
}

bool run_plan_of_pieces(const Plan& plan) {
  const DispatchBlock block(engine);
  // One that is left out isn't needed: the caller has a product for each piece.
  for (const Implementation* one : kOfPieces) {
    if (!accepts(engine, *one, plan, describe)) continue;
    one->run(plan);
    return true;
  }
  return false;
}

void run_again(const Plan& plan) {
  const DispatchBlock block(engine);
  run_listed(plan);
}

}  // namespace ocl::gemm
