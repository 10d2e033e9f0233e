#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/vision/sums.h"

#include <ATen/Context.h>

#include <string>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "opencl/platform.h"

namespace ocl::vision {

namespace {

struct Plan {
  const char* op;
  const at::Tensor& sums;
  bool scatters = false;
};

/// A CPU's cores have planes enough.
constexpr Implementation<Plan> by_scatter{
    "scatter",
    [](const Plan& plan) -> const char* {
      const Device& device = ocl::device(plan.sums.device().index());
      if (device.is_cpu()) return "a kernel for GPUs";
      if (plan.sums.scalar_type() != at::kFloat && !device.properties().has_int64_atomics) {
        return "no atomics on 64 bits";
      }
      return at::globalContext().deterministicAlgorithms() ? "sums in any order" : nullptr;
    },
    [](Plan& plan) { plan.scatters = true; }};
constexpr Implementation<Plan> by_planes{"planes",
                                         [](const Plan&) -> const char* { return nullptr; },
                                         [](Plan& plan) { plan.scatters = false; }};
constexpr const Implementation<Plan>* kGradients[] = {&by_scatter, &by_planes};
const Engine engine{"backward_vision", kGradients};

std::string describe(const Plan& plan) {
  std::string line = std::string("backward_vision ") + plan.op;
  for (int64_t d = 0; d < plan.sums.dim(); ++d) {
    line += (d == 0 ? " " : "x") + std::to_string(plan.sums.size(d));
  }
  return line + " " + tag(plan.sums.scalar_type());
}

}  // namespace

bool adds_by_scatter(const char* op, const at::Tensor& sums) {
  Plan plan{op, sums};
  run_first(engine, kGradients, plan, describe);
  return plan.scatters;
}

}  // namespace ocl::vision
