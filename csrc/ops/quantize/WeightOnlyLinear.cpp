// Linear layers whose weights alone are quantised: to int8 by rows, to 4 bits by groups of columns.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>

#include "ops/DtypeChecks.h"
#include "ops/_convert_weight_to_int4pack.h"
#include "ops/_convert_weight_to_int4pack_for_cpu.h"
#include "ops/_weight_int4pack_mm.h"
#include "ops/_weight_int4pack_mm_for_cpu.h"
#include "ops/_weight_int8pack_mm.h"
#include "ops/linalg/LinearAlgebra.h"
#include "ops/linalg/LinearPieces.h"
#include "ops/quantize/Int4.h"

namespace ocl::native {

using at::Tensor;

namespace {

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
  const auto sizes = {self.size(0), mat2.size(0)};
  Tensor out = at::empty(sizes, self.options());
  if (out.numel() == 0 || linear_in_one_launch(self, {{mat2}, {scales}}, {}, {}, out)) return out;
  // Scaled before it is rounded: sums of products with integers soon leave a half type's range.
  const bool is_float = self.scalar_type() == at::kFloat;
  const Tensor sums = is_float ? out : at::empty(sizes, self.options().dtype(at::kFloat));
  run_gemm(kName, self, mat2.t(), Tensor(), sums, 1, 0);
  return at::mul_out(out, sums, scales);
}

Tensor _convert_weight_to_int4pack_for_cpu(const Tensor& self, int64_t /*innerKTiles*/) {
  constexpr const char* kName = "_convert_weight_to_int4pack_ocl";
  TORCH_CHECK(self.dim() == 2, kName, ": expect weight to be 2D tensor.");
  TORCH_CHECK(self.scalar_type() == at::kInt, kName, ": expect weight to be kInt.");
  const int64_t n = self.size(0), k = self.size(1);
  TORCH_CHECK(n % 16 == 0, kName, ": expect N to be dividable by 16");
  // The least group that a product takes.
  TORCH_CHECK(k % kInt4Block == 0, kName, ": expect K to be dividable by ", kInt4Block);
  return int4_pack(self).first;
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
  return int4_pack(values.view({n, k}))
      .first.view(at::kInt)
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
  const Tensor out = at::empty({m, n}, self.options());
  const bool in_lanes = int4_lies_in_lanes(self, n);
  const Int4Matrix matrix{mat2, qScaleAndZeros.contiguous(), n, k, qGroupSize, in_lanes, false};
  int4_product(kName, self, matrix, Tensor(), at::kFloat, out);
  return out;
}

}  // namespace ocl::native
