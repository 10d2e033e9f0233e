// Products of dynamically quantised activations (int8 by rows) with 4-bit weights, through other
// ops.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "ops/_dyn_quant_matmul_4bit.h"
#include "ops/_dyn_quant_pack_4bit_weight.h"

namespace ocl::native {

using at::Tensor;

namespace {

struct Quantised {
  Tensor values, offset, scale;  // x is about (values - offset) * scale, a row at a time
};

/// Ties away from zero, as std::round.
Tensor round_away(const Tensor& x) {
  const Tensor whole = x.trunc();
  return at::where(x.sub(whole).abs().eq(0.5), whole.add(x.sign()), x.round());
}

Quantised quantise_rows(const Tensor& x) {
  constexpr double kLowest = -128, kHighest = 127;
  const auto [low, high] = at::aminmax(x, 1, true);
  const Tensor least = low.clamp_max(0), most = high.clamp_min(0), range = most.sub(least);
  const Tensor scale = at::where(range.eq(0), 1.0, range.reciprocal().mul(kHighest - kLowest));
  const Tensor from = least.mul(scale), to = most.mul(scale);
  // From the end whose error is smaller; zero is a point of the grid.
  const Tensor exact = at::where(from.add(kLowest).add(to.add(kHighest)).gt(0),
                                 from.neg().add(kLowest), to.neg().add(kHighest));
  const Tensor offset = exact.clamp(kLowest, kHighest).round();
  const Tensor values = round_away(x.mul(scale)).add(offset).clamp(kLowest, kHighest);
  return {values.to(at::kChar), offset.to(at::kInt), scale.reciprocal()};
}

void check_features(int64_t in_features, int64_t out_features, int64_t block_size) {
  TORCH_CHECK(
      in_features > 0 && out_features > 0 && in_features % 2 == 0 && block_size > 0 &&
          in_features % block_size == 0,
      "_dyn_quant_matmul_4bit: expected an even number of input features, a multiple of the "
      "block size, got ",
      in_features, " and ", block_size);
}

}  // namespace

Tensor _dyn_quant_pack_4bit_weight(const Tensor& weights, const Tensor& scales_zeros,
                                   const std::optional<Tensor>& bias, int64_t block_size,
                                   int64_t in_features, int64_t out_features) {
  TORCH_CHECK(weights.scalar_type() == at::kByte,
              "_dyn_quant_pack_4bit_weight: expect weight to be kByte.");
  check_features(in_features, out_features, block_size);
  std::vector<Tensor> parts{weights.reshape(-1).to(at::kFloat),
                            scales_zeros.reshape(-1).to(at::kFloat)};
  if (bias.has_value()) parts.push_back(bias->reshape(-1).to(at::kFloat));
  return at::cat(parts, 0);
}

Tensor _dyn_quant_matmul_4bit(const Tensor& inp, const Tensor& packed_weights, int64_t block_size,
                              int64_t in_features, int64_t out_features) {
  const bool channels = block_size == in_features;
  TORCH_CHECK(inp.dim() == 2 && inp.size(1) == in_features,
              "_dyn_quant_matmul_4bit: expect input to be 2D with ", in_features, " columns");
  TORCH_CHECK(
      inp.scalar_type() == at::kFloat || (inp.scalar_type() == at::kBFloat16 && channels),
      "_dyn_quant_matmul_4bit: expect input to be float32, or bfloat16 with a scale per row "
      "of the weights");
  check_features(in_features, out_features, block_size);
  TORCH_CHECK(channels || block_size % 32 == 0, "Unsupported block size for FP32 fallback");
  const int64_t bytes = out_features * in_features / 2, blocks = in_features / block_size;
  TORCH_CHECK(packed_weights.numel() >= bytes + out_features * blocks,
              "_dyn_quant_matmul_4bit: too few packed weights");
  const Tensor pairs = packed_weights.narrow(0, 0, bytes).to(at::kByte);
  const Tensor weights = at::stack({pairs.bitwise_and(15), pairs.bitwise_right_shift(4)}, 1)
                             .to(at::kChar)
                             .sub_(8)
                             .view({out_features, in_features});
  const Tensor scales = packed_weights.narrow(0, bytes, out_features * blocks)
                            .to(at::kFloat)
                            .view({out_features, blocks});
  const Quantised x = quantise_rows(inp.to(at::kFloat));
  Tensor sums;
  for (int64_t block = 0; block < blocks; ++block) {
    const Tensor part = weights.narrow(1, block * block_size, block_size);
    const Tensor products =
        at::_int_mm(x.values.narrow(1, block * block_size, block_size), part.t());
    const Tensor whole = products.sub(x.offset.mul(part.sum(1, false, at::kInt)));
    const Tensor scaled = whole.to(at::kFloat).mul(scales.select(1, block));
    sums = sums.defined() ? sums.add_(scaled) : scaled;
  }
  sums = sums.mul(x.scale);
  const Tensor bias = packed_weights.narrow(0, bytes + scales.numel(),
                                            packed_weights.numel() - bytes - scales.numel());
  if (bias.numel() == out_features) sums.add_(bias);
  return sums.to(inp.scalar_type());
}

}  // namespace ocl::native
