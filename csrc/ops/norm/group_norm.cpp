// group_norm, forward and backward.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include "engine/norm/norm.h"
#include "ops/native_group_norm.h"
#include "ops/native_group_norm_backward.h"
#include "ops/norm/NormChecks.h"

namespace ocl::native {

namespace {

/// Checks the sizes and gives the rows: one per sample and group.
norm::RowShape group_shape(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, int64_t samples, int64_t channels, int64_t inner,
                           int64_t groups) {
  TORCH_CHECK(groups > 0, "Expected num groups to be greater than 0, got ", groups);
  TORCH_CHECK(channels % groups == 0,
              "Expected number of channels in input to be divisible by num_groups, but got input "
              "of shape ",
              input.sizes(), " and num_groups=", groups);
  TORCH_CHECK(!weight.defined() || (weight.dim() == 1 && weight.numel() == channels),
              "Expected weight to be a vector of size equal to the number of channels in input, "
              "but got weight of shape ",
              weight.defined() ? weight.sizes() : at::IntArrayRef(), " and input of shape ",
              input.sizes());
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.numel() == channels),
              "Expected bias to be a vector of size equal to the number of channels in input, but "
              "got bias of shape ",
              bias.defined() ? bias.sizes() : at::IntArrayRef(), " and input of shape ",
              input.sizes());
  TORCH_CHECK(input.numel() == samples * channels * inner, "Expected an input of ", samples, " x ",
              channels, " x ", inner, " elements, but got input of shape ", input.sizes());
  return {.rows = samples * groups,
          .length = channels / groups * inner,
          .grouped = true,
          .run = std::max<int64_t>(inner, 1),
          .groups = groups};
}

/// A tensor in the format of `like`, by compute(t) with a contiguous t.
template <class Compute>
at::Tensor in_format_of(const at::Tensor& like, const Compute& compute) {
  const at::Tensor out = at::empty(like.sizes(), like.options(), like.suggest_memory_format());
  if (out.is_contiguous()) {
    compute(out);
    return out;
  }
  const at::Tensor contiguous = at::empty(like.sizes(), like.options());
  compute(contiguous);
  return out.copy_(contiguous);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight_,
    const std::optional<at::Tensor>& bias_, int64_t samples, int64_t channels, int64_t inner,
    int64_t groups, double eps) {
  const at::Tensor &weight = or_undefined(weight_), &bias = or_undefined(bias_);
  const norm::RowShape shape = group_shape(input, weight, bias, samples, channels, inner, groups);
  const c10::ScalarType dtype = parameter_dtype("group_norm", input, weight, bias);
  // at::group_norm sees to it; CPU torch refuses any other strides here too.
  TORCH_CHECK(input.is_contiguous(input.suggest_memory_format()),
              "Expected a contiguous or channels last input, but got strides ", input.strides());
  const at::Tensor mean = at::empty({samples, groups}, input.options().dtype(dtype));
  const at::Tensor rstd = at::empty({samples, groups}, input.options().dtype(dtype));
  const at::Tensor y = in_format_of(input, [&](const at::Tensor& out) {
    if (shape.length > 0) {
      norm::rows(input.contiguous(), contiguous_or_undefined(weight), contiguous_or_undefined(bias),
                 eps, shape, out, mean, rstd);
    } else {
      mean.zero_();
      rstd.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  });
  return {y, mean, rstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight_, int64_t samples, int64_t channels, int64_t inner,
    int64_t groups, std::array<bool, 3> mask) {
  const at::Tensor& weight = or_undefined(weight_);
  const norm::RowShape shape = group_shape(input, weight, {}, samples, channels, inner, groups);
  check_same_dtype(grad, input.scalar_type());
  TORCH_CHECK(grad.numel() == input.numel(), "Expected grad_out of shape ", input.sizes(),
              ", but got ", grad.sizes());
  // Without a weight the statistics tell what dtype the parameters have.
  const c10::ScalarType dtype = parameter_dtype("group_norm", input, weight, mean, rstd);
  TORCH_CHECK(mean.numel() == shape.rows && rstd.numel() == shape.rows,
              "Expected mean and rstd of shape [", samples, ", ", groups, "], but got ",
              mean.sizes(), " and ", rstd.sizes());
  const auto options = input.options().dtype(dtype);
  const at::Tensor dweight = mask[1] ? at::empty({channels}, options) : at::Tensor();
  const at::Tensor dbias = mask[2] ? at::empty({channels}, options) : at::Tensor();
  const auto compute = [&](const at::Tensor& dx) {
    if (input.numel() == 0) {
      if (dweight.defined()) dweight.zero_();
      if (dbias.defined()) dbias.zero_();
      return;
    }
    norm::rows_backward(grad.contiguous(), input.contiguous(), mean.contiguous(), rstd.contiguous(),
                        contiguous_or_undefined(weight), shape, dx, dweight, dbias);
  };
  if (!mask[0]) {
    compute({});
    return {at::Tensor(), dweight, dbias};
  }
  return {in_format_of(input, compute), dweight, dbias};
}

}  // namespace ocl::native
