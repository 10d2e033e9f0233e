// Linear layers of one input as one product.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "engine/epilogue.h"

namespace ocl::native {

/// The rows of an input are divided by the root of epsilon and their squares' mean first, and
/// multiplied by weight + shift.
struct RmsNorm {
  double epsilon;
  at::Tensor weight;
  double shift;
};

/// Weights with as many columns each, whose results lie side by side.
///
/// Without scales they are matrices of the input's dtype. Otherwise there are scales for each: of a
/// matrix of int8 a number for each row, of one of 4 bits a pair for each group of columns and row,
/// [groups, rows, 2], whose second number is a point where `has_points`. The bits are bytes
/// [rows, columns / 2], as int4_pack() makes them on a GPU.
struct LinearWeights {
  std::vector<at::Tensor> weights, scales;
  bool has_points = false;

  int64_t rows() const;
  bool has_four_bits() const {
    return !scales.empty() && weights.front().scalar_type() == at::kByte;
  }
};

/// out = input @ weight^T for each weight, if one launch does it. False, and nothing is enqueued,
/// where not: it takes few rows, and strides and addresses that vectors can have. A bias, of all
/// columns and the dtype of `out`, is added; it may be undefined.
bool linear_in_one_launch(const at::Tensor& input, const LinearWeights& weights,
                          const std::optional<RmsNorm>& norm, const at::Tensor& bias,
                          const at::Tensor& out);

/// torch.ops.ocl.linear_pieces with an epilogue, which gets the elements of the result.
void linear_pieces_with_epilogue(const at::Tensor& input, std::span<const at::Tensor> weights,
                                 std::span<const at::Tensor> scales, bool has_points,
                                 const std::optional<RmsNorm>& norm, at::ScalarType dtype,
                                 const Epilogue& epilogue);

}  // namespace ocl::native
