// layer_norm and rms_norm, forward and backward.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

#include <limits>

#include "engine/dtype.h"
#include "engine/norm/norm.h"
#include "ops/_fused_rms_norm.h"
#include "ops/_fused_rms_norm_backward.h"
#include "ops/native_layer_norm.h"
#include "ops/native_layer_norm_backward.h"
#include "ops/norm/NormChecks.h"

namespace ocl::native {

namespace {

/// The input's sizes with 1 for each normalised dimension.
at::DimVector statistics_sizes(const at::Tensor& input, size_t normalized) {
  at::DimVector sizes(input.sizes().begin(), input.sizes().end());
  for (size_t i = 0; i < normalized; ++i) sizes[sizes.size() - 1 - i] = 1;
  return sizes;
}

at::Tensor empty_contiguous(const at::Tensor& like) {
  return at::empty(like.sizes(), like.options());
}

void check_statistics(const char* name, const at::Tensor& statistics, int64_t rows) {
  TORCH_CHECK(statistics.numel() == rows, name, " should have an element per normalized row, ",
              rows, ", but has ", statistics.numel());
}

/// The gradients of layer_norm and rms_norm: `mean` undefined means rms_norm.
void backward(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
              const at::Tensor& rstd, const at::Tensor& weight, int64_t rows, int64_t length,
              const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias) {
  if (input.numel() == 0) {
    if (dweight.defined()) dweight.zero_();
    if (dbias.defined()) dbias.zero_();
    return;
  }
  check_statistics("rstd", rstd, rows);
  if (mean.defined()) check_statistics("mean", mean, rows);
  norm::rows_backward(grad.contiguous(), input.contiguous(), contiguous_or_undefined(mean),
                      rstd.contiguous(), contiguous_or_undefined(weight),
                      {.rows = rows, .length = length}, dx, dweight, dbias);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(
    const at::Tensor& input, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight_, const std::optional<at::Tensor>& bias_, double eps) {
  const at::Tensor &weight = or_undefined(weight_), &bias = or_undefined(bias_);
  const auto [rows, length] =
      at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  const c10::ScalarType dtype = parameter_dtype("layer_norm", input, weight, bias);
  const at::Tensor x = input.contiguous();
  const at::Tensor y = empty_contiguous(input);
  const at::DimVector sizes = statistics_sizes(input, normalized_shape.size());
  const at::Tensor mean = at::empty(sizes, input.options().dtype(dtype));
  const at::Tensor rstd = at::empty(sizes, input.options().dtype(dtype));
  if (length > 0) {
    norm::rows(x, contiguous_or_undefined(weight), contiguous_or_undefined(bias), eps,
               {.rows = rows, .length = length}, y, mean, rstd);
  } else {
    // As CPU torch has it for the statistics of nothing.
    mean.zero_();
    rstd.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  return {y, mean, rstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
    const at::Tensor& mean, const at::Tensor& rstd, const std::optional<at::Tensor>& weight_,
    const std::optional<at::Tensor>& bias_, std::array<bool, 3> mask) {
  const at::Tensor &weight = or_undefined(weight_), &bias = or_undefined(bias_);
  const auto [rows, length] =
      at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  const c10::ScalarType dtype = parameter_dtype("layer_norm", input, weight, bias);
  check_same_dtype(grad, input.scalar_type());
  // With no parameters to tell, the statistics' dtype is as the forward pass chose it.
  if (weight.defined() || bias.defined()) {
    check_same_dtype(mean, dtype);
    check_same_dtype(rstd, dtype);
  }
  TORCH_CHECK(grad.sizes() == input.sizes(), "Expected grad_out of shape ", input.sizes(),
              ", but got ", grad.sizes());
  const at::Tensor dx = mask[0] ? empty_contiguous(input) : at::Tensor();
  const at::Tensor dweight = mask[1] && weight.defined() ? empty_contiguous(weight) : at::Tensor();
  const at::Tensor dbias = mask[2] && bias.defined() ? empty_contiguous(bias) : at::Tensor();
  backward(grad, input, mean, rstd, weight, rows, length, dx, dweight, dbias);
  return {dx, dweight, dbias};
}

std::tuple<at::Tensor, at::Tensor> _fused_rms_norm(const at::Tensor& input,
                                                   at::IntArrayRef normalized_shape,
                                                   const std::optional<at::Tensor>& weight_,
                                                   std::optional<double> eps) {
  const at::Tensor& weight = or_undefined(weight_);
  const auto [rows, length] =
      at::native::_check_layer_norm_inputs(input, normalized_shape, weight, {});
  check_floating("rms_norm", input);
  const c10::ScalarType acc = compute_dtype(input.scalar_type());
  const double least = acc == at::kDouble ? std::numeric_limits<double>::epsilon()
                                          : std::numeric_limits<float>::epsilon();
  const at::Tensor x = input.contiguous();
  const at::Tensor y = empty_contiguous(input);
  const at::Tensor rstd =
      at::empty(statistics_sizes(input, normalized_shape.size()), input.options().dtype(acc));
  if (length > 0) {
    norm::rows(x, contiguous_or_undefined(weight), {}, eps.value_or(least),
               {.rows = rows, .length = length}, y, {}, rstd);
  } else {
    rstd.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  return {y, rstd};
}

std::tuple<at::Tensor, at::Tensor> _fused_rms_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape,
    const at::Tensor& rstd, const std::optional<at::Tensor>& weight_, std::array<bool, 2> mask) {
  const at::Tensor& weight = or_undefined(weight_);
  const auto [rows, length] =
      at::native::_check_layer_norm_inputs(input, normalized_shape, weight, {});
  check_floating("rms_norm", input);
  TORCH_CHECK(grad.sizes() == input.sizes(), "Expected grad_out of shape ", input.sizes(),
              ", but got ", grad.sizes());
  check_same_dtype(grad, input.scalar_type());
  const at::Tensor dx = mask[0] ? empty_contiguous(input) : at::Tensor();
  const at::Tensor dweight = mask[1] && weight.defined() ? empty_contiguous(weight) : at::Tensor();
  backward(grad, input, {}, rstd, weight, rows, length, dx, dweight, {});
  if (!dx.defined() || input.is_contiguous()) return {dx, dweight};
  // Upstream's fake of this op follows the input, and compiled graphs rely on that.
  return {at::empty_like(input).copy_(dx), dweight};
}

namespace {

bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

/// Upstream's formula for the fused op's tangent multiplies by `rstd`, which makes a half type's a
/// float32; that of the composed op, CPU torch's, is of the input's dtype.
at::Tensor rms_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                    const std::optional<at::Tensor>& weight, std::optional<double> eps) {
  namespace composed = at::compositeimplicitautograd;
  if (at::isReducedFloatingType(input.scalar_type()) &&
      (has_tangent(input) || has_tangent(or_undefined(weight)))) {
    const at::IntArrayRef shape = C10_AS_INTARRAYREF_SLOW(normalized_shape);
    return std::get<0>(composed::_fused_rms_norm(input, shape, weight, eps));
  }
  return composed::rms_norm_symint(input, normalized_shape, weight, eps);
}

// Composite functions are registered below autograd too, for inference mode.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("rms_norm", TORCH_FN(rms_norm)); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("rms_norm", TORCH_FN(rms_norm)); }

}  // namespace

}  // namespace ocl::native
