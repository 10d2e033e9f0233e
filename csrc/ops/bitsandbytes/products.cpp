// Products with matrices of 4 bits.
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <c10/core/DeviceGuard.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/kernel_family.h"
#include "ops/bitsandbytes/blocks.h"
#include "ops/quantize/Aligned.h"
#include "runtime/stream.h"

namespace ocl::bitsandbytes {

namespace {

const KernelFamily product_family{"quantize/four_bits.cl", "product4"};
const KernelFamily group_family{"quantize/four_bits.cl", "product4_group"};

constexpr int64_t kMostRows = 8;  // of activations: past that, expanded weights pay
constexpr int64_t kStep = 32;     // columns that the kernels take at a time
constexpr uint32_t kWeightRows = 4;
constexpr uintptr_t kVector = 32;  // the bytes of 8 floats

/// A matrix [n, k] of 4 bits.
struct Matrix {
  Tensor bytes;
  int64_t n, k;
  Scales scales;
  uint32_t shift;
  const char* table;
};

/// out = x @ matrix.t() + bias for up to kMostRows rows of x; bias may be undefined.
void product_of_few_rows(const Tensor& x, const Matrix& matrix, const Tensor& bias,
                         const Tensor& out) {
  Queue& queue = current_queue(x.device().index());
  Device& device = queue.device();
  const int64_t rows = x.size(0);
  const uint32_t together = rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : 8;
  // Registers that the rows' sums leave.
  const uint32_t of_weights = together <= 4 ? kWeightRows : kWeightRows / 2;
  constexpr uint32_t kShare = 32;
  const bool cpu = device.is_cpu();
  std::array<Define, 7> defines{{{"E", tag(x.scalar_type())},
                                 {"TABLE", matrix.table},
                                 {"NQ", together},
                                 {cpu ? "ROWS" : "SHARE", cpu ? of_weights : kShare}}};
  size_t count = 4;
  if (!cpu) defines[count++] = {"ALIGNED_VECTORS", 1};
  if (bias.defined()) defines[count++] = {"BIAS", 1};
  if (matrix.scales.are_nested()) defines[count++] = {"NESTED", 1};
  const Tensor activations = cpu ? x : native::aligned(x, kVector),
               bytes = cpu ? matrix.bytes : native::aligned(matrix.bytes, kVector);
  const NDRange range = cpu ? NDRange::linear(ceil_div(matrix.n, of_weights), 4)
                            : NDRange::linear(matrix.n * kShare, 64);
  const Scales& scales = matrix.scales;
  launch((cpu ? product_family : group_family).get(device, {defines.data(), count}), queue, range,
         pointer(activations), pointer(bytes), pointer(scales.largest), pointer(scales.bytes),
         pointer(scales.table), pointer(scales.offset), pointer(bias),
         Pointer{out.mutable_data_ptr()}, static_cast<uint32_t>(rows),
         static_cast<uint32_t>(matrix.n), static_cast<uint32_t>(matrix.k), matrix.shift);
}

Tensor product(const Tensor& A, const Matrix& matrix, const Tensor& bias) {
  TORCH_CHECK(is_element(A.scalar_type()), "A must be float16, bfloat16, or float32, got ",
              A.scalar_type());
  TORCH_CHECK(A.dim() > 0 && A.size(-1) == matrix.k, "A inner dim (", A.dim() > 0 ? A.size(-1) : 0,
              ") must match shapeB (", matrix.k, ")");
  TORCH_CHECK(matrix.bytes.numel() * 2 >= matrix.n * matrix.k, "expected 4-bit values of shape [",
              matrix.n, ", ", matrix.k, "], got ", matrix.bytes.numel(), " bytes");
  matrix.scales.check(matrix.n * matrix.k, matrix.shift);
  const int64_t rows = matrix.k == 0 ? 0 : A.numel() / matrix.k;
  if (rows > 0 && rows <= kMostRows && matrix.n > 0 && matrix.k % kStep == 0 &&
      matrix.n <= INT32_MAX / 64 && matrix.k <= INT32_MAX) {
    std::vector<int64_t> shape = A.sizes().vec();
    shape.back() = matrix.n;
    const Tensor out = at::empty(shape, A.options());
    product_of_few_rows(A.contiguous().view({rows, matrix.k}), matrix,
                        bias.defined() ? bias.contiguous() : bias, out);
    return out;
  }
  const Tensor weights = at::empty({matrix.n, matrix.k}, A.options());
  decode4(matrix.bytes, matrix.scales, matrix.shift, matrix.table, weights);
  return at::linear(A, weights, bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
}

Matrix matrix_of(const Tensor& B, at::IntArrayRef shapeB, Scales scales, int64_t blocksize,
                 std::string_view quant_type) {
  TORCH_CHECK(shapeB.size() == 2, "shapeB must be 2D [N, K], got ", shapeB);
  return {bytes_of(B),       shapeB[0],           shapeB[1],
          std::move(scales), shift_of(blocksize), table_of(quant_type)};
}

}  // namespace

Tensor gemm_4bit(const Tensor& A, const Tensor& B, at::IntArrayRef shapeB, const Tensor& absmax,
                 int64_t blocksize, std::string_view quant_type, const std::optional<Tensor>& bias,
                 const std::optional<Tensor>& absmax_8bit, const std::optional<Tensor>& absmax_code,
                 const std::optional<Tensor>& absmax_offset) {
  const c10::DeviceGuard guard(A.device());
  Scales scales{absmax.contiguous()};
  if (absmax_8bit) {
    TORCH_CHECK(absmax_code, "absmax_code required when absmax_8bit is provided");
    TORCH_CHECK(absmax_offset, "absmax_offset required when absmax_8bit is provided");
    TORCH_CHECK(absmax_8bit->scalar_type() == at::kByte, "absmax_8bit must be uint8, got ",
                absmax_8bit->scalar_type());
    TORCH_CHECK(absmax_code->numel() == 256, "absmax_code must have 256 entries, got ",
                absmax_code->numel());
    TORCH_CHECK(absmax_code->scalar_type() == at::kFloat, "absmax_code must be float32, got ",
                absmax_code->scalar_type());
    TORCH_CHECK(absmax_offset->numel() == 1 && absmax_offset->scalar_type() == at::kFloat,
                "absmax_offset must be a scalar of float32");
    scales.bytes = absmax_8bit->contiguous();
    scales.table = absmax_code->contiguous();
    // A checkpoint may leave it on the CPU.
    scales.offset = absmax_offset->to(A.device());
  }
  if (bias) {
    TORCH_CHECK(bias->dim() == 1, "bias must be 1D, got ", bias->dim(), "D");
    TORCH_CHECK(shapeB.empty() || bias->size(0) == shapeB[0], "bias length (", bias->size(0),
                ") must match N (", shapeB[0], ")");
    TORCH_CHECK(bias->scalar_type() == A.scalar_type(), "bias dtype (", bias->scalar_type(),
                ") must match A dtype (", A.scalar_type(), ")");
  }
  return product(A, matrix_of(B, shapeB, std::move(scales), blocksize, quant_type),
                 bias ? *bias : Tensor());
}

Tensor gemv_4bit(const Tensor& A, const Tensor& B, at::IntArrayRef shapeB, const Tensor& absmax,
                 const Tensor& code, int64_t blocksize) {
  const c10::DeviceGuard guard(A.device());
  TORCH_CHECK(code.numel() == 16, "code must have 16 entries, got ", code.numel());
  // As upstream tells the two codes apart. It waits; gemm_4bit is what modules use.
  const bool is_fp4 = code.view(-1)[1].item<float>() > 0;
  return product(A, matrix_of(B, shapeB, {absmax.contiguous()}, blocksize, is_fp4 ? "fp4" : "nf4"),
                 Tensor());
}

void gemv_4bit_out(const Tensor& A, const Tensor& B, at::IntArrayRef shapeB, const Tensor& absmax,
                   const Tensor& code, int64_t blocksize, const Tensor& out) {
  const Tensor result = gemv_4bit(A, B, shapeB, absmax, code, blocksize);
  TORCH_CHECK(out.sizes() == result.sizes(), "Expected out.shape == ", result.sizes(), ", got ",
              out.sizes());
  TORCH_CHECK(out.scalar_type() == A.scalar_type(), "Expected out.dtype == ", A.scalar_type(),
              ", got ", out.scalar_type());
  out.copy_(result);
}

}  // namespace ocl::bitsandbytes
