// Linear layers whose weights alone are quantised: to int8 by rows, to 4 bits by groups of columns.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/DtypeChecks.h"
#include "ops/_convert_weight_to_int4pack.h"
#include "ops/_convert_weight_to_int4pack_for_cpu.h"
#include "ops/_weight_int4pack_mm.h"
#include "ops/_weight_int4pack_mm_for_cpu.h"
#include "ops/_weight_int8pack_mm.h"
#include "ops/linalg/LinearAlgebra.h"
#include "ops/quantize/Aligned.h"
#include "runtime/stream.h"

namespace ocl::native {

using at::Tensor;

namespace {

const KernelFamily product_family{"quantize/int4_lanes.cl", "int4_product_lanes"};
const KernelFamily group_family{"quantize/int4.cl", "int4_product_group"};
const KernelFamily expand_lanes_family{"quantize/int4_lanes.cl", "int4_expand_lanes"};
const KernelFamily expand_family{"quantize/int4.cl", "int4_expand"};

constexpr int64_t kBlock = 32;     // columns that share 16 bytes; kernels/quantize/int4.cl
constexpr int64_t kMostRows = 8;   // of activations: past that, expanded weights pay
constexpr int64_t kLanes = 16;     // rows that are a vector's lanes; kernels/quantize/int4_lanes.cl
constexpr uintptr_t kVector = 32;  // the bytes of 8 floats

void check_activations(const char* name, const Tensor& self) {
  const at::ScalarType dtype = self.scalar_type();
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, name,
              ": expect A to be either 32-bit or 16-bit float tensor.");
  TORCH_CHECK(self.is_contiguous(), name, ": expect A to be contiguous.");
  TORCH_CHECK(self.dim() == 2, name, ": expect A to be 2D tensor.");
}

void check_weights(const char* name, const Tensor& mat2, at::ScalarType dtype,
                   const char* dtype_name) {
  TORCH_CHECK(mat2.scalar_type() == dtype, name, ": expect B to be ", dtype_name, " tensor.");
  TORCH_CHECK(mat2.is_contiguous(), name, ": expect B to be contiguous.");
}

Pointer pointer(const Tensor& tensor) { return Pointer{tensor.const_data_ptr()}; }

/// [n, k] values of 0 to 15 as the [n, k / 2] bytes of kernels/quantize/int4_lanes.cl on CPUs, of
/// int4.cl on GPUs.
Tensor packed(const Tensor& values) {
  const int64_t n = values.size(0), k = values.size(1);
  if (device(values.device().index()).is_cpu() && n % kLanes == 0) {
    const Tensor lanes = values.reshape({n / kLanes, kLanes, k / 2, 2}).transpose(1, 2);
    return at::add(lanes.select(3, 0), lanes.select(3, 1), 16)
        .to(at::kByte)
        .contiguous()
        .view({n, k / 2});
  }
  const Tensor blocks = values.reshape({n, k / kBlock, 2, kBlock / 2});
  const Tensor bytes = at::add(blocks.select(2, 0), blocks.select(2, 1), 16);
  return bytes.to(at::kByte).view({n, k / 2});
}

}  // namespace

Tensor _weight_int8pack_mm(const Tensor& self, const Tensor& mat2, const Tensor& scales) {
  constexpr const char* kName = "_weight_int8pack_mm_ocl";
  check_activations(kName, self);
  check_weights(kName, mat2, at::kChar, "int8");
  TORCH_CHECK(mat2.dim() == 2 && mat2.size(1) == self.size(1), kName,
              ": expect B.size(1) == ", self.size(1));
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == mat2.size(0), kName,
              ": expect scales to be 1d tensor with size ", mat2.size(0));
  check_same_dtype(scales, self.scalar_type());
  // Scaled before it is rounded: sums of products with integers soon leave a half type's range.
  const auto sizes = {self.size(0), mat2.size(0)};
  const Tensor sums = at::empty(sizes, self.options().dtype(at::kFloat));
  run_gemm(kName, self, mat2.t(), Tensor(), sums, 1, 0);
  Tensor out = self.scalar_type() == at::kFloat ? sums : at::empty(sizes, self.options());
  return at::mul_out(out, sums, scales);
}

Tensor _convert_weight_to_int4pack_for_cpu(const Tensor& self, int64_t /*innerKTiles*/) {
  constexpr const char* kName = "_convert_weight_to_int4pack_ocl";
  TORCH_CHECK(self.dim() == 2, kName, ": expect weight to be 2D tensor.");
  TORCH_CHECK(self.scalar_type() == at::kInt, kName, ": expect weight to be kInt.");
  const int64_t n = self.size(0), k = self.size(1);
  TORCH_CHECK(n % 16 == 0, kName, ": expect N to be dividable by 16");
  // The least group that a product takes.
  TORCH_CHECK(k % kBlock == 0, kName, ": expect K to be dividable by ", kBlock);
  return packed(self);
}

Tensor _convert_weight_to_int4pack(const Tensor& self, int64_t innerKTiles) {
  constexpr const char* kName = "_convert_weight_to_int4pack_ocl";
  TORCH_CHECK(self.dim() == 2 && self.scalar_type() == at::kByte, kName,
              ": expect weight to be a 2D tensor of uint8.");
  TORCH_CHECK(innerKTiles == 2 || innerKTiles == 4 || innerKTiles == 8, kName,
              ": expect innerKTiles to be 2, 4 or 8, got ", innerKTiles);
  const int64_t n = self.size(0), k = self.size(1) * 2;
  TORCH_CHECK(n % 8 == 0 && k % (innerKTiles * 16) == 0, kName,
              ": expect N to be dividable by 8 and K by ", innerKTiles * 16);
  // The first of two values is in the high half.
  const Tensor values = at::stack({self.bitwise_right_shift(4), self.bitwise_and(15)}, 2);
  return packed(values.view({n, k}))
      .view(at::kInt)
      .view({n / 8, k / (innerKTiles * 16), 32, innerKTiles / 2});
}

Tensor _weight_int4pack_mm(const Tensor& self, const Tensor& mat2, int64_t qGroupSize,
                           const Tensor& qScaleAndZeros) {
  constexpr const char* kName = "_weight_int4pack_mm_ocl";
  TORCH_CHECK(mat2.scalar_type() == at::kInt && mat2.dim() == 4 && mat2.is_contiguous(), kName,
              ": expect B to be a contiguous 4D tensor of int32.");
  const int64_t n = mat2.size(0) * 8, k = mat2.size(1) * mat2.size(3) * 32;
  return _weight_int4pack_mm_for_cpu(self, mat2.view(-1).view(at::kByte).view({n, k / 2}),
                                     qGroupSize, qScaleAndZeros);
}

Tensor _weight_int4pack_mm_for_cpu(const Tensor& self, const Tensor& mat2, int64_t qGroupSize,
                                   const Tensor& qScaleAndZeros) {
  constexpr const char* kName = "_weight_int4pack_mm_ocl";
  check_activations(kName, self);
  check_weights(kName, mat2, at::kByte, "uint8");
  const int64_t m = self.size(0), n = mat2.size(0), k = self.size(1);
  TORCH_CHECK(mat2.dim() == 2 && mat2.size(1) == k / 2, kName, ": expect B.size(1) to be K/2, got ",
              mat2.size(1));
  TORCH_CHECK(qGroupSize == 32 || qGroupSize == 64 || qGroupSize == 128 || qGroupSize == 256, kName,
              ": expect qGroupSize to be 32, 64, 128 or 256, got ", qGroupSize);
  TORCH_CHECK(k % qGroupSize == 0, kName, ": expect K to be divisible by qGroupSize, got K:", k,
              ", qGroupSize:", qGroupSize);
  TORCH_CHECK(qScaleAndZeros.dim() == 3 && qScaleAndZeros.size(0) == k / qGroupSize &&
                  qScaleAndZeros.size(1) == n && qScaleAndZeros.size(2) == 2,
              kName, ": expect qScaleAndZeros to be 3d tensor with sizes [", k / qGroupSize, ", ",
              n, ", 2]");
  TORCH_CHECK(n % 8 == 0 && n <= INT32_MAX && k <= INT32_MAX, kName,
              ": expect N to be dividable by 16");
  check_same_dtype(qScaleAndZeros, self.scalar_type());
  const Tensor scales = qScaleAndZeros.contiguous();
  Tensor out = at::empty({m, n}, self.options());
  Queue& queue = current_queue(self.device().index());
  Device& device = queue.device();
  const bool cpu = device.is_cpu(), lanes = cpu && n % kLanes == 0;
  const char* type = tag(self.scalar_type());
  const auto rows = static_cast<uint32_t>(m), columns = static_cast<uint32_t>(n),
             depth = static_cast<uint32_t>(k), group = static_cast<uint32_t>(qGroupSize);
  if (m <= kMostRows && (lanes || !cpu)) {
    const uint32_t together = m <= 1 ? 1 : m <= 2 ? 2 : m <= 4 ? 4 : 8;
    if (m == 0) return out;
    if (!cpu) {
      constexpr int64_t kShare = 32;
      const Tensor x = aligned(self, kVector), weights = aligned(mat2, kVector),
                   factors = aligned(scales, kVector);
      launch(
          group_family.get(
              device, {{"TAG", type}, {"NQ", together}, {"SHARE", kShare}, {"ALIGNED_VECTORS", 1}}),
          queue, NDRange::linear(n * kShare, group_of_lanes(device)), pointer(x), pointer(weights),
          pointer(factors), pointer(out), rows, columns, depth, group);
      return out;
    }
    // Registers that the rows' sums leave.
    const uint32_t of_weights = together <= 2 ? 64 : together <= 4 ? 32 : 16;
    Kernel& kernel =
        product_family.get(device, {{"TAG", type}, {"ROWS", of_weights}, {"NQ", together}});
    launch(kernel, queue, NDRange::linear(ceil_div(columns, of_weights), 1), pointer(self),
           pointer(mat2), pointer(scales), pointer(out), rows, columns, depth, group);
    return out;
  }
  const Tensor weights = at::empty({n, k}, self.options().dtype(at::kFloat));
  launch((lanes ? expand_lanes_family : expand_family).get(device, {{"TAG", type}}), queue,
         lanes ? NDRange::grid(k / kLanes, n / kLanes, 1, 1)
               : NDRange::linear(n * (k / kBlock), group_of_lanes(device)),
         pointer(mat2), pointer(scales), pointer(weights), columns, depth, group);
  run_gemm(kName, self, weights.t(), Tensor(), out, 1, 0);
  return out;
}

}  // namespace ocl::native
