#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/row_major.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/DtypeChecks.h"
#include "ops/tril.h"
#include "ops/tril_indices.h"
#include "ops/triu.h"
#include "ops/triu_indices.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily copy_family{"shape/triangular.cl", "triangle_copy"};
const KernelFamily rows_family{"shape/triangular.cl", "triangle_rows"};
const KernelFamily indices_family{"shape/triangular.cl", "triangle_indices"};

using namespace kernel_types;
#include "shape/arguments.clh"

void copy_triangle(const at::Tensor& out, const at::Tensor& self, int64_t diagonal, bool upper) {
  if (out.numel() == 0) return;
  if (self.size(-1) > 1 && self.size(-2) > 1 && self.stride(-1) != 1 && out.stride(-1) == 1 &&
      device(out.device().index()).is_cpu()) {
    // A copy turns tiles in registers.
    copy_triangle(out.copy_(self), out, diagonal, upper);
    return;
  }
  const RowMajor layout = row_major(out.sizes(), {out, self}, /*merge=*/false);
  if (!layout.fits) {
    // Matrix by matrix: a tensor this large has few of them, or large ones.
    TORCH_CHECK_NOT_IMPLEMENTED(out.dim() > 2, upper ? "triu" : "tril", ": matrices past 2 GiB");
    for (int64_t i = 0; i < out.size(0); ++i) {
      copy_triangle(out.select(0, i), self.select(0, i), diagonal, upper);
    }
    return;
  }
  const bool in_place = out.data_ptr() == self.data_ptr() && out.strides() == self.strides();
  Queue& queue = current_queue(out.device().index());
  TriangleArguments argument{};
  argument.diagonal = diagonal;
  argument.n = static_cast<uint32_t>(layout.n);
  put_layout(argument, layout);
  const Pointer to{out.data_ptr()}, from{self.data_ptr()};
  const size_t element = out.itemsize();
  if (queue.device().is_cpu()) {
    const bool contiguous = layout.stride[0][0] == layout.stride[1][0] &&
                            layout.stride[0][0] == static_cast<int64_t>(element);
    const int64_t columns = layout.size[0], rows = layout.n / columns;
    const auto run = static_cast<uint32_t>(
        std::max<int64_t>(1, device_row(queue.device()).item_elements / columns));
    Kernel& kernel = rows_family.get(
        queue.device(), {{"E", element == 16 ? "u128" : bits_tag(element)},
                         {"UPPER", upper},
                         {"WIDTH", element == 16 ? 1 : std::min<size_t>(16, 64 / element)},
                         {"COPY", !in_place},
                         {"CONTIGUOUS", contiguous}});
    launch(kernel, queue, NDRange::linear(ceil_div(rows, run), 1).of_work(layout.n), to, from,
           argument, run);
    return;
  }
  Kernel& kernel = copy_family.get(
      queue.device(), {{"E", element == 16 ? "u128" : bits_tag(element)}, {"UPPER", upper}});
  launch(kernel, queue, element_range(queue.device(), layout.n), to, from, argument);
}

/// Matrices that lie column by column are copied as their transposes, whose rows are contiguous.
void copy_triangle_as_it_lies(const at::Tensor& out, const at::Tensor& self, int64_t diagonal,
                              bool upper) {
  const bool by_columns = out.stride(-2) == 1 && self.stride(-2) == 1 && out.stride(-1) != 1;
  if (by_columns && diagonal != std::numeric_limits<int64_t>::min()) {
    copy_triangle(out.mT(), self.mT(), -diagonal, !upper);
  } else {
    copy_triangle(out, self, diagonal, upper);
  }
}

void check_indices_arguments(int64_t row, int64_t col, std::optional<at::Layout> layout) {
  TORCH_CHECK(row >= 0, "row must be non-negative, got", row);
  TORCH_CHECK(col >= 0, "col must be non-negative, got", col);
  TORCH_CHECK(!layout || *layout == at::kStrided, "only support layout=torch.strided, got",
              layout.value_or(at::kStrided));
}

/// Elements (i, j) of a rows x columns matrix with j - i <= diagonal.
int64_t lower_count(int64_t rows, int64_t columns, int64_t diagonal) {
  // Row i has clamp(i + diagonal + 1, 0, columns): none, then one more each row, then all.
  const int64_t empty = std::clamp<int64_t>(-diagonal, 0, rows);
  const int64_t partial = std::clamp<int64_t>(columns - diagonal, empty, rows);
  const int64_t count = partial - empty;
  return count * (empty + diagonal + 1) + count * (count - 1) / 2 + (rows - partial) * columns;
}

at::Tensor indices(int64_t row, int64_t col, int64_t offset, int64_t total, bool upper,
                   const at::TensorOptions& options) {
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  check_supported(upper ? "triu_indices" : "tril_indices", dtype,
                  dtype == at::kInt || dtype == at::kLong);
  at::Tensor out = at::empty({2, total}, options);
  if (total == 0) return out;
  Queue& queue = current_queue(out.device().index());
  Kernel& kernel =
      indices_family.get(queue.device(), {{"OUT", tag(out.scalar_type())}, {"UPPER", upper}});
  launch(kernel, queue, element_range(queue.device(), row), Pointer{out.data_ptr()}, row, col,
         offset, total);
  return out;
}

at::TensorOptions options_of(std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                             std::optional<at::Device> device, std::optional<bool> pin_memory) {
  return at::TensorOptions()
      .dtype(dtype.value_or(at::kLong))
      .layout(layout)
      .device(device)
      .pinned_memory(pin_memory);
}

}  // namespace

void structured_tril_out::impl(const at::Tensor& self, int64_t diagonal, const at::Tensor& out) {
  copy_triangle_as_it_lies(out, self, diagonal, /*upper=*/false);
}

void structured_triu_out::impl(const at::Tensor& self, int64_t diagonal, const at::Tensor& out) {
  copy_triangle_as_it_lies(out, self, diagonal, /*upper=*/true);
}

at::Tensor tril_indices(int64_t row, int64_t col, int64_t offset,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_indices_arguments(row, col, layout);
  return indices(row, col, offset, lower_count(row, col, offset), /*upper=*/false,
                 options_of(dtype, layout, device, pin_memory));
}

at::Tensor triu_indices(int64_t row, int64_t col, int64_t offset,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_indices_arguments(row, col, layout);
  return indices(row, col, offset, row * col - lower_count(row, col, offset - 1), /*upper=*/true,
                 options_of(dtype, layout, device, pin_memory));
}

}  // namespace ocl::native
