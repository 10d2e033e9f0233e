// Matrices of 4-bit integers whose groups of columns have two numbers each, and their products.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace ocl::native {

/// kernels/quantize/int4.clh says what the numbers are. All tensors are contiguous.
struct Int4Matrix {
  at::Tensor bits;   // [n, k / 2] bytes
  at::Tensor pairs;  // [k / group, n, 2]
  int64_t n, k, group;
  bool in_lanes;    // the layout of int4_lanes.cl, n a multiple of 16; that of int4.cl otherwise
  bool has_points;  // the second of a pair is an integer, which is subtracted
};

constexpr int64_t kInt4Block = 32;  // columns that share 16 bytes; kernels/quantize/int4.cl
constexpr int64_t kInt4Lanes =
    16;  // rows that are a vector's lanes; kernels/quantize/int4_lanes.cl
constexpr int64_t kMostInt4Group = 256;

/// How the bits of a matrix with n rows lie on a tensor's device, for products of few rows.
bool int4_lies_in_lanes(const at::Tensor& tensor, int64_t n);

/// Integers [n, k] of 0 to 15 as bits, and whether they lie in lanes. k is a multiple of
/// kInt4Block.
std::pair<at::Tensor, bool> int4_pack(const at::Tensor& values);

/// out = x @ matrix.t() + bias for contiguous tensors [rows, k] and [rows, n]; bias may be
/// undefined. Where there are many rows the matrix is unpacked to this type, a part at a time.
void int4_product(const char* name, const at::Tensor& x, const Int4Matrix& matrix,
                  const at::Tensor& bias, at::ScalarType unpacked, const at::Tensor& out);

/// sums = x @ matrix for contiguous tensors [rows, n] and, in float, [rows, k].
void int4_transposed_product(const char* name, const at::Tensor& x, const Int4Matrix& matrix,
                             const at::Tensor& sums);

/// All numbers, to a contiguous tensor [n, k].
void int4_unpack(const Int4Matrix& matrix, const at::Tensor& out);

}  // namespace ocl::native
