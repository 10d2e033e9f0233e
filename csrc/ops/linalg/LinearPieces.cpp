// Linear layers of one input, as one product, with the RMS norm before them where there is one:
// torch.compile asks for it (inductor/passes).
#include "ops/linalg/LinearPieces.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "ops/linalg/GemmEpilogue.h"
#include "ops/linalg/LinearAlgebra.h"
#include "ops/quantize/Int4.h"

namespace ocl::native {

using at::Tensor;

int64_t LinearWeights::rows() const {
  int64_t rows = 0;
  for (const Tensor& weight : weights) rows += weight.size(0);
  return rows;
}

namespace {

Int4Matrix matrix_of(const LinearWeights& of, size_t i) {
  const Tensor &bits = of.weights[i], &pairs = of.scales[i];
  const int64_t k = 2 * bits.size(1);
  return {bits, pairs, bits.size(0), k, k / pairs.size(0), false, of.has_points};
}

/// How the columns are scaled, or nothing where one kernel can't have them so.
std::optional<gemm::ScalesOfB> scales_of(const LinearWeights& of) {
  const Tensor& first = of.scales.front();
  const bool four_bits = of.has_four_bits();
  const auto fits = [&](const Tensor& scales) {
    return scales.is_contiguous() && !scales.is_neg() &&
           scales.scalar_type() == first.scalar_type() &&
           (!four_bits || scales.size(0) == first.size(0));
  };
  if (!std::ranges::all_of(of.scales, fits)) return std::nullopt;
  gemm::ScalesOfB scales;
  scales.dtype = first.scalar_type();
  scales.has_points = of.has_points;
  if (four_bits) scales.group = 2 * of.weights.front().size(1) / first.size(0);
  for (size_t i = 0; i < of.scales.size(); ++i) scales.data[i] = of.scales[i].const_data_ptr();
  return scales;
}

bool in_one_launch(const Tensor& input, const LinearWeights& of, const std::optional<RmsNorm>& norm,
                   const Tensor& bias, gemm::Description& description, const Epilogue* epilogue) {
  const Tensor& first = of.weights.front();
  const auto fits = [&](const Tensor& weight) {
    return weight.strides() == first.strides() && weight.is_conj() == first.is_conj() &&
           !weight.is_neg() && weight.size(0) > 0;
  };
  if (of.weights.size() > gemm::kMostPieces || !std::ranges::all_of(of.weights, fits) ||
      input.is_neg() || input.size(1) == 0) {
    return false;
  }
  gemm::PiecesOfB pieces;
  description.m = input.size(0);
  description.n = of.rows();
  description.k = input.size(1);
  description.a = gemm_operand(input);
  description.b = gemm_operand(first.t());
  Tensor addend;
  if (bias.defined()) {
    addend = bias.expand({description.m, description.n});
    description.c = gemm_operand(addend);
    description.beta = 1;
  }
  pieces.second = pieces.third = description.n;
  if (of.weights.size() > 1) {
    pieces.second = first.size(0);
    pieces.second_data = of.weights[1].const_data_ptr();
  }
  if (of.weights.size() > 2) {
    pieces.third = pieces.second + of.weights[1].size(0);
    pieces.third_data = of.weights[2].const_data_ptr();
  }
  std::optional<gemm::ScalesOfB> scales;
  if (!of.scales.empty()) {
    scales = scales_of(of);
    if (!scales) return false;
    pieces.scales = &*scales;
  }
  if (!norm) return gemm::run_pieces(description, pieces, epilogue);
  if (input.scalar_type() == at::kDouble || norm->weight.scalar_type() == at::kDouble ||
      !norm->weight.is_contiguous() || norm->weight.is_neg()) {
    return false;
  }
  const gemm::NormOfA before{.weight = norm->weight.const_data_ptr(),
                             .dtype = norm->weight.scalar_type(),
                             .epsilon = static_cast<float>(norm->epsilon),
                             .shift = static_cast<float>(norm->shift)};
  pieces.norm = &before;
  return gemm::run_pieces(description, pieces, epilogue);
}

/// The input that is normalised apart.
Tensor normalised(const Tensor& input, const RmsNorm& norm) {
  const at::ScalarType type = input.scalar_type();
  const Tensor wide = input.to(at::promote_types(type, at::kFloat));
  const Tensor scale = wide.square().mean({1}, /*keepdim=*/true).add(norm.epsilon).rsqrt();
  return (wide * scale * norm.weight.to(wide.scalar_type()).add(norm.shift)).to(type);
}

/// One weight as numbers of that dtype.
Tensor numbers_of(const LinearWeights& of, size_t i, at::ScalarType dtype) {
  const Tensor& weight = of.weights[i];
  if (of.scales.empty()) return weight;
  if (!of.has_four_bits()) return weight.to(dtype) * of.scales[i].to(dtype).unsqueeze(1);
  const Int4Matrix matrix = matrix_of(of, i);
  const Tensor numbers = at::empty({matrix.n, matrix.k}, weight.options().dtype(dtype));
  int4_unpack(matrix, numbers);
  return numbers;
}

/// A product with one weight, in as many launches as it takes.
void multiply(const Tensor& input, const LinearWeights& of, size_t i, const Tensor& out) {
  constexpr const char* kName = "linear_pieces";
  const Tensor& weight = of.weights[i];
  if (of.scales.empty()) return run_gemm(kName, input, weight.t(), {}, out, 1, 0);
  if (of.has_four_bits()) {
    const Tensor part = at::empty(out.sizes(), out.options());
    int4_product(kName, input.contiguous(), matrix_of(of, i), {}, at::kFloat, part);
    out.copy_(part);
    return;
  }
  // Scaled before it is rounded: sums of products with integers soon leave a half type's range.
  const Tensor sums = at::empty(out.sizes(), out.options().dtype(at::kFloat));
  run_gemm(kName, input, weight.t(), {}, sums, 1, 0);
  out.copy_(sums.mul_(of.scales[i]));
}

/// 4 bits as bytes [n, k / 2]: torch has them as int32 of four dimensions, too.
Tensor as_bytes(const Tensor& weight, int64_t k) {
  if (weight.scalar_type() != at::kInt || weight.dim() != 4 || !weight.is_contiguous() || k == 0) {
    return weight;
  }
  return weight.view(-1).view(at::kByte).view({-1, k / 2});
}

LinearWeights checked_weights(const Tensor& input, at::TensorList weights, at::TensorList scales,
                              bool points) {
  const int64_t k = input.size(1);
  LinearWeights of{{}, scales.vec(), points};
  const bool scaled = !scales.empty();
  TORCH_CHECK(
      !scaled || (scales.size() == weights.size() && at::isFloatingType(input.scalar_type()) &&
                  input.scalar_type() != at::kDouble),
      "linear_pieces: expected scales for each of ", weights.size(),
      " weights, and an input of float32, float16 or bfloat16");
  for (size_t i = 0; i < weights.size(); ++i) {
    const Tensor weight = scaled ? as_bytes(weights[i], k) : weights[i];
    const bool four_bits = scaled && weight.scalar_type() == at::kByte;
    const at::ScalarType type = four_bits ? at::kByte : scaled ? at::kChar : input.scalar_type();
    TORCH_CHECK(weight.dim() == 2 && weight.size(1) * (four_bits ? 2 : 1) == k &&
                    weight.scalar_type() == type && weight.device() == input.device() &&
                    (i == 0 || weight.scalar_type() == of.weights[0].scalar_type()),
                "linear_pieces: expected weights of ", k, " columns of ", type, " on ",
                input.device());
    if (scaled) {
      const Tensor& own = scales[i];
      TORCH_CHECK(own.device() == input.device() && at::isFloatingType(own.scalar_type()) &&
                      own.scalar_type() != at::kDouble &&
                      (four_bits ? own.dim() == 3 && own.size(1) == weight.size(0) &&
                                       own.size(2) == 2 && own.size(0) > 0 &&
                                       k % own.size(0) == 0 && k / own.size(0) % kInt4Block == 0
                                 : own.dim() == 1 && own.size(0) == weight.size(0)),
                  "linear_pieces: expected scales of ", weight.size(0), " rows on ", input.device(),
                  ", got sizes ", own.sizes());
    }
    of.weights.push_back(four_bits ? weight.contiguous() : weight);
    if (four_bits) of.scales[i] = scales[i].resolve_neg().contiguous();
  }
  return of;
}

/// input @ weight^T for each weight, side by side: (rows, k) and (columns, k) each give (rows, all
/// columns) of `dtype`, the input's unless it is given. Sums are those of torch.mm. With an
/// epsilon, the input's rows are first divided by the root of it and their squares' mean, and
/// multiplied by norm + shift, as torch.nn.functional.rms_norm does. With scales the weights are
/// those of _weight_int8pack_mm or _weight_int4pack_mm; with points a group's second number is
/// subtracted from the bits, as torch_ocl::int4_linear has it.
Tensor linear_pieces(const Tensor& input, at::TensorList weights,
                     const std::optional<c10::List<Tensor>>& scales, bool points,
                     std::optional<at::ScalarType> dtype, std::optional<double> epsilon,
                     const std::optional<Tensor>& norm_weight, double shift) {
  TORCH_CHECK(input.dim() == 2 && !weights.empty(),
              "linear_pieces: expected a matrix and at least one weight");
  const std::vector<Tensor> given = scales ? scales->vec() : std::vector<Tensor>();
  const LinearWeights of = checked_weights(input, weights, given, points);
  const at::ScalarType type = input.scalar_type(), wanted = dtype.value_or(type);
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  TORCH_CHECK(wanted == type || (is_half && wanted == at::kFloat), "linear_pieces: sums of ", type,
              " aren't stored as ", wanted);
  std::optional<RmsNorm> norm;
  if (epsilon || norm_weight) {
    TORCH_CHECK(epsilon && norm_weight && input.is_floating_point() &&
                    norm_weight->is_floating_point() &&
                    norm_weight->sizes() == input.sizes().slice(1) &&
                    norm_weight->device() == input.device(),
                "linear_pieces: expected an epsilon, and a norm of ", input.size(1),
                " floating-point weights on ", input.device());
    norm = RmsNorm{*epsilon, *norm_weight, shift};
  }
  const c10::DeviceGuard guard(input.device());
  const Tensor out = at::empty({input.size(0), of.rows()}, input.options().dtype(wanted));
  if (out.numel() == 0 || linear_in_one_launch(input, of, norm, {}, out)) return out;
  const Tensor left = norm ? normalised(input, *norm) : input;
  int64_t first = 0;
  for (size_t i = 0; i < of.weights.size(); ++i) {
    const int64_t count = of.weights[i].size(0);
    if (count > 0) multiply(left, of, i, out.narrow(1, first, count));
    first += count;
  }
  return out;
}

}  // namespace

bool linear_in_one_launch(const Tensor& input, const LinearWeights& weights,
                          const std::optional<RmsNorm>& norm, const Tensor& bias,
                          const Tensor& out) {
  gemm::Description description;
  description.out = gemm_operand(out);
  return in_one_launch(input, weights, norm, bias, description, nullptr);
}

void linear_pieces_with_epilogue(const Tensor& input, std::span<const Tensor> weights,
                                 std::span<const Tensor> scales, bool has_points,
                                 const std::optional<RmsNorm>& norm, at::ScalarType dtype,
                                 const Epilogue& epilogue) {
  const LinearWeights of = checked_weights(input, {weights.data(), weights.size()},
                                           {scales.data(), scales.size()}, has_points);
  const int64_t columns = of.rows();
  if (input.size(0) == 0 || columns == 0) return;
  gemm::Description description;
  description.out = {epilogue.operands.back(), dtype, columns, 1};
  if (in_one_launch(input, of, norm, {}, description, &epilogue)) return;
  // Operands that begin anywhere: all as numbers.
  std::vector<Tensor> numbers;
  for (size_t i = 0; i < of.weights.size(); ++i) numbers.push_back(numbers_of(of, i, dtype));
  const Tensor left = norm ? normalised(input, *norm) : input;
  run_gemm_with_epilogue(left.to(dtype), at::cat(numbers).to(dtype).t(), {}, 1, 0, epilogue);
}

TORCH_LIBRARY_FRAGMENT(ocl, m) {
  m.def(
      "linear_pieces(Tensor input, Tensor[] weights, Tensor[]? scales=None, *, bool points=False, "
      "ScalarType? dtype=None, float? epsilon=None, Tensor? norm=None, float shift=0) -> Tensor");
}

TORCH_LIBRARY_IMPL(ocl, PrivateUse1, m) { m.impl("linear_pieces", TORCH_FN(linear_pieces)); }

}  // namespace ocl::native
