#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/index/index.h"

#include <ATen/Context.h>

#include <algorithm>
#include <limits>

#include "engine/dtype.h"
#include "engine/index/problem.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::index {

namespace {

constexpr size_t kLocalSize = 128;
constexpr size_t kVectorsPerLookup = 32;
// Of NDRange::work: an element that is looked up takes a division per dimension.
constexpr int64_t kLookup = 4;
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

/// The dimensions that one launch decodes, DIMS in the kernels; more are looped over on the host.
int max_dims(const Problem& problem) { return problem.indices > kFewIndices ? 4 : 12; }

// Elements are moved as bits; 16 bytes as two 64-bit words.
const char* element_tag(c10::ScalarType dtype) {
  const size_t size = c10::elementSize(dtype);
  return size == 16 ? "u128" : bits_tag(size);
}

void put_dimensions(ArgumentStruct& arguments, const Problem& problem) {
  const int most = max_dims(problem);
  arguments.put32(static_cast<uint32_t>(problem.numel()));
  arguments.put32(static_cast<uint32_t>(problem.dims));
  for (int d = 0; d < most; ++d) arguments.put32(d < problem.dims ? problem.size[d] : 1);
  for (int k = 0; k < problem.operands(); ++k) {
    for (int d = 0; d < most; ++d) {
      arguments.put32(d < problem.dims ? problem.stride[k][d] : 0);
    }
  }
  arguments.finish();
}

bool has_rows(const Problem& problem, bool fills) {
  const int64_t element = c10::elementSize(problem.dtype);
  if (problem.dims == 0 || problem.size[0] < kMinRow || element == 16) return false;
  for (int k = 0; k < problem.operands(); ++k) {
    if (k == 1 && fills) continue;  // no operand
    if (problem.stride[k][0] != (k < 2 ? element : 0)) return false;
  }
  return true;
}

/// Whether rows of both operands, wherever an index leads, start at multiples of `bytes`.
bool aligned_rows(Device& device, const Problem& problem, const Indexing& indexing,
                  uint64_t bytes) {
  const auto multiple = [&](int64_t step) { return static_cast<uint64_t>(step) % bytes == 0; };
  for (int k = 0; k < 2; ++k) {
    if (!multiple(device.addresses().find(problem.data[k]).offset)) return false;
    for (int d = 1; d < problem.dims; ++d) {
      if (!multiple(problem.stride[k][d])) return false;
    }
  }
  return std::all_of(indexing.strides.begin(), indexing.strides.end(), multiple);
}

struct RowForm {
  size_t width, span;
  bool aligned;
};

/// A CPU moves a piece of a row for each look-up; neighbours on a GPU share the row's cache lines.
RowForm row_form(Device& device, const Problem& problem, const Indexing& indexing) {
  const size_t element = c10::elementSize(problem.dtype);
  const bool cpu = device.is_cpu();
  const size_t vector_bytes = cpu ? 64 : aligned_rows(device, problem, indexing, 16) ? 16 : element;
  const size_t width = std::clamp<size_t>(vector_bytes / element, 1, 16);
  return {width, cpu ? width * kVectorsPerLookup : width, !cpu};
}

/// Chunks of `span` elements of the innermost dimension by the others.
NDRange row_range(const Problem& problem, size_t span, size_t local) {
  const size_t n = problem.numel(), chunks = (problem.size[0] + span - 1) / span;
  size_t local_x = 1;
  while (local_x < chunks && local_x < local) local_x *= 2;
  return NDRange::grid(chunks, n / problem.size[0], local_x, local / local_x).of_work(n);
}

/// The innermost dimension for kernels/index/lines.cl, with what it is in the indexed operand.
struct Lines {
  int64_t inner, inner_step, outer_step, span;
};

/// Makes the innermost dimension long enough for vectors, if another one continues it in all
/// operands but the indexed one. False if there are no such lines, or if 32-bit offsets don't reach
/// all of the indexed operand.
bool find_lines(Problem& problem, const Indexing& indexing, Lines& lines) {
  if (problem.dims == 0) return false;
  lines = {problem.size[0], problem.stride[0][0], 0, kLineSpan};
  int64_t extent = (problem.size[0] - 1) * problem.stride[0][0];
  for (size_t k = 0; k < indexing.sizes.size(); ++k) {
    extent += indexing.sizes[k] * indexing.strides[k];
  }
  if (problem.size[0] < kMinLine) {
    if (problem.dims == 1) return false;
    for (int k = 1; k < problem.operands(); ++k) {
      if (problem.stride[k][1] != problem.stride[k][0] * problem.size[0]) return false;
    }
    lines.outer_step = problem.stride[0][1];
    lines.span = kLineSpan / lines.inner * lines.inner;
    extent += (problem.size[1] - 1) * lines.outer_step;
    problem.size[0] *= problem.size[1];
    --problem.dims;
    for (int d = 1; d < problem.dims; ++d) problem.size[d] = problem.size[d + 1];
    for (int k = 0; k < problem.operands(); ++k) {
      for (int d = 1; d < problem.dims; ++d) problem.stride[k][d] = problem.stride[k][d + 1];
    }
  }
  return problem.size[0] >= kMinLine && extent <= std::numeric_limits<int32_t>::max();
}

enum class Move { read, write, fill };

/// For CPUs: kernels/index/lines.cl. False if it does not take the problem.
bool launch_lines(Queue& queue, Problem problem, const Indexing& indexing, Move move,
                  const ScalarArgument* value) {
  Lines lines;
  if (!find_lines(problem, indexing, lines)) return false;
  const int64_t element = c10::elementSize(problem.dtype);
  bool dense_index = true;
  for (int k = 2; k < problem.operands(); ++k) {
    dense_index &=
        problem.stride[k][0] == static_cast<int64_t>(c10::elementSize(problem.index_dtype));
  }
  Kernel& kernel = lines_family.get(queue.device(), {{"NIDX", problem.indices},
                                                     {"INDEX", tag(problem.index_dtype)},
                                                     {"WRAP", indexing.wrap},
                                                     {"E", element_tag(problem.dtype)},
                                                     {"WRITE", static_cast<int>(move)},
                                                     {"DENSE", problem.stride[1][0] == element},
                                                     {"DENSE_INDEX", dense_index},
                                                     {"SHORT", lines.inner != problem.size[0]}});
  ArgumentStruct arguments;
  std::array<cl_mem, kMaxOperands> mems;
  put_operands(arguments, mems, queue.device(), problem, indexing);
  for (const int64_t number : {lines.span, lines.inner, lines.inner_step, lines.outer_step}) {
    arguments.put32(static_cast<uint32_t>(number));
  }
  put_dimensions(arguments, problem);
  const cl_uint next = set_arguments(kernel, problem, indexing, mems, arguments);
  if (value) kernel.set_bytes(next, value->bytes, element);
  kernel.enqueue(queue, row_range(problem, lines.span, kLinesPerGroup));
  return true;
}

void launch_gather(Queue& queue, const Problem& problem, const Indexing& indexing) {
  const bool rows = has_rows(problem, /*fills=*/false);
  Device& device = queue.device();
  if (!rows && device.is_cpu() && launch_lines(queue, problem, indexing, Move::read, nullptr)) {
    return;
  }
  const RowForm form = rows ? row_form(device, problem, indexing) : RowForm{1, 1, false};
  Kernel& kernel = (rows ? rows_family : elements_family)
                       .get(device, {{"NIDX", problem.indices},
                                     {"INDEX", tag(problem.index_dtype)},
                                     {"WRAP", indexing.wrap},
                                     {"E", element_tag(problem.dtype)},
                                     {"WIDTH", form.width},
                                     {"SPAN", form.span},
                                     {form.aligned ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT", 1}});
  ArgumentStruct arguments;
  std::array<cl_mem, kMaxOperands> mems;
  put_operands(arguments, mems, device, problem, indexing);
  put_dimensions(arguments, problem);
  set_arguments(kernel, problem, indexing, mems, arguments);
  const size_t n = problem.numel();
  kernel.enqueue(queue, rows ? row_range(problem, form.span, kLocalSize)
                             : NDRange::linear(n, kLocalSize).of_work(kLookup * n));
}

void launch_scatter(Queue& queue, const Problem& problem, const Indexing& indexing,
                    const ScalarArgument* value) {
  Device& device = queue.device();
  // Neighbours on a GPU write what lies side by side anyway.
  const bool rows = device.is_cpu() && has_rows(problem, value != nullptr);
  if (!rows && device.is_cpu() &&
      launch_lines(queue, problem, indexing, value ? Move::fill : Move::write, value)) {
    return;
  }
  const RowForm form = rows ? row_form(device, problem, indexing) : RowForm{1, 1, false};
  Kernel& kernel = (rows ? scatter_rows_family : scatter_family)
                       .get(device, {{"NIDX", problem.indices},
                                     {"INDEX", tag(problem.index_dtype)},
                                     {"WRAP", indexing.wrap},
                                     {"E", element_tag(problem.dtype)},
                                     {"FILL", value != nullptr},
                                     {"WIDTH", form.width},
                                     {"SPAN", form.span}});
  ArgumentStruct arguments;
  std::array<cl_mem, kMaxOperands> mems;
  put_operands(arguments, mems, device, problem, indexing);
  put_dimensions(arguments, problem);
  const cl_uint next = set_arguments(kernel, problem, indexing, mems, arguments);
  static constexpr unsigned char kUnused[16] = {};
  kernel.set_bytes(next, value ? value->bytes : kUnused, c10::elementSize(problem.dtype));
  const size_t n = problem.numel();
  kernel.enqueue(queue, rows ? row_range(problem, form.span, kLocalSize)
                             : NDRange::linear(n, kLocalSize).of_work(kLookup * n));
}

/// Launches the first max_dims() dimensions and loops over the rest: tensors whose index tensors
/// leave more of them apart are rare and small.
template <class Launch>
void for_slices(Problem& problem, const Launch& launch) {
  if (problem.dims <= max_dims(problem)) {
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

/// Splits to 32-bit indexing, then calls launch(queue, problem).
template <class Launch>
void run(at::TensorIteratorBase& iter, const Indexing& indexing, Problem::Roles roles,
         const Launch& launch) {
  if (iter.numel() == 0) return;
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) run(part, indexing, roles, launch);
    return;
  }
  Problem problem(iter, indexing, roles);
  Queue& queue = current_queue(iter.device(0).index());
  for_slices(problem, [&](const Problem& slice) { launch(queue, slice); });
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

void put_operands(ArgumentStruct& arguments, std::array<cl_mem, kMaxOperands>& mems, Device& device,
                  const Problem& problem, const Indexing& indexing) {
  for (int k = 0; k < problem.operands(); ++k) {
    const Location location = device.addresses().find(problem.data[k]);
    mems[k] = location.mem;
    arguments.put64(location.offset);
  }
  for (const int64_t size : indexing.sizes) arguments.put64(size);
  for (const int64_t stride : indexing.strides) arguments.put64(stride);
}

cl_uint set_arguments(Kernel& kernel, const Problem& problem, const Indexing& indexing,
                      const std::array<cl_mem, kMaxOperands>& mems,
                      const ArgumentStruct& arguments) {
  cl_uint index = 0;
  for (int k = 0; k < problem.operands(); ++k) kernel.set_buffer(index++, mems[k]);
  kernel.set_bytes(index++, arguments.data(), arguments.size());
  kernel.set_buffer(index++, kernel.device().asserts().mem());
  kernel.set_value(index++, indexing.site.id());
  return index;
}

void gather(at::TensorIteratorBase& iter, const Indexing& indexing) {
  run(iter, indexing, Problem::indexed_second,
      [&](Queue& queue, const Problem& problem) { launch_gather(queue, problem, indexing); });
}

void scatter(at::TensorIteratorBase& iter, const Indexing& indexing) {
  if (deterministic()) {
    reduce(iter, indexing, Reduction::assign);
    return;
  }
  run(iter, indexing, Problem::indexed_first, [&](Queue& queue, const Problem& problem) {
    launch_scatter(queue, problem, indexing, nullptr);
  });
}

void fill(at::TensorIteratorBase& iter, const Indexing& indexing, const c10::Scalar& value) {
  const ScalarArgument argument = stored(iter.dtype(0), value);
  run(iter, indexing, Problem::no_other, [&](Queue& queue, const Problem& problem) {
    launch_scatter(queue, problem, indexing, &argument);
  });
}

}  // namespace ocl::index
