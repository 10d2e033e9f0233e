// Linear layers of one input, as one product, with the RMS norm before them where there is one:
// torch.compile asks for it (inductor/passes).
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "ops/linalg/LinearAlgebra.h"

namespace ocl::native {
namespace {

using at::Tensor;

struct RmsNorm {
  double epsilon;
  Tensor weight;
  double shift;
};

/// False where one launch does not do: too many pieces, or other strides.
bool in_pieces(const Tensor& input, at::TensorList weights, const std::optional<RmsNorm>& norm,
               const Tensor& out) {
  const Tensor& first = weights.front();
  const auto fits = [&](const Tensor& weight) {
    return weight.strides() == first.strides() && weight.is_conj() == first.is_conj() &&
           !weight.is_neg() && weight.size(0) > 0;
  };
  if (weights.size() > gemm::kMostPieces || !std::ranges::all_of(weights, fits) || input.is_neg() ||
      input.size(1) == 0) {
    return false;
  }
  gemm::PiecesOfB pieces;
  gemm::Description description;
  description.m = out.size(0);
  description.n = out.size(1);
  description.k = input.size(1);
  description.a = gemm_operand(input);
  description.b = gemm_operand(first.t());
  description.out = gemm_operand(out);
  pieces.second = pieces.third = description.n;
  if (weights.size() > 1) {
    pieces.second = first.size(0);
    pieces.second_data = weights[1].const_data_ptr();
  }
  if (weights.size() > 2) {
    pieces.third = pieces.second + weights[1].size(0);
    pieces.third_data = weights[2].const_data_ptr();
  }
  if (!norm) return gemm::run_pieces(description, pieces);
  if (input.scalar_type() == at::kDouble || norm->weight.scalar_type() == at::kDouble ||
      !norm->weight.is_contiguous() || norm->weight.is_neg()) {
    return false;
  }
  const gemm::NormOfA before{.weight = norm->weight.const_data_ptr(),
                             .dtype = norm->weight.scalar_type(),
                             .epsilon = static_cast<float>(norm->epsilon),
                             .shift = static_cast<float>(norm->shift)};
  pieces.norm = &before;
  return gemm::run_pieces(description, pieces);
}

/// The input that is normalised apart.
Tensor normalised(const Tensor& input, const RmsNorm& norm) {
  const at::ScalarType type = input.scalar_type();
  const Tensor wide = input.to(at::promote_types(type, at::kFloat));
  const Tensor scale = wide.square().mean({1}, /*keepdim=*/true).add(norm.epsilon).rsqrt();
  return (wide * scale * norm.weight.to(wide.scalar_type()).add(norm.shift)).to(type);
}

/// input @ weight^T for each weight, side by side: (rows, k) and (columns, k) each give (rows, all
/// columns) of `dtype`, the input's unless it is given. Sums are those of torch.mm. With an
/// epsilon, the input's rows are first divided by the root of it and their squares' mean, and
/// multiplied by norm + shift, as torch.nn.functional.rms_norm does.
Tensor linear_pieces(const Tensor& input, at::TensorList weights,
                     std::optional<at::ScalarType> dtype, std::optional<double> epsilon,
                     const std::optional<Tensor>& norm_weight, double shift) {
  TORCH_CHECK(input.dim() == 2 && !weights.empty(),
              "linear_pieces: expected a matrix and at least one weight");
  int64_t columns = 0;
  for (const Tensor& weight : weights) {
    TORCH_CHECK(weight.dim() == 2 && weight.size(1) == input.size(1) &&
                    weight.scalar_type() == input.scalar_type() &&
                    weight.device() == input.device(),
                "linear_pieces: expected weights of ", input.size(1), " columns of ",
                input.scalar_type(), " on ", input.device());
    columns += weight.size(0);
  }
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
  const auto options = input.options().dtype(wanted);
  Tensor out = at::empty({input.size(0), columns}, options);
  if (out.numel() == 0 || in_pieces(input, weights, norm, out)) return out;
  const Tensor left = norm ? normalised(input, *norm) : input;
  int64_t first = 0;
  for (const Tensor& weight : weights) {
    const Tensor part = out.narrow(1, first, weight.size(0));
    run_gemm("linear_pieces", left, weight.t(), {}, part, 1, 0);
    first += weight.size(0);
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ocl, m) {
  m.def(
      "linear_pieces(Tensor input, Tensor[] weights, *, ScalarType? dtype=None, "
      "float? epsilon=None, Tensor? norm=None, float shift=0) -> Tensor");
}

TORCH_LIBRARY_IMPL(ocl, PrivateUse1, m) { m.impl("linear_pieces", TORCH_FN(linear_pieces)); }

}  // namespace ocl::native
