// im2col and col2im, which unfold and fold call.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/im2col.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/spatial/spatial.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/DtypeChecks.h"
#include "ops/col2im.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily im2col_family{"spatial/fold.cl", "im2col"};
const KernelFamily col2im_family{"spatial/fold.cl", "col2im"};
const KernelFamily col2im_lines_family{"spatial/fold.cl", "col2im_lines"};

/// Sums of a row are kept in private memory: the longest chunk of it.
constexpr int kLine = 512;

using spatial::FoldArguments;

/// In order height, width.
FoldArguments fold_arguments(at::IntArrayRef kernel, at::IntArrayRef dilation,
                             at::IntArrayRef padding, at::IntArrayRef stride) {
  TORCH_CHECK(kernel.size() == 2, "It is expected kernel_size equals to 2, but got size ",
              kernel.size());
  TORCH_CHECK(dilation.size() == 2, "It is expected dilation equals to 2, but got size ",
              dilation.size());
  TORCH_CHECK(padding.size() == 2, "It is expected padding equals to 2, but got size ",
              padding.size());
  TORCH_CHECK(stride.size() == 2, "It is expected stride equals to 2, but got size ",
              stride.size());
  FoldArguments arguments;
  for (int axis = 0; axis < 2; ++axis) {
    arguments.kernel_size[axis] = static_cast<int32_t>(kernel[axis]);
    arguments.stride[axis] = static_cast<int32_t>(stride[axis]);
    arguments.pad[axis] = static_cast<int32_t>(padding[axis]);
    arguments.dilation[axis] = static_cast<int32_t>(dilation[axis]);
  }
  return arguments;
}

/// Windows of an image of `size` along an axis.
int64_t windows(int64_t size, const FoldArguments& fold, int axis) {
  const int64_t reach = int64_t{fold.dilation[axis]} * (fold.kernel_size[axis] - 1) + 1;
  return (size + 2 * fold.pad[axis] - reach) / fold.stride[axis] + 1;
}

/// (batch, channels * taps, windows) seen as [batch][channel][tap][window row][window column].
spatial::Operand columns_operand(const at::Tensor& columns, const FoldArguments& fold, int64_t rows,
                                 int64_t row) {
  const spatial::Operand flat = spatial::operand(columns, 1);
  const int64_t taps = int64_t{fold.kernel_size[0]} * fold.kernel_size[1];
  const int64_t tap = columns.size(-2) == 1 ? 0 : columns.stride(-2);
  const int64_t window = columns.size(-1) == 1 ? 0 : columns.stride(-1);
  spatial::Operand result = flat;
  result.size = {flat.size[0], flat.size[1] / taps, taps, rows, row};
  result.stride = {flat.stride[0], taps * tap, tap, row * window, window};
  return result;
}

/// The sums of col2im(): every element of an image sums those of the columns that it stands in.
struct ColumnSums {
  const at::Tensor& out;
  spatial::Operand to, from;
  const FoldArguments& fold;
  at::ScalarType dtype, acc;
  int64_t taps;

  bool unit_stride() const { return fold.stride[0] == 1 && fold.stride[1] == 1; }
  int cost() const { return static_cast<int>(std::min<int64_t>(taps, 64)); }
};

constexpr Implementation<ColumnSums> by_lines{
    "lines",
    [](const ColumnSums& plan) -> const char* {
      if (!ocl::device(plan.out.device().index()).is_cpu()) return "a kernel for CPUs";
      if (at::isComplexType(plan.dtype)) return "complex numbers";
      return plan.to.stride[4] != 1 || plan.from.stride[4] != 1 ? "rows that are not contiguous"
                                                                : nullptr;
    },
    [](ColumnSums& plan) {
      spatial::run(
          col2im_lines_family,
          {{"IN", tag(plan.dtype)},
           {"ACC", tag(plan.acc)},
           {"UNIT_STRIDE", plan.unit_stride()},
           {"LINE", kLine}},
          {plan.to, plan.from},
          {.cost = std::max(plan.cost() / 4, 1), .longest_span = kLine, .along_width = true},
          plan.fold);
    }};
constexpr Implementation<ColumnSums> by_elements{
    "elements", [](const ColumnSums&) -> const char* { return nullptr; },
    [](ColumnSums& plan) {
      spatial::run(
          col2im_family,
          {{"IN", tag(plan.dtype)}, {"ACC", tag(plan.acc)}, {"UNIT_STRIDE", plan.unit_stride()}},
          {plan.to, plan.from}, {.cost = plan.cost()}, plan.fold);
    }};
constexpr const Implementation<ColumnSums>* kImplementations[] = {&by_lines, &by_elements};
const Engine engine{"col2im", kImplementations};

std::string describe(const ColumnSums& plan) {
  std::string line = "col2im";
  for (size_t d = 0; d < plan.to.size.size(); ++d) {
    line += (d == 0 ? " " : "x") + std::to_string(plan.to.size[d]);
  }
  return line + " " + tag(plan.dtype);
}

void check_dtype_of_columns(const char* name, at::ScalarType dtype) {
  check_supported(name, dtype,
                  dtype == at::kBool || at::isFloatingType(dtype) || at::isComplexType(dtype));
}

}  // namespace

at::Tensor& im2col_out(const at::Tensor& self, at::IntArrayRef kernel_size,
                       at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride,
                       at::Tensor& out) {
  const FoldArguments fold = fold_arguments(kernel_size, dilation, padding, stride);
  at::native::im2col_shape_check(self, at::Tensor(), kernel_size[0], kernel_size[1], dilation[0],
                                 dilation[1], padding[0], padding[1], stride[0], stride[1]);
  check_dtype_of_columns("im2col_out_cpu", self.scalar_type());
  check_same_dtype(out, self.scalar_type());
  const int64_t rows = windows(self.size(-2), fold, 0), row = windows(self.size(-1), fold, 1);
  c10::DimVector sizes{self.size(-3) * fold.kernel_size[0] * fold.kernel_size[1], rows * row};
  if (self.dim() == 4) sizes.insert(sizes.begin(), self.size(0));
  out.resize_(sizes);
  if (out.numel() == 0) return out;
  const spatial::Operand to = columns_operand(out, fold, rows, row);
  const spatial::Operand from = spatial::operand(self, 2);
  const size_t element = self.itemsize();
  const bool copies = ocl::device(self.device().index()).is_cpu() && element <= 8 &&
                      fold.stride[1] == 1 && to.stride[4] == 1 && from.stride[4] == 1;
  spatial::run(im2col_family,
               {{"E", element == 16 ? "u128" : bits_tag(element)}, {"COPY", copies ? 16 : 1}},
               {to, from}, {}, fold);
  return out;
}

at::Tensor im2col(const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef dilation,
                  at::IntArrayRef padding, at::IntArrayRef stride) {
  at::Tensor out = at::empty({0}, self.options());
  return im2col_out(self, kernel_size, dilation, padding, stride, out);
}

at::Tensor& col2im_out(const at::Tensor& self, at::IntArrayRef output_size,
                       at::IntArrayRef kernel_size, at::IntArrayRef dilation,
                       at::IntArrayRef padding, at::IntArrayRef stride, at::Tensor& out) {
  TORCH_CHECK(output_size.size() == 2, "It is expected output_size equals to 2, but got size ",
              output_size.size());
  const FoldArguments fold = fold_arguments(kernel_size, dilation, padding, stride);
  at::native::col2im_shape_check(self, at::Tensor(), output_size[0], output_size[1], kernel_size[0],
                                 kernel_size[1], dilation[0], dilation[1], padding[0], padding[1],
                                 stride[0], stride[1]);
  check_dtype_of_columns("col2im_out_cpu", self.scalar_type());
  check_same_dtype(out, self.scalar_type());
  const int64_t taps = int64_t{fold.kernel_size[0]} * fold.kernel_size[1];
  c10::DimVector sizes{self.size(-2) / taps, output_size[0], output_size[1]};
  if (self.dim() == 3) sizes.insert(sizes.begin(), self.size(0));
  out.resize_(sizes);
  if (out.numel() == 0) return out;
  const at::ScalarType dtype = self.scalar_type();
  // A sum of bools is their or.
  const at::ScalarType acc = dtype == at::kBool ? at::kInt : compute_dtype(dtype);
  const spatial::Operand to = spatial::operand(out, 2);
  const spatial::Operand from = columns_operand(self, fold, windows(output_size[0], fold, 0),
                                                windows(output_size[1], fold, 1));
  ColumnSums plan{out, to, from, fold, dtype, acc, taps};
  run_first(engine, kImplementations, plan, describe);
  return out;
}

at::Tensor col2im(const at::Tensor& self, at::IntArrayRef output_size, at::IntArrayRef kernel_size,
                  at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride) {
  at::Tensor out = at::empty({0}, self.options());
  return col2im_out(self, output_size, kernel_size, dilation, padding, stride, out);
}

}  // namespace ocl::native
