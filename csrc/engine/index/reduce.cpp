// Launches kernels/index/reduce.cl: which dimensions are columns, and how the work is shared out.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/index/reduce.h"

#include <algorithm>

#include "engine/device_table.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::index {

const char* name_of(Reduction reduction) {
  static constexpr const char* kNames[] = {"add", "mul", "amax", "amin", "assign"};
  return kNames[static_cast<int>(reduction)];
}

ReduceArguments make_arguments(const Problem& problem, const Job& job, const Dimensions& columns,
                               const Dimensions& steps) {
  ReduceArguments arguments{};
  put_indices(arguments, job.indexing);
  arguments.skipped = job.skipped;
  arguments.skips = job.skipped != kSkipNothing;
  arguments.column_dims = columns.count;
  arguments.step_dims = steps.count;
  arguments.columns = arguments.steps = 1;
  const int most = problem.max_reduce_dims();
  for (int i = 0; i < columns.count; ++i) {
    arguments.column_size[i] = problem.size[columns.of[i]];
    arguments.columns *= arguments.column_size[i];
  }
  for (int i = 0; i < steps.count; ++i) {
    arguments.step_size[i] = problem.size[steps.of[i]];
    arguments.steps *= arguments.step_size[i];
  }
  for (int k = 0; k < problem.operands(); ++k) {
    uint* stride = arguments.stride + k * 2 * most;
    for (int i = 0; i < columns.count; ++i) stride[i] = problem.stride[k][columns.of[i]];
    for (int i = 0; i < steps.count; ++i) stride[most + i] = problem.stride[k][steps.of[i]];
  }
  return arguments;
}

Kernel& reduce_kernel(const ReducePlan& plan, const KernelFamily& family,
                      std::initializer_list<Define> own) {
  const Problem& problem = plan.problem;
  std::array<Define, 11> defines{{{"NIDX", problem.indices},
                                  {"INDEX", tag(problem.index_dtype)},
                                  {"WRAP", plan.job.indexing.wrap},
                                  {"E", storage_tag(problem.dtype)},
                                  {"C", tag(compute_dtype(problem.dtype))},
                                  {"REDUCE", name_of(plan.job.reduction)},
                                  {"FILL", plan.job.value != nullptr}}};
  auto end = std::copy(own.begin(), own.end(), defines.begin() + 7);
  if (c10::isFloat8Type(problem.dtype)) {
    *end++ = {"NEED_FLOAT8", 1};
    *end++ = {"E4M3_ABOVE", e4m3_above()};
  }
  return family.get(plan.device(), std::span<const Define>(defines.begin(), end));
}

void enqueue_reduce(const ReducePlan& plan, Kernel& kernel, const Problem& problem,
                    const ReduceArguments& arguments, size_t local) {
  static constexpr unsigned char kUnused[16] = {};
  const Job& job = plan.job;
  const int64_t elements =
      int64_t{arguments.columns} * arguments.steps * std::max<int64_t>(1, arguments.chunk);
  launch(kernel, plan.queue,
         NDRange::grid(arguments.columns, arguments.parts, local, 1).of_work(kLookup * elements),
         problem.pointers(), used_part(arguments, problem), plan.device().asserts().mem(),
         job.indexing.site.id(),
         Bytes{job.value ? job.value->bytes : kUnused,
               c10::elementSize(compute_dtype(problem.dtype))});
}

namespace {

constexpr int64_t kMinRow = 8;
constexpr size_t kVectorBytes = 32;
// A chunk of a row should fill a few cache lines, which a look-up then pays for.
constexpr size_t kMinChunkBytes = 256;

const KernelFamily reduce_family{"index/reduce.cl", "index_reduce"};

/// Enough work-items to fill the device: each scans all indices, so not many more.
size_t work_items(const Device& device) {
  return static_cast<size_t>(device.is_cpu() ? items_of_cores(device) : items_of_units(device) / 2);
}

/// The column dimension in which neighbours are contiguous and share their indices, or -1.
int find_row(const ReducePlan& plan) {
  const Problem& problem = plan.problem;
  const int64_t element = c10::elementSize(problem.dtype);
  for (int i = 0; i < plan.columns.count; ++i) {
    const int d = plan.columns.of[i];
    bool row = problem.size[d] >= kMinRow && problem.stride[0][d] == element &&
               (plan.job.value || problem.stride[1][d] == element);
    for (int k = 2; row && k < problem.operands(); ++k) row = problem.stride[k][d] == 0;
    if (row) return i;
  }
  return -1;
}

const char* refuse_rows(const ReducePlan& plan) {
  if (!plan.device().is_cpu()) return "a kernel for CPUs";
  if (c10::isComplexType(plan.problem.dtype)) return "complex numbers";
  return find_row(plan) < 0 ? "no rows that share an index" : nullptr;
}

/// `row`: of the column dimensions the one whose elements are taken as vectors; -1: none.
void run_owners(const ReducePlan& plan, int row) {
  Problem problem = plan.problem;
  Dimensions columns = plan.columns;
  const Job& job = plan.job;
  const Device& device = plan.device();
  const c10::ScalarType compute = compute_dtype(problem.dtype);
  size_t width = 1, chunk = 1;
  uint32_t row_size = 1;
  if (row >= 0) {
    // The row is decoded first, in chunks.
    std::swap(columns.of[0], columns.of[row]);
    const int d = columns.of[0];
    width = std::min<size_t>(16, kVectorBytes / c10::elementSize(compute));
    row_size = static_cast<uint32_t>(problem.size[d]);
    // Two chunks per core if they stay that large: all of a row's indices may be the same.
    const size_t cores = device.properties().compute_units;
    chunk = std::max(kMinChunkBytes / c10::elementSize(compute), row_size / (2 * cores));
    chunk = round_up(chunk, width);
    problem.size[d] = ceil_div(problem.size[d], static_cast<int64_t>(chunk));
    problem.stride[0][d] *= chunk;
    problem.stride[1][d] *= chunk;
  }
  ReduceArguments arguments = make_arguments(problem, job, columns, plan.steps);
  arguments.parts = static_cast<uint32_t>(
      std::clamp<size_t>(work_items(device) / arguments.columns, 1, arguments.steps));
  arguments.row = row_size;
  arguments.chunk = static_cast<uint32_t>(chunk);

  Kernel& kernel = reduce_kernel(plan, reduce_family, {{"WIDTH", width}});
  // With few columns a larger work-group would leave compute units idle.
  const size_t local = arguments.columns >= 16 * work_items(device) ? 16 : 1;
  enqueue_reduce(plan, kernel, problem, arguments, local);
}

std::string describe(const ReducePlan& plan) {
  return describe(name_of(plan.job.reduction), plan.problem);
}

constexpr const ReduceImplementation* kReductions[] = {&reduce_sorted, &reduce_rows, &reduce_lines,
                                                       &reduce_elements};

/// Loops over the dimensions past Problem::max_reduce_dims() of either kind, then launches.
void for_slices(Queue& queue, Problem& problem, const Job& job, Dimensions& columns,
                Dimensions& steps) {
  const int most = problem.max_reduce_dims();
  Dimensions& longer = steps.count > most ? steps : columns;
  if (longer.count <= most) {
    ReducePlan plan{queue, problem, job, columns, steps};
    run_first(engine, kReductions, plan, [](const ReducePlan& plan) { return describe(plan); });
    return;
  }
  const int d = longer.of[--longer.count];
  const auto data = problem.data;
  for (int64_t i = 0; i < problem.size[d]; ++i) {
    for_slices(queue, problem, job, columns, steps);
    for (int k = 0; k < problem.operands(); ++k) {
      if (problem.data[k]) problem.data[k] += problem.stride[k][d];
    }
  }
  problem.data = data;
  ++longer.count;
}

void run(at::TensorIteratorBase& iter, const Job& job) {
  if (iter.numel() == 0) return;
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) run(part, job);
    return;
  }
  Problem problem(iter, job.indexing, job.value ? Problem::no_other : Problem::indexed_first);
  Dimensions columns, steps;
  for (int d = 0; d < problem.dims; ++d) (problem.stride[0][d] != 0 ? columns : steps).add(d);
  const bool float8 = c10::isFloat8Type(problem.dtype);
  if (float8 && job.reduction == Reduction::assign) {
    problem.dtype = c10::ScalarType::Byte;
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(!float8 || job.indexing.float8,
                                "ocl: nothing combines through indices in dtype ", problem.dtype);
  }
  Queue& queue = current_queue(iter.device(0).index());
  for_slices(queue, problem, job, columns, steps);
}

}  // namespace

const ReduceImplementation reduce_rows{"rows", refuse_rows,
                                       [](ReducePlan& plan) { run_owners(plan, find_row(plan)); }};
const ReduceImplementation reduce_elements{"elements",
                                           [](const ReducePlan&) -> const char* { return nullptr; },
                                           [](ReducePlan& plan) { run_owners(plan, -1); }};

std::span<const ReduceImplementation* const> reduce_implementations() { return kReductions; }

void reduce(at::TensorIteratorBase& iter, const Indexing& indexing, Reduction reduction,
            int64_t skipped) {
  run(iter, {indexing, reduction, skipped, nullptr});
}

void reduce_fill(at::TensorIteratorBase& iter, const Indexing& indexing, Reduction reduction,
                 const c10::Scalar& value) {
  check_scalar(iter.dtype(0), value);
  const ScalarArgument argument = scalar_argument(compute_dtype(iter.dtype(0)), value);
  run(iter, {indexing, reduction, kSkipNothing, &argument});
}

}  // namespace ocl::index
