// The parts of batch norm between which torch.nn.SyncBatchNorm adds up the statistics of all ranks.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "engine/dtype.h"
#include "engine/norm/norm.h"
#include "ops/batch_norm_backward_elemt.h"
#include "ops/batch_norm_backward_reduce.h"
#include "ops/batch_norm_elemt.h"
#include "ops/batch_norm_gather_stats.h"
#include "ops/batch_norm_gather_stats_with_counts.h"
#include "ops/batch_norm_stats.h"
#include "ops/norm/NormChecks.h"
#include "ops/spatial/SpatialShapes.h"

namespace ocl::native {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

void check(const char* name, const at::Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "Expected an input of at least 2 dimensions, got shape ",
              input.sizes());
  check_floating(name, input);
}

/// The dtype of statistics: float for half and bfloat16.
c10::ScalarType statistics_dtype(const at::Tensor& input) {
  return compute_dtype(input.scalar_type());
}

/// Coefficients for channel_apply() on `input`: rows 0 to 3, each a vector or undefined (zero).
at::Tensor coefficients(const at::Tensor& input, std::initializer_list<at::Tensor> rows) {
  const auto options = input.options().dtype(statistics_dtype(input));
  at::Tensor all = at::zeros({4, input.size(1)}, options);
  int64_t index = 0;
  for (const at::Tensor& row : rows) {
    if (row.defined()) all.select(0, index).copy_(row);
    ++index;
  }
  return all;
}

/// invstd * weight, without a weight invstd.
at::Tensor scale_of(const at::Tensor& invstd, const OptionalTensor& weight) {
  return weight && weight->defined() ? invstd.mul(weight->to(invstd.scalar_type())) : invstd;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& input, double eps) {
  check("batch_norm_stats", input);
  TORCH_CHECK(input.numel() != 0,
              "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  const at::Tensor x = input.contiguous(format_of(input));
  const auto options = input.options().dtype(statistics_dtype(input));
  at::Tensor mean = at::empty({input.size(1)}, options), invstd = at::empty_like(mean);
  norm::channel_statistics(x, {}, 0, eps, false, mean, invstd, {});
  return {mean, invstd};
}

at::Tensor batch_norm_elemt(const at::Tensor& input, const OptionalTensor& weight,
                            const OptionalTensor& bias, const at::Tensor& mean,
                            const at::Tensor& invstd, double) {
  check("batch_norm_elemt", input);
  for (const at::Tensor& vector : {mean, invstd, or_undefined(weight), or_undefined(bias)}) {
    check_elements("weight, bias and statistics", vector, input.size(1));
  }
  const at::Tensor x = input.contiguous(format_of(input));
  at::Tensor y = at::empty(x.sizes(), x.options(), format_of(input));
  norm::channel_apply({}, x, coefficients(x, {mean, scale_of(invstd, weight), or_undefined(bias)}),
                      y);
  return y;
}

at::Tensor& batch_norm_elemt_out(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const at::Tensor& mean,
                                 const at::Tensor& invstd, double eps, at::Tensor& out) {
  check_same_dtype(out, input.scalar_type());
  at::native::resize_output(out, input.sizes());
  return out.copy_(batch_norm_elemt(input, weight, bias, mean, invstd, eps));
}

// Statistics over all ranks' positions: the mean, and the variance by the ranks' own and their
// means' distances.
std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats_with_counts(
    const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
    double eps, const at::Tensor& counts) {
  TORCH_CHECK(mean.dim() == 2 && mean.sizes() == invstd.sizes() && mean.size(1) == input.size(1),
              "Expected mean and invstd of shape [ranks, ", input.size(1), "], got ", mean.sizes(),
              " and ", invstd.sizes());
  TORCH_CHECK(counts.numel() == mean.size(0), "Expected ", mean.size(0), " counts, got ",
              counts.numel());
  const c10::ScalarType dtype = compute_dtype(mean.scalar_type());
  const at::Tensor means = mean.to(dtype), deviations = invstd.to(dtype).reciprocal();
  const at::Tensor count = counts.to(dtype).reshape({-1, 1}), total = count.sum();
  at::Tensor all_mean = means.mul(count).sum(0).div(total);
  const at::Tensor distance = means.sub(all_mean);
  const at::Tensor variances = deviations.mul(deviations).sub(eps);
  const at::Tensor squares = distance.mul(distance).add(variances).mul(count).sum(0);
  at::Tensor all_invstd = squares.div(total).add(eps).rsqrt();
  const auto move = [&](const OptionalTensor& running, const at::Tensor& towards) {
    if (!running || !running->defined()) return;
    at::Tensor target = *running;
    target.copy_(target.to(dtype).mul(1 - momentum).add(towards, momentum));
  };
  move(running_mean, all_mean);
  move(running_var, squares.div(total.sub(1)));
  return {all_mean, all_invstd};
}

std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats(
    const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
    double eps, int64_t count) {
  const at::Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var,
                                             momentum, eps, counts);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& invstd, const OptionalTensor& weight, bool input_g, bool weight_g,
    bool bias_g) {
  check("batch_norm_backward_reduce", input);
  TORCH_CHECK(grad.sizes() == input.sizes(), "Expected grad_out of shape ", input.sizes(),
              ", but got ", grad.sizes());
  check_same_dtype(grad, input.scalar_type());
  check_elements("mean", mean, input.size(1));
  check_elements("invstd", invstd, input.size(1));
  const at::MemoryFormat format = format_of(input);
  const auto options = input.options().dtype(statistics_dtype(input));
  const norm::ChannelVectors saved{
      {}, {}, mean.to(options).contiguous(), invstd.to(options).contiguous()};
  const at::Tensor weight_sums = at::empty({input.size(1)}, options);
  at::Tensor sum_dy = at::empty_like(weight_sums);
  norm::channel_backward(grad.contiguous(format), input.contiguous(format), saved, true, 0, {},
                         weight_sums, sum_dy);
  at::Tensor sum_dy_xmu, grad_weight, grad_bias;
  if (input_g) sum_dy_xmu = weight_sums.div(saved.var);
  const c10::ScalarType parameter =
      weight && weight->defined() ? weight->scalar_type() : input.scalar_type();
  if (weight_g) grad_weight = weight_sums.to(parameter);
  if (bias_g) grad_bias = sum_dy.to(parameter, /*non_blocking=*/false, /*copy=*/true);
  return {input_g ? sum_dy : at::Tensor(), sum_dy_xmu, grad_weight, grad_bias};
}

at::Tensor batch_norm_backward_elemt(const at::Tensor& grad, const at::Tensor& input,
                                     const at::Tensor& mean, const at::Tensor& invstd,
                                     const OptionalTensor& weight, const at::Tensor& sum_dy,
                                     const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  check("batch_norm_backward_elemt", input);
  TORCH_CHECK(grad.sizes() == input.sizes(), "Expected grad_out of shape ", input.sizes(),
              ", but got ", grad.sizes());
  check_same_dtype(grad, input.scalar_type());
  for (const at::Tensor& vector : {mean, invstd, or_undefined(weight), sum_dy, sum_dy_xmu}) {
    check_elements("weight, statistics and sums", vector, input.size(1));
  }
  const at::MemoryFormat format = format_of(input);
  const at::Tensor x = input.contiguous(format), g = grad.contiguous(format);
  const at::Tensor total = count.sum().to(invstd.scalar_type());
  const at::Tensor scale = scale_of(invstd, weight);
  // dx = scale * (dy - sum_dy / total - (x - mean) * invstd^2 * sum_dy_xmu / total)
  //    = scale * dy - constant - slope * (x - mean), with scale = weight * invstd
  const at::Tensor constant = sum_dy.div(total).mul(scale);
  const at::Tensor slope = sum_dy_xmu.div(total).mul(scale).mul(invstd).mul(invstd);
  at::Tensor dx = at::empty(x.sizes(), x.options(), format);
  norm::channel_apply(g, x, coefficients(x, {mean, scale, constant, slope}), dx);
  return dx;
}

}  // namespace ocl::native
