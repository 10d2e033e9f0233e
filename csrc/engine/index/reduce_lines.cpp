// Launches kernels/index/reduce_lines.cl: combining through indices on CPUs where an index serves
// one element.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <algorithm>
#include <limits>

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

bool side_by_side(const Problem& problem, int dimension) {
  const auto element = static_cast<int64_t>(c10::elementSize(problem.index_dtype));
  for (int k = 2; k < problem.operands(); ++k) {
    if (problem.stride[k][dimension] != element) return false;
  }
  return true;
}

}  // namespace

bool reduce_lines(Queue& queue, Problem problem, const Job& job, const Dimensions& columns,
                  const Dimensions& steps) {
  const Device& device = queue.device();
  if (job.skipped != kSkipNothing) return false;
  const int64_t extent = extent_of(job.indexing);
  if (extent > std::numeric_limits<int32_t>::max() / 2) return false;
  const int column = columns.count > 0 ? columns.of[0] : -1;
  const int step = steps.count > 0 ? steps.of[0] : -1;
  const bool steps_nearer = step < 0 || column < 0 ||
                            (problem.stride[1][step] != problem.stride[1][column]
                                 ? problem.stride[1][step] < problem.stride[1][column]
                                 : problem.stride[2][step] <= problem.stride[2][column]);
  const bool by_steps = step >= 0 && problem.size[step] >= kLanes &&
                        (column < 0 || problem.size[column] < kLanes || steps_nearer);
  if (!by_steps && (column < 0 || problem.size[column] < kLanes)) return false;

  const auto units = static_cast<int64_t>(device.properties().compute_units);
  int64_t row = 1, chunk = 1;
  const bool dense = side_by_side(problem, by_steps ? step : column);
  if (!by_steps) {
    row = problem.size[column];
    int64_t others = 1;
    for (int i = 1; i < columns.count; ++i) others *= problem.size[columns.of[i]];
    chunk = std::clamp<int64_t>(row * others / (4 * units) / kLanes * kLanes, kLanes, kMostColumns);
    problem.size[column] = (row + chunk - 1) / chunk;
    for (int k = 0; k < problem.operands(); ++k) problem.stride[k][column] *= chunk;
  }
  int64_t column_count = 1, step_count = 1;
  for (int i = 0; i < columns.count; ++i) column_count *= problem.size[columns.of[i]];
  for (int i = 0; i < steps.count; ++i) step_count *= problem.size[steps.of[i]];
  // Each part walks through all indices of its column.
  const int64_t parts =
      by_steps && step_count >= kLanes * units ? (units + column_count - 1) / column_count : 1;
  if (by_steps) {
    // PART_OF's shift: cache lines, or elements where those are few.
    const auto element = static_cast<int64_t>(c10::elementSize(problem.dtype));
    row = extent >= 64 * 16 * parts ? 6 : element >= 8 ? 3 : element == 4 ? 2 : element - 1;
  }

  const c10::ScalarType compute = compute_dtype(problem.dtype);
  const Define defines[] = {{"NIDX", problem.indices},
                            {"INDEX", tag(problem.index_dtype)},
                            {"WRAP", job.indexing.wrap},
                            {"E", storage_tag(problem.dtype)},
                            {"C", tag(compute)},
                            {"REDUCE", name_of(job.reduction)},
                            {"FILL", job.value != nullptr},
                            {"DENSE_INDEX", dense},
                            {"PARTS", parts > 1},
                            {"NEED_FLOAT8", 1},
                            {"E4M3_ABOVE", e4m3_above()}};
  const size_t of_float8 = c10::isFloat8Type(problem.dtype) ? 0 : 2;
  Kernel& kernel = (by_steps ? steps_family : columns_family)
                       .get(queue.device(), {defines, std::size(defines) - of_float8});
  enqueue_reduce(queue, kernel, problem, job, columns, steps,
                 {column_count, step_count, parts, row, chunk}, 1);
  return true;
}

}  // namespace ocl::index
