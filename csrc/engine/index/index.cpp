#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/index/index.h"

#include <ATen/Context.h>

#include <algorithm>
#include <limits>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/index/problem.h"
#include "engine/index/reduce.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::index {

namespace {

constexpr size_t kVectorsPerLookup = 32;
// Shorter rows are copied element by element.
constexpr int64_t kMinRow = 4;
// Elements of the innermost dimension whose indices differ: fewer are no vector, and a work-item's.
constexpr int64_t kMinLine = 16;
constexpr size_t kLineSpan = 1024, kLinesPerGroup = 4;

const KernelFamily elements_family{"index/gather.cl", "gather_elements"};
const KernelFamily rows_family{"index/gather.cl", "gather_rows"};
const KernelFamily scatter_family{"index/scatter.cl", "scatter_elements"};
const KernelFamily scatter_rows_family{"index/scatter.cl", "scatter_rows"};
const KernelFamily lines_family{"index/lines.cl", "index_lines"};

enum class Move { read, write, fill };

/// A read or a write on its way to a kernel.
struct Plan {
  Queue& queue;
  const Problem& problem;
  const Indexing& indexing;
  Move move;
  const ScalarArgument* value;  // null unless Move::fill

  Device& device() const { return queue.device(); }
};

// Elements are moved as bits; 16 bytes as two 64-bit words.
const char* element_tag(c10::ScalarType dtype) {
  const size_t size = c10::elementSize(dtype);
  return size == 16 ? "u128" : bits_tag(size);
}

MoveArguments make_arguments(const Problem& problem, const Indexing& indexing) {
  MoveArguments arguments{};
  put_indices(arguments, indexing);
  arguments.n = static_cast<uint32_t>(problem.numel());
  arguments.dims = problem.dims;
  for (int d = 0; d < problem.dims; ++d) arguments.size[d] = problem.size[d];
  const int most = problem.max_dims();
  for (int k = 0; k < problem.operands(); ++k) {
    for (int d = 0; d < problem.dims; ++d) arguments.stride[k * most + d] = problem.stride[k][d];
  }
  return arguments;
}

/// gather.cl, scatter.cl and lines.cl; those that write take a value, too, read or not.
void enqueue(const Plan& plan, const Problem& problem, const MoveArguments& arguments,
             Kernel& kernel, const NDRange& range, bool takes_value) {
  const auto go = [&](const auto&... value) {
    launch(kernel, plan.queue, range, problem.pointers(), used_part(arguments, problem),
           plan.device().asserts().mem(), plan.indexing.site.id(), value...);
  };
  static constexpr unsigned char kUnused[16] = {};
  if (takes_value) {
    go(Bytes{plan.value ? plan.value->bytes : kUnused, c10::elementSize(problem.dtype)});
  } else {
    go();
  }
}

/// Whether rows of both operands, wherever an index leads, start at multiples of `bytes`.
bool aligned_rows(const Plan& plan, uint64_t bytes) {
  const Problem& problem = plan.problem;
  const auto multiple = [&](int64_t step) { return static_cast<uint64_t>(step) % bytes == 0; };
  for (int k = 0; k < 2; ++k) {
    // Segments start at multiples of any vector's size.
    if (!multiple(reinterpret_cast<int64_t>(problem.data[k]))) return false;
    for (int d = 1; d < problem.dims; ++d) {
      if (!multiple(problem.stride[k][d])) return false;
    }
  }
  return std::all_of(plan.indexing.strides.begin(), plan.indexing.strides.end(), multiple);
}

struct RowChunk {
  size_t width, span;
  bool aligned;
};

/// A CPU moves a piece of a row for each look-up; neighbours on a GPU share the row's cache lines.
RowChunk row_chunk(const Plan& plan) {
  const size_t element = c10::elementSize(plan.problem.dtype);
  const bool cpu = plan.device().is_cpu();
  const size_t width = cpu || aligned_rows(plan, 16) ? vector_lanes(plan.device(), element) : 1;
  return {width, cpu ? width * kVectorsPerLookup : width, !cpu};
}

/// Chunks of `span` elements of the innermost dimension by the others.
NDRange row_range(const Problem& problem, size_t span, size_t local) {
  const size_t n = problem.numel(), chunks = ceil_div(problem.size[0], span);
  size_t local_x = 1;
  while (local_x < chunks && local_x < local) local_x *= 2;
  return NDRange::grid(chunks, n / problem.size[0], local_x, local / local_x).of_work(n);
}

const char* refuse_rows(const Plan& plan) {
  const Problem& problem = plan.problem;
  if (plan.move != Move::read && !plan.device().is_cpu()) {
    return "a GPU's neighbours write what lies side by side anyway";
  }
  const int64_t element = c10::elementSize(problem.dtype);
  if (element == 16) return "elements of 16 bytes";
  if (problem.dims == 0 || problem.size[0] < kMinRow) return "short rows";
  for (int k = 0; k < problem.operands(); ++k) {
    if (k == 1 && plan.move == Move::fill) continue;  // no operand
    if (problem.stride[k][0] != (k < 2 ? element : 0)) {
      return k < 2 ? "rows that are not contiguous" : "an index per element";
    }
  }
  return nullptr;
}

void run_elements(Plan& plan, bool rows) {
  const Problem& problem = plan.problem;
  const RowChunk chunk = rows ? row_chunk(plan) : RowChunk{1, 1, false};
  const bool read = plan.move == Move::read;
  Kernel& kernel =
      read ? (rows ? rows_family : elements_family)
                 .get(plan.device(), {{"NIDX", problem.indices},
                                      {"INDEX", tag(problem.index_dtype)},
                                      {"WRAP", plan.indexing.wrap},
                                      {"E", element_tag(problem.dtype)},
                                      {"WIDTH", chunk.width},
                                      {"SPAN", chunk.span},
                                      {chunk.aligned ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT", 1}})
           : (rows ? scatter_rows_family : scatter_family)
                 .get(plan.device(), {{"NIDX", problem.indices},
                                      {"INDEX", tag(problem.index_dtype)},
                                      {"WRAP", plan.indexing.wrap},
                                      {"E", element_tag(problem.dtype)},
                                      {"FILL", plan.value != nullptr},
                                      {"WIDTH", chunk.width},
                                      {"SPAN", chunk.span}});
  const size_t n = problem.numel();
  enqueue(plan, problem, make_arguments(problem, plan.indexing), kernel,
          rows ? row_range(problem, chunk.span, group_of_rows(plan.device()))
               : NDRange::linear(n, group_of_rows(plan.device())).of_work(kLookup * n),
          !read);
}

/// The innermost dimension for kernels/index/lines.cl.
struct Lines {
  bool merges = false;  // it is the two innermost ones, of which only the indexed operand knows
  const char* why_not = nullptr;
};

/// Makes the innermost dimension long enough for vectors, if another one continues it in all
/// operands but the indexed one. There are no lines, too, where 32-bit offsets don't reach all of
/// the indexed operand.
Lines find_lines(const Plan& plan) {
  const Problem& problem = plan.problem;
  if (problem.dims == 0) return {false, "one element"};
  int64_t extent = (problem.size[0] - 1) * problem.stride[0][0];
  for (size_t k = 0; k < plan.indexing.sizes.size(); ++k) {
    extent += plan.indexing.sizes[k] * plan.indexing.strides[k];
  }
  const bool merges = problem.size[0] < kMinLine;
  if (merges) {
    if (problem.dims == 1) return {false, "short lines"};
    for (int k = 1; k < problem.operands(); ++k) {
      if (problem.stride[k][1] != problem.stride[k][0] * problem.size[0]) {
        return {false, "short lines that don't continue"};
      }
    }
    if (problem.size[0] * problem.size[1] < kMinLine) return {false, "short lines"};
    extent += (problem.size[1] - 1) * problem.stride[0][1];
  }
  if (extent > std::numeric_limits<int32_t>::max()) return {false, "offsets past 32 bits"};
  return {merges};
}

const char* refuse_lines(const Plan& plan) {
  if (!plan.device().is_cpu()) return "a kernel for CPUs";
  return find_lines(plan).why_not;
}

void run_lines(Plan& plan) {
  Problem problem = plan.problem;
  MoveArguments extra{};
  extra.inner = static_cast<uint32_t>(problem.size[0]);
  extra.inner_step = static_cast<uint32_t>(problem.stride[0][0]);
  extra.span = kLineSpan;
  const bool merges = find_lines(plan).merges;
  if (merges) {
    extra.outer_step = static_cast<uint32_t>(problem.stride[0][1]);
    extra.span = kLineSpan / extra.inner * extra.inner;
    problem.size[0] *= problem.size[1];
    --problem.dims;
    for (int d = 1; d < problem.dims; ++d) problem.size[d] = problem.size[d + 1];
    for (int k = 0; k < problem.operands(); ++k) {
      for (int d = 1; d < problem.dims; ++d) problem.stride[k][d] = problem.stride[k][d + 1];
    }
  }
  bool dense_index = true;
  for (int k = 2; k < problem.operands(); ++k) {
    dense_index &=
        problem.stride[k][0] == static_cast<int64_t>(c10::elementSize(problem.index_dtype));
  }
  const int64_t element = c10::elementSize(problem.dtype);
  Kernel& kernel = lines_family.get(plan.device(), {{"NIDX", problem.indices},
                                                    {"INDEX", tag(problem.index_dtype)},
                                                    {"WRAP", plan.indexing.wrap},
                                                    {"E", element_tag(problem.dtype)},
                                                    {"WRITE", static_cast<int>(plan.move)},
                                                    {"DENSE", problem.stride[1][0] == element},
                                                    {"DENSE_INDEX", dense_index},
                                                    {"SHORT", merges}});
  MoveArguments arguments = make_arguments(problem, plan.indexing);
  arguments.span = extra.span;
  arguments.inner = extra.inner;
  arguments.inner_step = extra.inner_step;
  arguments.outer_step = extra.outer_step;
  enqueue(plan, problem, arguments, kernel, row_range(problem, extra.span, kLinesPerGroup),
          plan.move == Move::fill);
}

constexpr Implementation<Plan> rows{"rows", refuse_rows,
                                    [](Plan& plan) { run_elements(plan, true); }};
constexpr Implementation<Plan> lines{"lines", refuse_lines, run_lines};
constexpr Implementation<Plan> elements{"elements",
                                        [](const Plan&) -> const char* { return nullptr; },
                                        [](Plan& plan) { run_elements(plan, false); }};
constexpr const Implementation<Plan>* kMoves[] = {&rows, &lines, &elements};

std::string describe(const Plan& plan) {
  static constexpr const char* kNames[] = {"read", "write", "fill"};
  return describe(kNames[static_cast<int>(plan.move)], plan.problem);
}

/// Launches the first max_dims() dimensions and loops over the rest: tensors whose index tensors
/// leave more of them apart are rare and small.
template <class Launch>
void for_slices(Problem& problem, const Launch& launch) {
  if (problem.dims <= problem.max_dims()) {
    launch(problem);
    return;
  }
  const int last = --problem.dims;
  const auto data = problem.data;
  for (int64_t i = 0; i < problem.size[last]; ++i) {
    for_slices(problem, launch);
    for (int k = 0; k < problem.operands(); ++k) {
      if (problem.data[k]) problem.data[k] += problem.stride[k][last];
    }
  }
  problem.data = data;
  ++problem.dims;
}

/// Splits to 32-bit indexing, then launches.
void run(at::TensorIteratorBase& iter, const Indexing& indexing, Problem::Roles roles, Move move,
         const ScalarArgument* value = nullptr) {
  if (iter.numel() == 0) return;
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) run(part, indexing, roles, move, value);
    return;
  }
  Problem problem(iter, indexing, roles);
  Queue& queue = current_queue(iter.device(0).index());
  for_slices(problem, [&](const Problem& slice) {
    Plan plan{queue, slice, indexing, move, value};
    run_first(engine, kMoves, plan, [](const Plan& plan) { return describe(plan); });
  });
}

/// The value as the element's stored bits.
ScalarArgument stored(c10::ScalarType dtype, const c10::Scalar& value) {
  if (dtype == c10::ScalarType::Half) {
    const c10::Half half = value.to<c10::Half>();
    return storage_argument(dtype, &half);
  }
  if (dtype == c10::ScalarType::BFloat16) {
    const c10::BFloat16 brain = value.to<c10::BFloat16>();
    return storage_argument(dtype, &brain);
  }
  if (dtype == c10::ScalarType::ComplexHalf) {
    const auto complex = value.to<c10::complex<c10::Half>>();
    return storage_argument(dtype, &complex);
  }
  check_scalar(dtype, value);
  return scalar_argument(dtype, value);
}

bool deterministic() { return at::globalContext().deterministicAlgorithms(); }

}  // namespace

Problem::Problem(at::TensorIteratorBase& iter, const Indexing& indexing, Roles roles)
    : indices(static_cast<int>(indexing.sizes.size())), dims(iter.ndim()) {
  TORCH_CHECK_NOT_IMPLEMENTED(indices <= kMaxIndices, "ocl: at most ", kMaxIndices,
                              " index tensors at a time, got ", indices);
  std::array<int, kMaxOperands> source;  // the iterator's operand, -1: none
  int next = 0;
  source[0] = source[1] = -1;
  if (roles == indexed_second) {
    source[1] = next++;
    if (!indexing.base) source[0] = next++;
  } else {
    if (!indexing.base) source[0] = next++;
    if (roles == indexed_first) source[1] = next++;
  }
  for (int k = 0; k < indices; ++k) source[2 + k] = next++;
  for (int d = 0; d < dims; ++d) size[d] = iter.shape()[d];
  for (int k = 0; k < operands(); ++k) {
    if (source[k] >= 0) {
      data[k] = static_cast<char*>(iter.data_ptr(source[k]));
      const auto strides = iter.strides(source[k]);
      for (int d = 0; d < dims; ++d) stride[k][d] = strides[d];
    } else {
      stride[k].fill(0);
    }
  }
  if (indexing.base) data[0] = static_cast<char*>(indexing.base);
  dtype = iter.dtype(source[0] >= 0 ? source[0] : source[1]);
  index_dtype = iter.dtype(source[2]);
}

Engine engine{"index", reduce_implementations(), kMoves};

std::string describe(const char* what, const Problem& problem) {
  std::string line = std::string("index ") + what + " ";
  for (int d = problem.dims - 1; d >= 0; --d) {
    line += std::to_string(problem.size[d]) + (d > 0 ? "x" : "");
  }
  if (problem.dims == 0) line += "1";
  return line + " " + tag(problem.dtype) + " by " + std::to_string(problem.indices) + " " +
         tag(problem.index_dtype);
}

void gather(at::TensorIteratorBase& iter, const Indexing& indexing) {
  run(iter, indexing, Problem::indexed_second, Move::read);
}

void scatter(at::TensorIteratorBase& iter, const Indexing& indexing) {
  if (deterministic()) {
    reduce(iter, indexing, Reduction::assign);
    return;
  }
  run(iter, indexing, Problem::indexed_first, Move::write);
}

void fill(at::TensorIteratorBase& iter, const Indexing& indexing, const c10::Scalar& value) {
  const ScalarArgument argument = stored(iter.dtype(0), value);
  run(iter, indexing, Problem::no_other, Move::fill, &argument);
}

}  // namespace ocl::index
