// torch_ocl::int4_*: linear layers whose weights are 4-bit integers, as GPTQ and AWQ make them.
// They serve torch_ocl/utils/int4.py.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "ops/quantize/Int4.h"

namespace ocl::native {

using at::Tensor;

namespace {

void check_dtype(at::ScalarType dtype, const char* what) {
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, "expected ",
              what, " of float32, float16 or bfloat16, got ", dtype);
}

Int4Matrix matrix_of(const Tensor& bits, const Tensor& pairs, bool in_lanes) {
  TORCH_CHECK(bits.scalar_type() == at::kByte && bits.dim() == 2,
              "expected bits as bytes of 2 dimensions, got ", bits.dim(), " dimensions of ",
              bits.scalar_type());
  const int64_t n = bits.size(0), k = 2 * bits.size(1);
  TORCH_CHECK(n <= INT32_MAX && k <= INT32_MAX, "a matrix of sizes [", n, ", ", k,
              "] is too large");
  TORCH_CHECK(!in_lanes || n % kInt4Lanes == 0, "expected a multiple of ", kInt4Lanes,
              " rows in lanes, got ", n);
  check_dtype(pairs.scalar_type(), "scales and points");
  TORCH_CHECK(pairs.dim() == 3 && pairs.size(1) == n && pairs.size(2) == 2 &&
                  pairs.device() == bits.device(),
              "expected scales and points of sizes [groups, ", n, ", 2] on ", bits.device(),
              ", got ", pairs.sizes(), " on ", pairs.device());
  const int64_t groups = pairs.size(0), group = groups == 0 ? 0 : k / groups;
  TORCH_CHECK(group * groups == k && group % kInt4Block == 0 && group <= kMostInt4Group,
              "expected groups of a multiple of ", kInt4Block, " columns, ", kMostInt4Group,
              " at most, got ", groups, " groups of ", k, " columns");
  return {bits.contiguous(), pairs.contiguous(), n, k, group, in_lanes, true};
}

void check_order(const std::optional<Tensor>& order, const Int4Matrix& matrix) {
  TORCH_CHECK(!order || (order->scalar_type() == at::kInt && order->dim() == 1 &&
                         order->size(0) == matrix.k && order->device() == matrix.bits.device()),
              "expected an order of ", matrix.k, " columns as int32 on ", matrix.bits.device());
}

void check_operand(const char* name, const Tensor& input, const Int4Matrix& matrix,
                   int64_t expected) {
  check_dtype(input.scalar_type(), "an input");
  TORCH_CHECK(input.device() == matrix.bits.device(), name, ": the input is on ", input.device(),
              " but the weight on ", matrix.bits.device());
  TORCH_CHECK(input.dim() > 0 && input.size(-1) == expected, name, ": an input of sizes ",
              input.sizes(), " does not go with ", expected, " features");
}

std::vector<int64_t> with_last(const Tensor& tensor, int64_t size) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.back() = size;
  return sizes;
}

Tensor as_rows(const Tensor& tensor, int64_t rows, int64_t columns) {
  return tensor.resolve_neg().contiguous().view({rows, columns});
}

/// A tensor whose column order[i] is column i of the given one.
Tensor put_back(const Tensor& sorted, const std::optional<Tensor>& order) {
  return order ? at::empty_like(sorted).index_copy_(-1, order->to(at::kLong), sorted) : sorted;
}

}  // namespace

std::tuple<Tensor, bool> int4_packed(const Tensor& values) {
  const c10::DeviceGuard guard(values.device());
  TORCH_CHECK(
      values.scalar_type() == at::kByte && values.dim() == 2 && values.size(1) % kInt4Block == 0,
      "expected integers as bytes of 2 dimensions, with a multiple of ", kInt4Block,
      " columns, got sizes ", values.sizes(), " of ", values.scalar_type());
  return int4_pack(values);
}

Tensor int4_dequantize(const Tensor& bits, const Tensor& pairs, const std::optional<Tensor>& order,
                       bool in_lanes, at::ScalarType dtype) {
  const c10::DeviceGuard guard(bits.device());
  check_dtype(dtype, "numbers");
  const Int4Matrix matrix = matrix_of(bits, pairs, in_lanes);
  check_order(order, matrix);
  const Tensor out = at::empty({matrix.n, matrix.k}, bits.options().dtype(dtype));
  int4_unpack(matrix, out);
  return put_back(out, order);
}

Tensor int4_linear(const Tensor& input, const Tensor& bits, const Tensor& pairs,
                   const std::optional<Tensor>& order, bool in_lanes,
                   const std::optional<Tensor>& bias) {
  const c10::DeviceGuard guard(input.device());
  const Int4Matrix matrix = matrix_of(bits, pairs, in_lanes);
  check_operand("linear", input, matrix, matrix.k);
  check_order(order, matrix);
  TORCH_CHECK(
      !bias || (bias->dim() == 1 && bias->size(0) == matrix.n &&
                bias->scalar_type() == input.scalar_type() && bias->device() == input.device()),
      "linear: expected a bias of ", matrix.n, " elements of ", input.scalar_type(), " on ",
      input.device());
  Tensor out = at::empty(with_last(input, matrix.n), input.options());
  if (out.numel() == 0) return out;
  const int64_t rows = out.numel() / matrix.n;
  const Tensor x = as_rows(order ? input.index_select(-1, *order) : input, rows, matrix.k);
  int4_product("linear", x, matrix, bias ? bias->resolve_neg().contiguous() : Tensor(),
               input.scalar_type(), out.view({rows, matrix.n}));
  return out;
}

Tensor int4_linear_gradient(const Tensor& grad, const Tensor& bits, const Tensor& pairs,
                            const std::optional<Tensor>& order, bool in_lanes) {
  const c10::DeviceGuard guard(grad.device());
  const Int4Matrix matrix = matrix_of(bits, pairs, in_lanes);
  check_operand("linear_backward", grad, matrix, matrix.n);
  check_order(order, matrix);
  // Sums of several parts stay float32 until all are there.
  const Tensor sums = at::empty(with_last(grad, matrix.k), grad.options().dtype(at::kFloat));
  if (sums.numel() > 0) {
    const int64_t rows = sums.numel() / matrix.k;
    int4_transposed_product("linear_backward", as_rows(grad, rows, matrix.n), matrix,
                            sums.view({rows, matrix.k}));
  }
  return put_back(sums.to(grad.scalar_type()), order);
}

TORCH_LIBRARY_FRAGMENT(torch_ocl, library) {
  library.def("int4_pack(Tensor values) -> (Tensor, bool)");
  library.def(
      "int4_dequantize(Tensor bits, Tensor pairs, Tensor? order, bool in_lanes, ScalarType dtype) "
      "-> Tensor");
  library.def(
      "int4_linear(Tensor input, Tensor bits, Tensor pairs, Tensor? order, bool in_lanes, "
      "Tensor? bias) -> Tensor");
  library.def(
      "int4_linear_gradient(Tensor grad, Tensor bits, Tensor pairs, Tensor? order, "
      "bool in_lanes) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_ocl, PrivateUse1, library) {
  library.impl("int4_pack", TORCH_FN(int4_packed));
  library.impl("int4_dequantize", TORCH_FN(int4_dequantize));
  library.impl("int4_linear", TORCH_FN(int4_linear));
  library.impl("int4_linear_gradient", TORCH_FN(int4_linear_gradient));
}

}  // namespace ocl::native
