#include "engine/gemm/split_k.h"

#include <algorithm>
#include <array>

#include "engine/device_table.h"
#include "engine/gemm/launch.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

void split_k(Arguments& problem, int64_t items, int64_t target, int64_t least, int64_t multiple) {
  const int64_t k = problem.k;
  int64_t splits = std::min(target / std::max<int64_t>(1, items), k / least);
  if (splits <= 1) return;
  const int64_t part = round_up(ceil_div(k, splits), multiple);
  splits = ceil_div(k, part);
  problem.splits = static_cast<uint32_t>(splits);
  problem.split_k = static_cast<uint32_t>(part);
}

size_t split_bytes(const Plan& plan) {
  const Arguments& p = plan.problem;
  if (p.splits <= 1 && (p.flags & kKeepSums) == 0) return 0;
  return static_cast<size_t>(p.splits) * p.batch * p.m * p.n * plan.compute_size;
}

void finish_split(const Plan& source, const void* sums) {
  static const KernelFamily family{"gemm/split_k.cl", "gemm_split_k"};
  static const KernelFamily group_family{"gemm/split_k_group.cl", "gemm_split_k_group"};
  if (source.problem.splits <= 1 && (source.problem.flags & kKeepSums) == 0) return;
  Plan plan = source;
  plan.pieces = nullptr;  // sums don't lie in them
  const Arguments& p = plan.problem;
  if (plan.epilogue != nullptr && plan.epilogue->lanes > 1) {
    const bool turned = (p.flags & kTransposed) != 0;
    const size_t rows = turned ? p.n : p.m, columns = turned ? p.m : p.n;
    const size_t vectors = ceil_div(columns, static_cast<size_t>(plan.epilogue->lanes));
    constexpr size_t kLocal = 32;  // a work-group costs as much as many work-items
    launch_gemm(get_kernel(family, plan), plan,
                NDRange::grid(rows * vectors, p.batch, std::min(rows * vectors, kLocal), 1), sums);
    return;
  }
  const size_t elements = static_cast<size_t>(p.m) * p.n;
  // Loads of one work-item after another would take a GPU as long as much of a dot product.
  constexpr size_t kFewElements = 64, kManyParts = 8;
  if (!plan.device.is_cpu() && p.splits >= kManyParts && elements * p.batch <= kFewElements) {
    const size_t group = group_of_rows(plan.device);
    const std::array<Define, 1> defines{{{"LOCAL", group}}};
    launch_gemm(get_kernel(group_family, plan, defines), plan,
                NDRange::grid(elements * group, p.batch, group, 1), sums);
    return;
  }
  const size_t local =
      plan.device.is_cpu() ? group_of_lanes(plan.device) : group_of_rows(plan.device);
  launch_gemm(get_kernel(family, plan), plan, NDRange::grid(elements, p.batch, local, 1), sums);
}

}  // namespace ocl::gemm
