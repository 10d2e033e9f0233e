// Products of sparse matrices with each other, row by row.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/sparse/Compressed.h"
#include "runtime/stream.h"

namespace ocl::sparse {

namespace {

using at::Tensor;

const KernelFamily count_family{"sparse/rows_by_rows.cl", "counted"};
const KernelFamily sum_family{"sparse/rows_by_rows.cl", "summed"};

using namespace kernel_types;
#include "sparse/arguments.clh"

constexpr int64_t kWord = 64;  // columns of a word of bits
constexpr int64_t kMostBytes = int64_t{64} << 20;
/// Words that are looked through in the time that one product takes to be sorted.
constexpr int64_t kWordsPerProduct = 64;

int64_t rows_of(const Rows& matrix) { return matrix.offsets.numel() - 1; }

int64_t items_for(const Device& device, int64_t rows) {
  return std::min(rows, items_of_cores(device, 4));
}

Pointer pointer(const Tensor& operand) {
  return {operand.numel() == 0 ? nullptr : operand.const_data_ptr()};
}

}  // namespace

bool takes_rows_by_rows(const Rows& a, const Rows& b, int64_t columns) {
  const Device& device = current_queue(a.values.device().index()).device();
  const int64_t rows = rows_of(a), inner = rows_of(b);
  if (!device.is_cpu() || rows == 0 || inner == 0 || columns == 0) return false;
  const auto size = static_cast<int64_t>(c10::elementSize(compute_dtype(a.values.scalar_type())));
  if (items_for(device, rows) * columns * size > kMostBytes) return false;
  const double products = static_cast<double>(a.values.numel()) *
                          static_cast<double>(b.values.numel()) / static_cast<double>(inner);
  return static_cast<double>(columns) / kWord * static_cast<double>(rows) <=
         kWordsPerProduct * products;
}

Entries rows_by_rows(const Rows& a, const Rows& b, int64_t columns) {
  const at::ScalarType dtype = a.values.scalar_type(), compute = compute_dtype(dtype);
  Queue& queue = current_queue(a.values.device().index());
  Device& device = queue.device();
  const int64_t rows = rows_of(a), items = items_for(device, rows);
  RowsByRowsArguments arguments{};
  arguments.rows = static_cast<uint64_t>(rows);
  arguments.columns = static_cast<uint64_t>(columns);
  arguments.words = static_cast<uint64_t>(ceil_div(columns, kWord));
  arguments.span = static_cast<uint32_t>(ceil_div(rows, items));
  const at::TensorOptions longs = a.offsets.options().dtype(at::kLong);
  const Tensor seen = at::zeros({items * static_cast<int64_t>(arguments.words)}, longs);
  const Tensor counts = at::empty({rows}, longs);
  const char* index = tag(a.offsets.scalar_type());
  const NDRange range = NDRange::linear(static_cast<size_t>(items), 1);
  launch(count_family.get(device, {{"I", index}}), queue, range, pointer(a.offsets),
         pointer(a.columns), pointer(b.offsets), pointer(b.columns),
         Pointer{seen.mutable_data_ptr()}, Pointer{counts.mutable_data_ptr()}, arguments);
  const Tensor ends = counts.cumsum(0);
  const int64_t entries = ends[rows - 1].item<int64_t>();
  Entries result{at::empty({2, entries}, longs), at::empty({entries}, a.values.options())};
  if (entries == 0) return result;
  const Tensor sums = at::empty({items * columns}, a.values.options().dtype(compute));
  launch(sum_family.get(device, {{"E", tag(dtype)}, {"C", tag(compute)}, {"I", index}}), queue,
         range, pointer(a.offsets), pointer(a.columns), pointer(b.offsets), pointer(b.columns),
         Pointer{seen.mutable_data_ptr()}, pointer(a.values), pointer(b.values),
         Pointer{sums.mutable_data_ptr()}, pointer(ends),
         Pointer{result.indices.mutable_data_ptr()}, Pointer{result.values.mutable_data_ptr()},
         arguments);
  return result;
}

}  // namespace ocl::sparse
