// Products that take every dtype and stride: tiles in local memory for GPUs, and the kernel without
// any blocking that everything else falls back to.
#include <algorithm>
#include <array>

#include "engine/gemm_plan.h"

namespace ocl {

namespace {

const char* refuse_tiled(const GemmPlan& plan) {
  const TiledParameters& parameters = plan.parameters.tiled;
  const size_t depth = static_cast<size_t>(parameters.tk) * plan.compute_size;
  const size_t rows = static_cast<size_t>(parameters.lm) * parameters.tm + 1;
  const size_t columns = static_cast<size_t>(parameters.ln) * parameters.tn + 1;
  if ((rows + columns) * depth > plan.device.properties().local_memory) {
    return "the tiles exceed the local memory";
  }
  if (static_cast<size_t>(parameters.lm) * parameters.ln >
      plan.device.properties().max_work_group_size) {
    return "the work-group exceeds the device's";
  }
  return nullptr;
}

void run_tiled(const GemmPlan& source) {
  static const KernelFamily family{"gemm/tiled.cl", "gemm_tiled"};
  GemmPlan plan = source;
  const TiledParameters& parameters = plan.parameters.tiled;
  GemmProblem& p = plan.problem;
  const size_t rows = static_cast<size_t>(parameters.lm) * parameters.tm;
  const size_t columns = static_cast<size_t>(parameters.ln) * parameters.tn;
  const size_t groups_m = (p.m + rows - 1) / rows, groups_n = (p.n + columns - 1) / columns;
  split_k(p, groups_m * groups_n * p.batch, plan.device.properties().compute_units * 2, 512,
          parameters.tk);
  const Workspace sums(split_bytes(plan));
  const std::array<Define, 5> defines{{{"LM", parameters.lm},
                                       {"LN", parameters.ln},
                                       {"TM", parameters.tm},
                                       {"TN", parameters.tn},
                                       {"TK", parameters.tk}}};
  const size_t lm = parameters.lm, ln = parameters.ln;
  launch_gemm(
      gemm_kernel(family, plan, defines), plan,
      NDRange::volume({groups_n * ln, groups_m * lm, size_t{p.batch} * p.splits}, {ln, lm, 1}),
      sums.data());
  finish_split(plan, sums.data());
}

const char* refuse_direct(const GemmPlan&) { return nullptr; }

void run_direct(const GemmPlan& plan) {
  static const KernelFamily family{"gemm/direct.cl", "gemm_direct"};
  const GemmProblem& p = plan.problem;
  const bool cpu = plan.device.is_cpu();
  const size_t local = p.n >= 16 ? 16 : p.n >= 4 ? 4 : 1;
  launch_gemm(gemm_kernel(family, plan), plan,
              NDRange::volume({p.n, p.m, p.batch}, {local, cpu ? 1u : 4u, 1}));
}

}  // namespace

const GemmImplementation gemm_tiled{"tiled", refuse_tiled, run_tiled};
const GemmImplementation gemm_direct{"direct", refuse_direct, run_direct};

}  // namespace ocl
