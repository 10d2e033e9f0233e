// Launches kernels/index/reduce_lines.cl: combining through indices on CPUs where an index serves
// one element.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <algorithm>
#include <limits>

#include "engine/device_table.h"
#include "engine/index/reduce.h"
#include "opencl/kernel_family.h"

namespace ocl::index {

namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kMostColumns = 64;  // of a work-item: all of their cache lines are used

const KernelFamily steps_family{"index/reduce_lines.cl", "index_reduce_steps"};
const KernelFamily columns_family{"index/reduce_lines.cl", "index_reduce_columns"};

/// Bytes that the index tensors reach, or more than 32 bits hold.
int64_t extent_of(const Indexing& indexing) {
  int64_t extent = 0;
  for (size_t k = 0; k < indexing.sizes.size(); ++k) {
    extent += indexing.sizes[k] * indexing.strides[k];
  }
  return extent;
}

/// Which dimension the lines run along: of the steps, or of the columns.
struct Along {
  bool steps;
  int dimension;
};

/// No dimension (-1) if both are short.
Along find_lines(const ReducePlan& plan) {
  const Problem& problem = plan.problem;
  const int column = plan.columns.count > 0 ? plan.columns.of[0] : -1;
  const int step = plan.steps.count > 0 ? plan.steps.of[0] : -1;
  const bool steps_nearer = step < 0 || column < 0 ||
                            (problem.stride[1][step] != problem.stride[1][column]
                                 ? problem.stride[1][step] < problem.stride[1][column]
                                 : problem.stride[2][step] <= problem.stride[2][column]);
  if (step >= 0 && problem.size[step] >= kLanes &&
      (column < 0 || problem.size[column] < kLanes || steps_nearer)) {
    return {true, step};
  }
  return {false, column >= 0 && problem.size[column] >= kLanes ? column : -1};
}

const char* refuse(const ReducePlan& plan) {
  if (!plan.device().is_cpu()) return "a kernel for CPUs";
  if (plan.job.skipped != kSkipNothing) return "an index value is passed over";
  if (extent_of(plan.job.indexing) > std::numeric_limits<int32_t>::max() / 2) {
    return "offsets past 32 bits";
  }
  return find_lines(plan).dimension < 0 ? "short lines" : nullptr;
}

bool side_by_side(const Problem& problem, int dimension) {
  const auto element = static_cast<int64_t>(c10::elementSize(problem.index_dtype));
  for (int k = 2; k < problem.operands(); ++k) {
    if (problem.stride[k][dimension] != element) return false;
  }
  return true;
}

void run(ReducePlan& plan) {
  Problem problem = plan.problem;
  const Job& job = plan.job;
  const Along along = find_lines(plan);
  const int64_t extent = extent_of(job.indexing);
  const auto units = static_cast<int64_t>(plan.device().properties().compute_units);
  int64_t row = 1, chunk = 1;
  const bool dense = side_by_side(problem, along.dimension);
  if (!along.steps) {
    const int column = along.dimension;
    row = problem.size[column];
    int64_t others = 1;
    for (int i = 1; i < plan.columns.count; ++i) others *= problem.size[plan.columns.of[i]];
    chunk = std::clamp<int64_t>(row * others / items_of_cores(plan.device()) / kLanes * kLanes,
                                kLanes, kMostColumns);
    problem.size[column] = ceil_div(row, chunk);
    for (int k = 0; k < problem.operands(); ++k) problem.stride[k][column] *= chunk;
  }
  ReduceArguments arguments = make_arguments(problem, job, plan.columns, plan.steps);
  // Each part walks through all indices of its column.
  const int64_t parts =
      along.steps && arguments.steps >= kLanes * units ? ceil_div(units, arguments.columns) : 1;
  if (along.steps) {
    // PART_OF's shift: cache lines, or elements where those are few.
    const auto element = static_cast<int64_t>(c10::elementSize(problem.dtype));
    row = extent >= 64 * 16 * parts ? 6 : element >= 8 ? 3 : element == 4 ? 2 : element - 1;
  }
  arguments.parts = static_cast<uint32_t>(parts);
  arguments.row = static_cast<uint32_t>(row);
  arguments.chunk = static_cast<uint32_t>(chunk);

  Kernel& kernel = reduce_kernel(plan, along.steps ? steps_family : columns_family,
                                 {{"DENSE_INDEX", dense}, {"PARTS", parts > 1}});
  enqueue_reduce(plan, kernel, problem, arguments, 1);
}

}  // namespace

const ReduceImplementation reduce_lines{"lines", refuse, run};

}  // namespace ocl::index
