// Products of rows quantised to int8: LLM.int8().
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nonzero.h>
#include <c10/core/DeviceGuard.h>

#include <bit>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/kernel_family.h"
#include "ops/bitsandbytes/blocks.h"
#include "runtime/stream.h"

namespace ocl::bitsandbytes {

namespace {

const KernelFamily encode_family{"quantize/integer_rows.cl", "encode_rows"};
const KernelFamily decode_family{"quantize/integer_rows.cl", "decode_sums"};

/// Work-items of a group that shares a row.
constexpr int64_t kGroup = 256;

std::vector<int64_t> product_shape(const Tensor& A, const Tensor& B) {
  TORCH_CHECK(A.scalar_type() == at::kChar, "A must be int8");
  TORCH_CHECK(B.scalar_type() == at::kChar, "B must be int8");
  TORCH_CHECK(A.dim() > 0 && B.dim() == 2 && A.size(-1) == B.size(1),
              "int8_linear_matmul: expected A [..., k] and B [n, k], got ", A.sizes(), " and ",
              B.sizes());
  std::vector<int64_t> shape = A.sizes().vec();
  shape.back() = B.size(0);
  return shape;
}

/// The bits of the least magnitude that is left out, in the dtype that upstream compares in.
uint32_t limit_of(double threshold, at::ScalarType dtype) {
  constexpr uint32_t kNone = 0x80000000;  // past NaN's
  if (threshold <= 0) return kNone;
  auto limit = static_cast<float>(threshold);
  if (dtype == at::kHalf) limit = static_cast<float>(at::Half(limit));
  if (dtype == at::kBFloat16) limit = static_cast<float>(at::BFloat16(limit));
  return std::bit_cast<uint32_t>(limit);
}

void check_input(const Tensor& A) {
  TORCH_CHECK(is_element(A.scalar_type()) && A.dim() > 0,
              "expected A with rows of float32, float16 or bfloat16, got ", A.scalar_type());
}

/// The rows of A [rows, columns], which is contiguous, as int8 with their scales; `skip` (bytes, or
/// undefined) says which columns become 0.
Two encode(const Tensor& A, int64_t columns, uint32_t limit, const Tensor& skip) {
  const int64_t rows = columns == 0 ? 0 : A.numel() / columns;
  TORCH_CHECK(columns <= INT32_MAX, "rows of more than 2^31 elements");
  const Tensor out = at::empty(A.sizes(), A.options().dtype(at::kChar));
  const Tensor scales = at::empty({rows}, A.options().dtype(at::kFloat));
  if (rows == 0) return {out, scales};
  Queue& queue = current_queue(A.device().index());
  Device& device = queue.device();
  const int64_t group = device.is_cpu() ? 1 : kGroup;
  launch(encode_family.get(device, {{"E", tag(A.scalar_type())}, {"GROUP", group}}), queue,
         NDRange::linear(static_cast<size_t>(rows * group), static_cast<size_t>(group)), pointer(A),
         pointer(skip), Pointer{scales.mutable_data_ptr()}, Pointer{out.mutable_data_ptr()},
         static_cast<uint32_t>(columns), limit);
  return {out, scales};
}

}  // namespace

Tensor int8_linear_matmul(const Tensor& A, const Tensor& B) {
  const std::vector<int64_t> shape = product_shape(A, B);
  return at::_int_mm(A.reshape({-1, B.size(1)}), B.t()).view(shape);
}

void int8_linear_matmul_out(const Tensor& A, const Tensor& B, const Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kInt, "Expected out.dtype == int32, got ",
              out.scalar_type());
  TORCH_CHECK(out.sizes() == product_shape(A, B),
              "Expected out.shape == ", at::IntArrayRef(product_shape(A, B)), ", got ",
              out.sizes());
  out.copy_(int8_linear_matmul(A, B));
}

std::tuple<Tensor, Tensor, std::optional<Tensor>> int8_vectorwise_quant(const Tensor& A,
                                                                        double threshold) {
  const c10::DeviceGuard guard(A.device());
  check_input(A);
  const Tensor in = A.contiguous();
  const int64_t columns = A.size(-1), rows = columns == 0 ? 0 : A.numel() / columns;
  const uint32_t limit = limit_of(threshold, A.scalar_type());
  if (threshold <= 0) {
    auto [out, scales] = encode(in, columns, limit, Tensor());
    return {out, scales, std::nullopt};
  }
  const Tensor is_left_out = in.view({rows, columns}).abs().ge(threshold).any(0);
  // A single row has its outliers alone in these columns.
  auto [out, scales] = encode(in, columns, limit, rows > 1 ? is_left_out : Tensor());
  return {out, scales, at::nonzero(is_left_out).view(-1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, std::optional<Tensor>> int8_double_quant(
    const Tensor& A, double threshold) {
  const c10::DeviceGuard guard(A.device());
  auto [rows, row_scales, left_out] = int8_vectorwise_quant(A, threshold);
  const Tensor flat = A.reshape({-1, A.size(-1)});
  auto [columns, column_scales] =
      encode(flat.t().contiguous(), flat.size(0), limit_of(threshold, A.scalar_type()), Tensor());
  return {rows, columns.t().contiguous().view(A.sizes()), row_scales, column_scales, left_out};
}

Tensor int8_mm_dequant(const Tensor& A, const Tensor& row_stats, const Tensor& col_stats,
                       std::optional<at::ScalarType> dtype, const std::optional<Tensor>& bias) {
  const c10::DeviceGuard guard(A.device());
  const at::ScalarType type = dtype.value_or(at::kHalf);
  TORCH_CHECK(A.scalar_type() == at::kInt && A.dim() > 0, "A must be int32, got ", A.scalar_type());
  TORCH_CHECK(row_stats.scalar_type() == at::kFloat, "row_stats must be float32, got ",
              row_stats.scalar_type());
  TORCH_CHECK(col_stats.scalar_type() == at::kFloat, "col_stats must be float32, got ",
              col_stats.scalar_type());
  TORCH_CHECK(is_element(type), "int8_mm_dequant: only 16/32-bit floats are supported, but got ",
              type);
  const int64_t columns = A.size(-1), rows = columns == 0 ? 0 : A.numel() / columns;
  TORCH_CHECK(row_stats.numel() == rows && col_stats.numel() == columns,
              "int8_mm_dequant: expected ", rows, " and ", columns, " scales, got ",
              row_stats.numel(), " and ", col_stats.numel());
  TORCH_CHECK(!bias || (bias->numel() == columns && is_element(bias->scalar_type())),
              "int8_mm_dequant: expected a bias of ", columns, " elements");
  const Tensor out = at::empty(A.sizes(), A.options().dtype(type));
  if (A.numel() == 0) return out;
  const Tensor in = A.contiguous(), of_rows = row_stats.contiguous(),
               of_columns = col_stats.contiguous();
  const Tensor added = bias ? bias->contiguous() : Tensor();
  Queue& queue = current_queue(A.device().index());
  Device& device = queue.device();
  Kernel& kernel =
      bias ? decode_family.get(device, {{"E", tag(type)}, {"BIAS", tag(bias->scalar_type())}})
           : decode_family.get(device, {{"E", tag(type)}});
  launch(kernel, queue,
         NDRange::grid(static_cast<size_t>(columns), static_cast<size_t>(rows),
                       group_of_elements(device), 1),
         pointer(in), pointer(of_rows), pointer(of_columns), pointer(added),
         Pointer{out.mutable_data_ptr()}, static_cast<uint32_t>(rows),
         static_cast<uint32_t>(columns));
  return out;
}

}  // namespace ocl::bitsandbytes
