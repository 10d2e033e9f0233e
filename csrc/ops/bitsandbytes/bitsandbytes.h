// bitsandbytes' ops on quantised tensors (torch.ops.bitsandbytes), by its schemas.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace ocl::bitsandbytes {

using at::Tensor;
using Two = std::tuple<Tensor, Tensor>;

/// Tensors of float32, float16 or bfloat16 as blocks of elements, each with its largest magnitude
/// (float32, one for a block) as scale.
///
/// In 4 bits: "nf4" or "fp4", two to a byte, as [bytes, 1] of any dtype of bytes; `blocksize` is a
/// power of two from 32 to 4096. `shape` is the tensor's.
Two quantize_4bit(const Tensor& A, int64_t blocksize, std::string_view quant_type,
                  at::ScalarType quant_storage);
Tensor dequantize_4bit(const Tensor& A, const Tensor& absmax, int64_t blocksize,
                       std::string_view quant_type, at::IntArrayRef shape, at::ScalarType dtype);
void dequantize_4bit_out(const Tensor& A, const Tensor& absmax, int64_t blocksize,
                         std::string_view quant_type, at::IntArrayRef shape, at::ScalarType dtype,
                         const Tensor& out);
/// In 8 bits: positions in `code`, 256 ascending float32 numbers.
Two quantize_blockwise(const Tensor& A, const Tensor& code, int64_t blocksize);
Tensor dequantize_blockwise(const Tensor& A, const Tensor& absmax, const Tensor& code,
                            int64_t blocksize, at::ScalarType dtype);
void dequantize_blockwise_out(const Tensor& A, const Tensor& absmax, const Tensor& code,
                              int64_t blocksize, at::ScalarType dtype, const Tensor& out);

/// A [..., k] times the transpose of a matrix of shapeB [n, k] in 4 bits, in A's dtype. If
/// absmax_8bit is given, scales are quantised, too: it has their bytes, absmax a float32 for each
/// 256 of them, and absmax_offset what is added. `code` is that of nf4 or of fp4; it is read.
Tensor gemm_4bit(const Tensor& A, const Tensor& B, at::IntArrayRef shapeB, const Tensor& absmax,
                 int64_t blocksize, std::string_view quant_type, const std::optional<Tensor>& bias,
                 const std::optional<Tensor>& absmax_8bit, const std::optional<Tensor>& absmax_code,
                 const std::optional<Tensor>& absmax_offset);
Tensor gemv_4bit(const Tensor& A, const Tensor& B, at::IntArrayRef shapeB, const Tensor& absmax,
                 const Tensor& code, int64_t blocksize);
void gemv_4bit_out(const Tensor& A, const Tensor& B, at::IntArrayRef shapeB, const Tensor& absmax,
                   const Tensor& code, int64_t blocksize, const Tensor& out);

/// A [..., k] times the transpose of B [n, k], both int8, as int32.
Tensor int8_linear_matmul(const Tensor& A, const Tensor& B);
void int8_linear_matmul_out(const Tensor& A, const Tensor& B, const Tensor& out);
/// Rows of A as int8, and their largest magnitudes in float32. With a threshold above 0, elements
/// from it on count as 0, and so do their columns, whose positions are the third result.
std::tuple<Tensor, Tensor, std::optional<Tensor>> int8_vectorwise_quant(const Tensor& A,
                                                                        double threshold);
/// Rows, columns, largest magnitudes of both, positions of columns that the threshold leaves out.
std::tuple<Tensor, Tensor, Tensor, Tensor, std::optional<Tensor>> int8_double_quant(
    const Tensor& A, double threshold);
/// The numbers that int8_linear_matmul's sums stand for, with the rows' and the columns' largest
/// magnitudes; in float16 if no dtype is given.
Tensor int8_mm_dequant(const Tensor& A, const Tensor& row_stats, const Tensor& col_stats,
                       std::optional<at::ScalarType> dtype, const std::optional<Tensor>& bias);

/// Makes these the functions of `ocl` tensors in the namespace "bitsandbytes", whose schemas must
/// exist. Returns what is not, because upstream's schema is another one: a message for each.
std::vector<std::string> register_ops();

}  // namespace ocl::bitsandbytes
