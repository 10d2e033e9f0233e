// Launches kernels/index/reduce.cl: which dimensions are columns, and how the work is shared out.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/index/reduce.h"

#include <algorithm>

#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::index {

const char* name_of(Reduction reduction) {
  static constexpr const char* kNames[] = {"add", "mul", "amax", "amin", "assign"};
  return kNames[static_cast<int>(reduction)];
}

void put_dimensions(ArgumentStruct& arguments, const Problem& problem,
                    const Dimensions& dimensions) {
  const int most = max_reduce_dims(problem);
  const auto used = [&](int i) { return i < dimensions.count; };
  for (int i = 0; i < most; ++i) {
    arguments.put32(used(i) ? problem.size[dimensions.of[i]] : 1);
  }
  for (int k = 0; k < problem.operands(); ++k) {
    for (int i = 0; i < most; ++i) {
      arguments.put32(used(i) ? problem.stride[k][dimensions.of[i]] : 0);
    }
  }
}

void enqueue_reduce(Queue& queue, Kernel& kernel, const Problem& problem, const Job& job,
                    const Dimensions& columns, const Dimensions& steps, const ReduceShape& shape,
                    size_t local) {
  ArgumentStruct arguments;
  std::array<cl_mem, kMaxOperands> mems;
  put_operands(arguments, mems, queue.device(), problem, job.indexing);
  arguments.put64(job.skipped);
  for (const int64_t number : {shape.columns, shape.steps, shape.parts, shape.row, shape.chunk}) {
    arguments.put32(static_cast<uint32_t>(number));
  }
  arguments.put32(static_cast<uint32_t>(columns.count));
  arguments.put32(static_cast<uint32_t>(steps.count));
  arguments.put32(job.skipped != kSkipNothing);
  put_dimensions(arguments, problem, columns);
  put_dimensions(arguments, problem, steps);
  arguments.finish();
  const cl_uint next = set_arguments(kernel, problem, job.indexing, mems, arguments);
  static constexpr unsigned char kUnused[16] = {};
  kernel.set_bytes(next, job.value ? job.value->bytes : kUnused,
                   c10::elementSize(compute_dtype(problem.dtype)));
  kernel.enqueue(queue, NDRange::grid(shape.columns, shape.parts, local, 1));
}

namespace {

constexpr int64_t kMinRow = 8;
constexpr size_t kVectorBytes = 32;
// A chunk of a row should fill a few cache lines, which a look-up then pays for.
constexpr size_t kMinChunkBytes = 256;

const KernelFamily reduce_family{"index/reduce.cl", "index_reduce"};

/// Enough work-items to fill the device: each scans all indices, so not many more.
size_t work_items(const Device& device) {
  const size_t units = device.properties().compute_units;
  return device.is_cpu() ? units * 4 : units * 512;
}

/// The column dimension in which neighbours are contiguous and share their indices, or -1.
int find_row(const Problem& problem, const Job& job, const Dimensions& columns) {
  const int64_t element = c10::elementSize(problem.dtype);
  for (int i = 0; i < columns.count; ++i) {
    const int d = columns.of[i];
    bool row = problem.size[d] >= kMinRow && problem.stride[0][d] == element &&
               (job.value || problem.stride[1][d] == element);
    for (int k = 2; row && k < problem.operands(); ++k) row = problem.stride[k][d] == 0;
    if (row) return i;
  }
  return -1;
}

void launch_reduce(Queue& queue, Problem problem, const Job& job, Dimensions columns,
                   const Dimensions& steps) {
  const Device& device = queue.device();
  const c10::ScalarType compute = compute_dtype(problem.dtype);
  size_t width = 1, chunk = 1;
  uint32_t row_size = 1;
  const int row =
      c10::isComplexType(compute) || !device.is_cpu() ? -1 : find_row(problem, job, columns);
  if (row < 0 && device.is_cpu() && reduce_lines(queue, problem, job, columns, steps)) return;
  if (row >= 0) {
    // The row is decoded first, in chunks.
    std::swap(columns.of[0], columns.of[row]);
    const int d = columns.of[0];
    width = std::min<size_t>(16, kVectorBytes / c10::elementSize(compute));
    row_size = static_cast<uint32_t>(problem.size[d]);
    // Two chunks per core if they stay that large: all of a row's indices may be the same.
    const size_t cores = device.properties().compute_units;
    chunk = std::max(kMinChunkBytes / c10::elementSize(compute), row_size / (2 * cores));
    chunk = NDRange::round_up(chunk, width);
    problem.size[d] = (problem.size[d] + chunk - 1) / chunk;
    problem.stride[0][d] *= chunk;
    problem.stride[1][d] *= chunk;
  }
  size_t column_count = 1, step_count = 1;
  for (int i = 0; i < columns.count; ++i) column_count *= problem.size[columns.of[i]];
  for (int i = 0; i < steps.count; ++i) step_count *= problem.size[steps.of[i]];
  const size_t parts = std::clamp<size_t>(work_items(device) / column_count, 1, step_count);

  const Define defines[] = {{"NIDX", problem.indices},
                            {"INDEX", tag(problem.index_dtype)},
                            {"WRAP", job.indexing.wrap},
                            {"E", storage_tag(problem.dtype)},
                            {"C", tag(compute)},
                            {"REDUCE", name_of(job.reduction)},
                            {"FILL", job.value != nullptr},
                            {"WIDTH", width},
                            {"NEED_FLOAT8", 1},
                            {"E4M3_ABOVE", e4m3_above()}};
  const size_t of_float8 = c10::isFloat8Type(problem.dtype) ? 0 : 2;
  Kernel& kernel = reduce_family.get(queue.device(), {defines, std::size(defines) - of_float8});
  // With few columns a larger work-group would leave compute units idle.
  const size_t local = column_count >= 16 * work_items(device) ? 16 : 1;
  enqueue_reduce(queue, kernel, problem, job, columns, steps,
                 {static_cast<int64_t>(column_count), static_cast<int64_t>(step_count),
                  static_cast<int64_t>(parts), row_size, static_cast<int64_t>(chunk)},
                 local);
}

/// Loops over the dimensions past max_reduce_dims() of either kind, then launches.
void for_slices(Queue& queue, Problem& problem, const Job& job, Dimensions& columns,
                Dimensions& steps) {
  const int most = max_reduce_dims(problem);
  Dimensions& longer = steps.count > most ? steps : columns;
  if (longer.count <= most) {
    launch_reduce(queue, problem, job, columns, steps);
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
  // Sorted, a place's sum would be rounded at its end alone.
  if (!queue.device().is_cpu() && !float8 && reduce_sorted(queue, problem, job, columns, steps))
    return;
  for_slices(queue, problem, job, columns, steps);
}

}  // namespace

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
