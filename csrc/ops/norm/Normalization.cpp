// Batch norm, forward and backward, in all the functions that ATen has for it.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "engine/norm/norm.h"
#include "ops/_batch_norm_no_update.h"
#include "ops/_batch_norm_with_update.h"
#include "ops/_native_batch_norm_legit.h"
#include "ops/batch_norm_backward.h"
#include "ops/batch_norm_update_stats.h"
#include "ops/native_batch_norm.h"
#include "ops/native_batch_norm_backward.h"
#include "ops/norm/NormChecks.h"
#include "ops/spatial/SpatialShapes.h"

namespace ocl::native {

namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The arguments of a forward pass, checked.
struct Forward {
  Forward(const at::Tensor& input, const OptionalTensor& weight_, const OptionalTensor& bias_,
          const at::Tensor& running_mean, const at::Tensor& running_var, bool train)
      : input(input),
        weight(or_undefined(weight_)),
        bias(or_undefined(bias_)),
        running_mean(running_mean),
        running_var(running_var),
        train(train) {
    TORCH_CHECK(input.dim() >= 2, "Expected an input of at least 2 dimensions, got shape ",
                input.sizes());
    TORCH_CHECK_VALUE(running_mean.defined() == running_var.defined(),
                      "Expected both running_mean and running_var, or none of them");
    TORCH_CHECK(train || running_mean.defined(),
                "Expected running_mean and running_var to be defined when not training");
    check_floating("batch_norm", input);
    dtype = parameter_dtype("batch_norm", input, weight, bias, running_mean, running_var);
    const int64_t channels = input.size(1);
    check_elements("weight", weight, channels);
    check_elements("bias", bias, channels);
    check_elements("running_mean", running_mean, channels);
    check_elements("running_var", running_var, channels);
    TORCH_CHECK(
        !train || input.numel() != 0,
        "input tensor must have at least one element, but got input_sizes = ", input.sizes());
    // Kernels take it contiguous or channels last; this is a copy for any other strides.
    x = input.contiguous(format_of(input));
  }

  /// As on the CPU contiguous where that's the same order as x's.
  at::Tensor empty_output() const {
    return at::empty(x.sizes(), x.options(),
                     x.is_contiguous() ? at::MemoryFormat::Contiguous : format_of(x));
  }
  at::Tensor empty_statistics() const {
    return at::empty({train ? input.size(1) : 0}, input.options().dtype(dtype));
  }

  /// Fills y (x's strides) and, when training, the statistics.
  void run(double momentum, double eps, const at::Tensor& y, const at::Tensor& mean,
           const at::Tensor& rstd) const {
    norm::ChannelVectors vectors{contiguous_or_undefined(weight), contiguous_or_undefined(bias),
                                 contiguous_or_undefined(running_mean),
                                 contiguous_or_undefined(running_var)};
    if (!train) {
      norm::channel_normalize(x, vectors, eps, y);
      return;
    }
    norm::channel_statistics(x, vectors, momentum, eps, false, mean, rstd, y);
    store_running(vectors);
  }

  /// Back from the contiguous copies.
  void store_running(const norm::ChannelVectors& vectors) const {
    if (!running_mean.defined()) return;
    if (!running_mean.is_contiguous()) running_mean.copy_(vectors.mean);
    if (!running_var.is_contiguous()) running_var.copy_(vectors.var);
  }

  const at::Tensor& input;
  const at::Tensor &weight, &bias;
  const at::Tensor &running_mean, &running_var;
  const bool train;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  at::Tensor x;
};

Results forward(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                const at::Tensor& running_mean, const at::Tensor& running_var, bool train,
                double momentum, double eps) {
  const Forward problem(input, weight, bias, running_mean, running_var, train);
  at::Tensor y = problem.empty_output();
  at::Tensor mean = problem.empty_statistics(), rstd = problem.empty_statistics();
  problem.run(momentum, eps, y, mean, rstd);
  return {y, mean, rstd};
}

void forward_out(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                 const at::Tensor& running_mean, const at::Tensor& running_var, bool train,
                 double momentum, double eps, const at::Tensor& out, const at::Tensor& save_mean,
                 const at::Tensor& save_rstd) {
  const Forward problem(input, weight, bias, running_mean, running_var, train);
  check_same_dtype(out, input.scalar_type());
  at::native::resize_output(out, input.sizes());
  at::Tensor mean, rstd;
  if (train) {
    check_same_dtype(save_mean, problem.dtype);
    check_same_dtype(save_rstd, problem.dtype);
    at::native::resize_output(save_mean, {input.size(1)});
    at::native::resize_output(save_rstd, {input.size(1)});
    mean = problem.empty_statistics();
    rstd = problem.empty_statistics();
  }
  const bool direct = out.strides() == problem.x.strides();
  const at::Tensor y = direct ? out : problem.empty_output();
  problem.run(momentum, eps, y, mean, rstd);
  if (!direct) out.copy_(y);
  if (train) {
    save_mean.copy_(mean);
    save_rstd.copy_(rstd);
  }
}

}  // namespace

Results native_batch_norm(const at::Tensor& input, const OptionalTensor& weight,
                          const OptionalTensor& bias, const OptionalTensor& running_mean,
                          const OptionalTensor& running_var, bool training, double momentum,
                          double eps) {
  return forward(input, weight, bias, or_undefined(running_mean), or_undefined(running_var),
                 training, momentum, eps);
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> native_batch_norm_out(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
    double momentum, double eps, at::Tensor& out, at::Tensor& save_mean, at::Tensor& save_invstd) {
  forward_out(input, weight, bias, or_undefined(running_mean), or_undefined(running_var), training,
              momentum, eps, out, save_mean, save_invstd);
  return {out, save_mean, save_invstd};
}

Results _native_batch_norm_legit(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, at::Tensor& running_mean,
                                 at::Tensor& running_var, bool training, double momentum,
                                 double eps) {
  return forward(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> _native_batch_norm_legit_out(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, bool training, double momentum, double eps,
    at::Tensor& out, at::Tensor& save_mean, at::Tensor& save_invstd) {
  forward_out(input, weight, bias, running_mean, running_var, training, momentum, eps, out,
              save_mean, save_invstd);
  return {out, save_mean, save_invstd};
}

Results _native_batch_norm_legit_no_stats(const at::Tensor& input, const OptionalTensor& weight,
                                          const OptionalTensor& bias, bool training,
                                          double momentum, double eps) {
  return forward(input, weight, bias, {}, {}, training, momentum, eps);
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> _native_batch_norm_legit_no_stats_out(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    bool training, double momentum, double eps, at::Tensor& out, at::Tensor& save_mean,
    at::Tensor& save_invstd) {
  forward_out(input, weight, bias, {}, {}, training, momentum, eps, out, save_mean, save_invstd);
  return {out, save_mean, save_invstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> _batch_norm_with_update(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double momentum, double eps) {
  auto [y, mean, rstd] =
      forward(input, weight, bias, running_mean, running_var, true, momentum, eps);
  return {y, mean, rstd, at::empty({0}, input.options().dtype(at::kByte))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> _batch_norm_no_update(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
    double eps) {
  auto [y, mean, rstd] = forward(input, weight, bias, or_undefined(running_mean),
                                 or_undefined(running_var), false, momentum, eps);
  return {y, mean, rstd, at::empty({0}, input.options().dtype(at::kByte))};
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&> _batch_norm_with_update_out(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double momentum, double eps, at::Tensor& out,
    at::Tensor& save_mean, at::Tensor& save_invstd, at::Tensor& reserve) {
  forward_out(input, weight, bias, running_mean, running_var, true, momentum, eps, out, save_mean,
              save_invstd);
  return {out, save_mean, save_invstd, reserve};
}

std::tuple<at::Tensor, at::Tensor> batch_norm_update_stats(const at::Tensor& input,
                                                           const OptionalTensor& running_mean,
                                                           const OptionalTensor& running_var,
                                                           double momentum) {
  const Forward problem(input, {}, {}, or_undefined(running_mean), or_undefined(running_var), true);
  const norm::ChannelVectors vectors{{},
                                     {},
                                     contiguous_or_undefined(problem.running_mean),
                                     contiguous_or_undefined(problem.running_var)};
  at::Tensor mean = problem.empty_statistics(), var = problem.empty_statistics();
  norm::channel_statistics(problem.x, vectors, momentum, 0, true, mean, var, {});
  problem.store_running(vectors);
  return {mean, var};
}

Results native_batch_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                                   const OptionalTensor& weight_,
                                   const OptionalTensor& running_mean_,
                                   const OptionalTensor& running_var_,
                                   const OptionalTensor& save_mean_,
                                   const OptionalTensor& save_invstd_, bool train, double eps,
                                   std::array<bool, 3> mask) {
  const at::Tensor& weight = or_undefined(weight_);
  const at::Tensor& mean = or_undefined(train ? save_mean_ : running_mean_);
  const at::Tensor& spread = or_undefined(train ? save_invstd_ : running_var_);
  TORCH_CHECK(input.dim() >= 2, "Expected an input of at least 2 dimensions, got shape ",
              input.sizes());
  TORCH_CHECK(grad.sizes() == input.sizes(), "Expected grad_out of shape ", input.sizes(),
              ", but got ", grad.sizes());
  TORCH_CHECK(mean.defined() && spread.defined(), "Expected ",
              train ? "save_mean and save_invstd" : "running_mean and running_var",
              " to be defined");
  check_floating("batch_norm_backward", input);
  check_same_dtype(grad, input.scalar_type());
  const c10::ScalarType dtype = parameter_dtype("batch_norm_backward", input, weight, mean, spread);
  const int64_t channels = input.size(1);
  check_elements("weight", weight, channels);
  check_elements(train ? "save_mean" : "running_mean", mean, channels);
  check_elements(train ? "save_invstd" : "running_var", spread, channels);
  const at::MemoryFormat format = format_of(input);
  const at::Tensor x = input.contiguous(format);
  const at::Tensor g = grad.contiguous(format);
  const auto options = input.options().dtype(dtype);
  const at::Tensor dx = mask[0] ? at::empty(x.sizes(), x.options(), format) : at::Tensor();
  const at::Tensor dweight = mask[1] ? at::empty({channels}, options) : at::Tensor();
  const at::Tensor dbias = mask[2] ? at::empty({channels}, options) : at::Tensor();
  if (input.numel() == 0) {
    if (dweight.defined()) dweight.zero_();
    if (dbias.defined()) dbias.zero_();
    return {dx, dweight, dbias};
  }
  const norm::ChannelVectors saved{
      contiguous_or_undefined(weight), {}, mean.contiguous(), spread.contiguous()};
  norm::channel_backward(g, x, saved, train, eps, dx, dweight, dbias);
  return {dx, dweight, dbias};
}

Results batch_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                            const at::Tensor& weight, const OptionalTensor& running_mean,
                            const OptionalTensor& running_var, const OptionalTensor& save_mean,
                            const OptionalTensor& save_var, bool update, double eps,
                            std::array<bool, 3> mask, const at::Tensor&) {
  return native_batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean,
                                    save_var, update, eps, mask);
}

}  // namespace ocl::native
