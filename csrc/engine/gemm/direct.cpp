// The product without any blocking that everything else falls back to: every dtype and stride, one
// element per work-item.
#include "engine/gemm/launch.h"
#include "engine/gemm/plan.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

const char* refuse_direct(const Plan&) { return nullptr; }

void run_direct(const Plan& plan) {
  static const KernelFamily family{"gemm/direct.cl", "gemm_direct"};
  const Arguments& p = plan.problem;
  const bool cpu = plan.device.is_cpu();
  const size_t local = p.n >= 16 ? 16 : p.n >= 4 ? 4 : 1;
  launch_gemm(get_kernel(family, plan), plan,
              NDRange::volume({p.n, p.m, p.batch}, {local, cpu ? 1u : 4u, 1}));
}

}  // namespace

const Implementation direct{"direct", refuse_direct, run_direct};

}  // namespace ocl::gemm
