// Launches of the kernels of sparse matrices.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/sparse/Compressed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <deque>
#include <mutex>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::sparse {

namespace {

using at::Tensor;
using c10::Scalar;

const KernelFamily compress_family{"sparse/indices.cl", "rows_compress"};
const KernelFamily expand_family{"sparse/indices.cl", "rows_expand"};
const KernelFamily check_family{"sparse/indices.cl", "indices_check"};
const KernelFamily product_family{"sparse/product.cl", "sparse_product"};
const KernelFamily vector_family{"sparse/product.cl", "sparse_vector_product"};
const KernelFamily sampled_family{"sparse/sampled.cl", "sparse_sampled"};

using namespace kernel_types;
#include "sparse/arguments.clh"

// Elements of OpenCL's longest vector.

/// The share of n that a work-item takes.
uint32_t span_of(const Device& device, int64_t n) {
  if (!device.is_cpu()) return 1;
  // Rows are of unlike length: many work-items share them out evenly.
  const int64_t items = items_of_cores(device, 4), most = device_row(device).item_elements;
  return static_cast<uint32_t>(std::clamp<int64_t>(n / items, 1, most));
}

NDRange items_range(const Device& device, uint64_t items) {
  return device.is_cpu() ? NDRange::linear(items, 1) : element_range(device, items);
}

/// The operand's address; null where it has no elements: then it isn't read.
Pointer pointer(const Tensor& operand) {
  return {operand.defined() && operand.numel() != 0 ? operand.const_data_ptr() : nullptr};
}

/// A matrix whose rows have adjacent elements, as `step` elements from row to row.
Tensor with_dense_rows(const Tensor& matrix) {
  const bool dense = matrix.size(1) <= 1 || (matrix.stride(1) == 1 && matrix.stride(0) >= 0);
  return dense && !matrix.is_conj() && !matrix.is_neg()
             ? matrix
             : matrix.resolve_conj().resolve_neg().contiguous();
}

/// Products with the rows of a matrix share this.
struct Problem {
  Problem(const Rows& matrix_, const Tensor& dense_, const Tensor& out_)
      : queue(current_queue(out_.device().index())),
        device(queue.device()),
        dtype(out_.scalar_type()),
        compute(compute_dtype(dtype)),
        matrix(matrix_),
        dense(with_dense_rows(dense_)),
        out(out_) {
    arguments.rows = static_cast<uint64_t>(matrix.offsets.numel() - 1);
    arguments.columns = static_cast<uint64_t>(out.size(1));
    arguments.dense_step = static_cast<uint64_t>(dense.stride(0));
    arguments.entries = static_cast<uint64_t>(matrix.values.numel());
  }

  bool is_complex() const { return c10::isComplexType(dtype); }

  void run(Reduction reduction, const Scalar& beta, const Scalar& alpha, const Tensor& positions) {
    const auto columns = static_cast<int64_t>(arguments.columns);
    if (arguments.rows == 0 || columns == 0) return;
    const bool on_cpu = device.is_cpu();
    const bool vector = columns == 1 && reduction == Reduction::sum;
    int64_t width = is_complex() ? 1 : vector_lanes(device, c10::elementSize(compute));
    if (!on_cpu) {
      while (columns % width != 0) width /= 2;
    }
    if (vector) width = 1;
    const int64_t vectors = on_cpu && !vector ? 4 : 1;
    arguments.span = span_of(device, static_cast<int64_t>(arguments.rows));
    arguments.stretch = static_cast<uint32_t>(on_cpu ? columns : width);
    arguments.chunks = static_cast<uint32_t>(ceil_div(columns, int64_t{arguments.stretch}));
    const uint64_t items = ceil_div(arguments.rows, uint64_t{arguments.span}) * arguments.chunks;
    Kernel& kernel =
        (vector ? vector_family : product_family)
            .get(device, {{"E", tag(dtype)},
                          {"C", tag(compute)},
                          {"I", tag(matrix.offsets.scalar_type())},
                          {"POSITION", tag(c10::elementSize(compute) == 8 ? at::kLong : at::kInt)},
                          {"REDUCE", static_cast<int>(reduction)},
                          {"WIDTH", width},
                          {"VECTORS", vectors},
                          {"BETA", !beta.equal(0)},
                          {"POSITIONS", positions.defined()}});
    const ScalarArgument alpha_argument = scalar_argument(compute, alpha);
    const ScalarArgument beta_argument = scalar_argument(compute, beta);
    const NDRange range = items_range(device, items);
    if (vector) {
      launch(kernel, queue, range, pointer(matrix.offsets), pointer(matrix.columns),
             pointer(matrix.values), pointer(dense), Pointer{out.mutable_data_ptr()}, arguments,
             alpha_argument, beta_argument);
      return;
    }
    launch(kernel, queue, range, pointer(matrix.offsets), pointer(matrix.columns),
           pointer(matrix.values), pointer(dense), Pointer{out.mutable_data_ptr()},
           pointer(positions), arguments, alpha_argument, beta_argument);
  }

  Queue& queue;
  Device& device;
  const at::ScalarType dtype, compute;
  const Rows& matrix;
  const Tensor dense, out;
  ProductArguments arguments{};
};

}  // namespace

void compress_rows(const Tensor& rows, int64_t size, const Tensor& offsets) {
  if (rows.numel() == 0) {
    offsets.zero_();
    return;
  }
  Queue& queue = current_queue(rows.device().index());
  IndexArguments arguments{};
  arguments.entries = static_cast<uint64_t>(rows.numel());
  arguments.rows = static_cast<uint64_t>(size);
  arguments.span = span_of(queue.device(), rows.numel());
  launch(compress_family.get(queue.device(),
                             {{"I", tag(rows.scalar_type())}, {"OUT", tag(offsets.scalar_type())}}),
         queue,
         items_range(queue.device(), ceil_div(arguments.entries + 1, uint64_t{arguments.span})),
         pointer(rows), Pointer{offsets.mutable_data_ptr()}, arguments);
}

void expand_rows(const Tensor& offsets, const Tensor& rows) {
  if (rows.numel() == 0) return;
  Queue& queue = current_queue(rows.device().index());
  const int64_t matrices = offsets.numel() / offsets.size(-1);
  IndexArguments arguments{};
  arguments.entries = static_cast<uint64_t>(rows.numel());
  arguments.per_matrix = arguments.entries / static_cast<uint64_t>(matrices);
  arguments.rows = static_cast<uint64_t>(offsets.size(-1) - 1);
  arguments.span = span_of(queue.device(), rows.numel());
  launch(expand_family.get(queue.device(),
                           {{"I", tag(offsets.scalar_type())}, {"OUT", tag(rows.scalar_type())}}),
         queue, items_range(queue.device(), ceil_div(arguments.entries, uint64_t{arguments.span})),
         pointer(offsets), Pointer{rows.mutable_data_ptr()}, arguments);
}

namespace {

/// Facts about the rows of a matrix, which hold while its indices live and nobody writes to them.
struct KnownRows {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  int64_t offset, count;
  uint32_t version;
  bool sorted;
};

/// Whether rows ascend. A tensor may be called coalesced by whom that suits (_coalesced_), as
/// PyTorch Geometric does of transposed matrices. Waits for the device at the first call for given
/// indices.
bool ascend(const Tensor& rows) {
  if (rows.is_inference()) return rows.diff().ge(0).all().item().toBool();
  static std::mutex mutex;
  static std::deque<KnownRows>& known = *new std::deque<KnownRows>;  // outlives static objects
  constexpr size_t kMostKnown = 64;
  const auto weak = rows.storage().getWeakStorageImpl();
  const auto storage = weak.lock();
  const auto version = static_cast<uint32_t>(rows._version());
  {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const KnownRows& one : known) {
      if (one.storage.lock() == storage && one.offset == rows.storage_offset() &&
          one.count == rows.numel() && one.version == version) {
        return one.sorted;
      }
    }
  }
  const bool sorted = rows.diff().ge(0).all().item().toBool();
  const std::lock_guard<std::mutex> lock(mutex);
  known.push_back({weak, rows.storage_offset(), rows.numel(), version, sorted});
  if (known.size() > kMostKnown) known.pop_front();
  return sorted;
}

}  // namespace

Rows rows_of_coo(const Tensor& sparse) {
  Tensor rows = sparse._indices().select(0, 0), columns = sparse._indices().select(0, 1);
  Tensor values = sparse._values();
  if (sparse._nnz() > 1 && !(sparse.is_coalesced() && ascend(rows))) {
    const auto [sorted, order] = rows.sort(std::optional<bool>(true), 0, false);
    rows = sorted;
    columns = columns.index_select(0, order);
    values = values.index_select(0, order);
  }
  const Tensor offsets = at::empty({sparse.size(0) + 1}, rows.options());
  compress_rows(rows.contiguous(), sparse.size(0), offsets);
  return {offsets, columns.contiguous(), values.contiguous()};
}

Rows rows_of_compressed(const Tensor& sparse) {
  if (sparse.layout() == at::kSparseBsr || sparse.layout() == at::kSparseBsc) {
    return rows_of_coo(sparse.to_sparse());
  }
  const Tensor matrix = sparse.layout() == at::kSparseCsr ? sparse : sparse.to_sparse_csr();
  return {matrix.crow_indices().contiguous(), matrix.col_indices().contiguous(),
          matrix.values().contiguous()};
}

void product(const Rows& matrix, const Tensor& dense, const Scalar& beta, const Scalar& alpha,
             const Tensor& out) {
  if (out.is_contiguous() && !out.is_neg() && !out.is_conj()) {
    Problem(matrix, dense, out).run(Reduction::sum, beta, alpha, {});
    return;
  }
  const Tensor sums = beta.equal(0) ? at::empty(out.sizes(), out.options())
                                    : out.clone(at::MemoryFormat::Contiguous);
  Problem(matrix, dense, sums).run(Reduction::sum, beta, alpha, {});
  out.copy_(sums);
}

void reduced_product(const Rows& matrix, const Tensor& dense, Reduction reduction,
                     const Tensor& out, const Tensor& positions) {
  Problem(matrix, dense, out).run(reduction, 0, 1, positions);
}

void sampled_product(const Rows& matrix, const Tensor& a, const Tensor& b, const Scalar& beta,
                     const Scalar& alpha) {
  const Tensor& values = matrix.values;
  if (values.numel() == 0) return;
  Queue& queue = current_queue(values.device().index());
  const Device& device = queue.device();
  const at::ScalarType dtype = values.scalar_type(), compute = compute_dtype(dtype);
  const Tensor from = with_dense_rows(a), with = with_dense_rows(b.t());
  SampledArguments arguments{};
  arguments.entries = static_cast<uint64_t>(values.numel());
  arguments.rows = static_cast<uint64_t>(matrix.offsets.numel() - 1);
  arguments.inner = static_cast<uint64_t>(from.size(1));
  arguments.a_step = static_cast<uint64_t>(from.stride(0));
  arguments.b_step = static_cast<uint64_t>(with.stride(0));
  arguments.span = span_of(device, values.numel());
  const int64_t width =
      c10::isComplexType(dtype)
          ? 1
          : vector_lanes(device, c10::elementSize(compute), std::max<int64_t>(from.size(1), 1));
  launch(sampled_family.get(queue.device(), {{"E", tag(dtype)},
                                             {"C", tag(compute)},
                                             {"I", tag(matrix.offsets.scalar_type())},
                                             {"WIDTH", width},
                                             {"BETA", !beta.equal(0)}}),
         queue, items_range(device, ceil_div(arguments.entries, uint64_t{arguments.span})),
         pointer(matrix.offsets), pointer(matrix.columns), pointer(from), pointer(with),
         Pointer{values.mutable_data_ptr()}, arguments, scalar_argument(compute, alpha),
         scalar_argument(compute, beta));
}

int broken_rules(const Tensor& offsets_, const Tensor& columns_, int64_t size, int64_t others) {
  const Tensor offsets = offsets_.contiguous(), columns = columns_.contiguous();
  Queue& queue = current_queue(offsets.device().index());
  CheckArguments arguments{};
  arguments.matrices = static_cast<uint64_t>(offsets.numel() / (size + 1));
  arguments.per_matrix = static_cast<uint64_t>(columns.size(-1));
  arguments.rows = static_cast<uint64_t>(size);
  arguments.columns = static_cast<uint64_t>(others);
  const Tensor failed = at::zeros({}, offsets.options().dtype(at::kInt));
  launch(check_family.get(queue.device(), {{"I", tag(offsets.scalar_type())}}), queue,
         element_range(queue.device(), arguments.matrices * std::max<uint64_t>(arguments.rows, 1)),
         pointer(offsets), pointer(columns), Pointer{failed.mutable_data_ptr()}, arguments);
  return failed.item<int>();
}

}  // namespace ocl::sparse
