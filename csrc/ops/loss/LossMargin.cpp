// multi_margin_loss and multilabel_margin_loss, forward and backward.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/LossMulti.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/multi_margin_loss.h"
#include "ops/multi_margin_loss_backward.h"
#include "ops/multilabel_margin_loss_backward.h"
#include "ops/multilabel_margin_loss_forward.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily multi_family{"loss/margin.cl", "multi_margin"};
const KernelFamily multi_backward_family{"loss/margin.cl", "multi_margin_backward"};
const KernelFamily mark_family{"loss/margin.cl", "multilabel_mark"};
const KernelFamily multilabel_family{"loss/margin.cl", "multilabel_margin"};
const KernelFamily multilabel_backward_family{"loss/margin.cl", "multilabel_margin_backward"};

using namespace kernel_types;
#include "loss/arguments.clh"

/// Forward and backward share this; operands as the kernels take them.
struct Problem {
  Problem(const char* op, const at::Tensor& self, const at::Tensor& target_)
      : queue(current_queue(self.device().index())),
        device(queue.device()),
        dtype(self.scalar_type()),
        compute(compute_dtype(dtype)),
        scores(self.contiguous()),
        target(target_.contiguous()) {
    TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(dtype), "\"", op, "\" not implemented for '",
                                dtype, "'");
    TORCH_CHECK(target.scalar_type() == at::kLong, "expected scalar type Long but found ",
                target.scalar_type());
    group = device.is_cpu() ? 1 : group_of_rows(device);
  }

  void set_sizes(int64_t rows, int64_t classes, uint32_t site) {
    arguments = {static_cast<uint64_t>(rows), static_cast<uint32_t>(classes), site};
  }
  Kernel& kernel(const KernelFamily& family, bool squared, bool weighted, bool each) const {
    return family.get(device, {{"E", tag(dtype)},
                               {"C", tag(compute)},
                               {"GROUP", group},
                               {"SQUARED", squared},
                               {"WEIGHTED", weighted},
                               {"EACH", each}});
  }
  NDRange by_row() const {
    return NDRange::linear(arguments.rows * group,
                           group > 1 ? group : group_of_elements(queue.device()));
  }
  NDRange by_score() const {
    return element_range(queue.device(), arguments.rows * arguments.classes);
  }
  /// A kernel argument of the type computed with.
  ScalarArgument real(double value) const { return scalar_argument(compute, value); }

  Queue& queue;
  Device& device;
  const at::ScalarType dtype, compute;
  const at::Tensor scores, target;
  size_t group;
  MarginArguments arguments{};
};

/// The rows' losses, which hold no less than the compute dtype, into `out` by `reduction`.
void reduce_losses(const at::Tensor& losses, int64_t reduction, at::Tensor& out) {
  if (reduction == at::Reduction::None) {
    out.copy_(losses.view(out.sizes()));
  } else if (reduction == at::Reduction::Mean) {
    out.copy_(at::mean(losses));
  } else {
    out.copy_(at::sum(losses));
  }
}

/// The gradient is contiguous where `out` is, else a copy that ends up there.
template <class Fill>
void fill_gradient(at::Tensor& out, const Fill& fill) {
  if (out.is_contiguous()) {
    fill(out);
    return;
  }
  const at::Tensor dense = at::empty(out.sizes(), out.options());
  fill(dense);
  out.copy_(dense);
}

}  // namespace

at::Tensor& multi_margin_loss_out(const at::Tensor& self, const at::Tensor& target,
                                  const at::Scalar& p, const at::Scalar& margin,
                                  const std::optional<at::Tensor>& weight, int64_t reduction,
                                  at::Tensor& out) {
  static const uint32_t site = message_site("multi_margin_loss: target out of range");
  int64_t rows, classes;
  at::native::multi_margin_loss_shape_check(rows, classes, self.dim(), self, target, weight);
  const int64_t power = p.toLong();
  TORCH_CHECK(power == 1 || power == 2, "only p == 1 and p == 2 supported");
  Problem problem("multi_margin_loss", self, target);
  problem.set_sizes(rows, classes, site);
  const bool weighted = weight && weight->defined();
  const at::Tensor weights = weighted ? weight->contiguous() : at::Tensor();
  TORCH_CHECK(!weighted || weights.scalar_type() == problem.dtype, "expected scalar type ",
              problem.dtype, " but found ", weight->scalar_type());
  at::native::resize_output(out,
                            reduction == at::Reduction::None ? target.sizes() : c10::IntArrayRef{});
  const at::Tensor losses = at::empty({rows}, self.options().dtype(problem.compute));
  if (rows > 0) {
    launch(problem.kernel(multi_family, power == 2, weighted, false), problem.queue,
           problem.by_row(), Pointer{problem.scores.const_data_ptr()},
           Pointer{problem.target.const_data_ptr()},
           Pointer{weighted ? weights.const_data_ptr() : nullptr}, Pointer{losses.data_ptr()},
           problem.arguments, problem.real(margin.toDouble()), problem.device.asserts().mem());
  }
  reduce_losses(losses, reduction, out);
  return out;
}

at::Tensor multi_margin_loss(const at::Tensor& self, const at::Tensor& target, const at::Scalar& p,
                             const at::Scalar& margin, const std::optional<at::Tensor>& weight,
                             int64_t reduction) {
  at::Tensor out = at::empty({0}, self.options());
  return multi_margin_loss_out(self, target, p, margin, weight, reduction, out);
}

at::Tensor& multi_margin_loss_backward_grad_input(const at::Tensor& grad_output,
                                                  const at::Tensor& self, const at::Tensor& target,
                                                  const at::Scalar& p, const at::Scalar& margin,
                                                  const std::optional<at::Tensor>& weight,
                                                  int64_t reduction, at::Tensor& grad_input) {
  static const uint32_t site = message_site("multi_margin_loss_backward: target out of range");
  int64_t rows, classes;
  at::native::multi_margin_loss_shape_check(rows, classes, self.dim(), self, target, weight);
  const int64_t power = p.toLong();
  TORCH_CHECK(power == 1 || power == 2, "only p == 1 and p == 2 supported");
  Problem problem("multi_margin_loss_backward", self, target);
  problem.set_sizes(rows, classes, site);
  at::native::resize_output(grad_input, self.sizes());
  if (grad_input.numel() == 0) return grad_input;
  const bool weighted = weight && weight->defined();
  const at::Tensor weights = weighted ? weight->contiguous() : at::Tensor();
  const at::Tensor grad = grad_output.contiguous();
  const bool mean = reduction == at::Reduction::Mean;
  fill_gradient(grad_input, [&](const at::Tensor& out) {
    Kernel& kernel = problem.kernel(multi_backward_family, power == 2, weighted,
                                    reduction == at::Reduction::None);
    launch(kernel, problem.queue, problem.by_row(), Pointer{problem.scores.const_data_ptr()},
           Pointer{problem.target.const_data_ptr()},
           Pointer{weighted ? weights.const_data_ptr() : nullptr}, Pointer{grad.const_data_ptr()},
           Pointer{out.mutable_data_ptr()}, problem.arguments, problem.real(margin.toDouble()),
           problem.real(1.0 / (mean ? rows * classes : classes)), problem.device.asserts().mem());
  });
  return grad_input;
}

at::Tensor multi_margin_loss_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                      const at::Tensor& target, const at::Scalar& p,
                                      const at::Scalar& margin,
                                      const std::optional<at::Tensor>& weight, int64_t reduction) {
  at::Tensor grad_input = at::empty(self.sizes(), self.options());
  return multi_margin_loss_backward_grad_input(grad_output, self, target, p, margin, weight,
                                               reduction, grad_input);
}

std::tuple<at::Tensor&, at::Tensor&> multilabel_margin_loss_forward_output(const at::Tensor& self,
                                                                           const at::Tensor& target,
                                                                           int64_t reduction,
                                                                           at::Tensor& output,
                                                                           at::Tensor& is_target) {
  static const uint32_t site =
      message_site("multilabel_margin_loss: argument #2 'target' is out of range");
  int64_t rows, classes;
  at::native::multilabel_margin_loss_shape_check(rows, classes, self.dim(), self, target);
  Problem problem("multilabel_margin_loss_forward", self, target);
  problem.set_sizes(rows, classes, site);
  const bool each = reduction == at::Reduction::None && target.dim() > 1;
  at::native::resize_output(output, each ? c10::IntArrayRef{rows} : c10::IntArrayRef{});
  at::native::resize_output(is_target, target.sizes());
  const at::Tensor losses = at::empty({rows}, self.options().dtype(problem.compute));
  if (rows > 0) {
    fill_gradient(is_target, [&](const at::Tensor& marks) {
      launch(problem.kernel(mark_family, false, false, false), problem.queue, problem.by_score(),
             Pointer{problem.target.const_data_ptr()}, Pointer{marks.mutable_data_ptr()},
             problem.arguments, problem.device.asserts().mem());
      launch(problem.kernel(multilabel_family, false, false, false), problem.queue,
             problem.by_row(), Pointer{problem.scores.const_data_ptr()},
             Pointer{problem.target.const_data_ptr()}, Pointer{marks.const_data_ptr()},
             Pointer{losses.data_ptr()}, problem.arguments);
    });
  }
  reduce_losses(losses, each || rows != 1 ? reduction : int64_t{at::Reduction::Sum}, output);
  return {output, is_target};
}

std::tuple<at::Tensor, at::Tensor> multilabel_margin_loss_forward(const at::Tensor& self,
                                                                  const at::Tensor& target,
                                                                  int64_t reduction) {
  at::Tensor output = at::empty({0}, self.options());
  at::Tensor is_target = at::empty({0}, self.options());
  multilabel_margin_loss_forward_output(self, target, reduction, output, is_target);
  return {output, is_target};
}

at::Tensor& multilabel_margin_loss_backward_grad_input(const at::Tensor& grad_output,
                                                       const at::Tensor& self,
                                                       const at::Tensor& target, int64_t reduction,
                                                       const at::Tensor& is_target,
                                                       at::Tensor& grad_input) {
  int64_t rows, classes;
  at::native::multilabel_margin_loss_shape_check(rows, classes, self.dim(), self, target);
  Problem problem("multilabel_margin_loss_backward", self, target);
  problem.set_sizes(rows, classes, 0);
  TORCH_CHECK(is_target.sizes() == target.sizes() && is_target.scalar_type() == problem.dtype,
              "multilabel_margin_loss_backward: is_target must be of the forward pass");
  at::native::resize_output(grad_input, self.sizes());
  if (grad_input.numel() == 0) return grad_input;
  const at::Tensor grad = grad_output.contiguous(), marks = is_target.contiguous();
  const bool each = grad.dim() > 0;
  TORCH_CHECK(!each || (grad.dim() == 1 && grad.size(0) == rows),
              "multilabel_margin_loss_backward: grad_output of sizes ", grad.sizes(), " for ", rows,
              " rows");
  const bool mean = reduction == at::Reduction::Mean;
  fill_gradient(grad_input, [&](const at::Tensor& out) {
    launch(problem.kernel(multilabel_backward_family, false, false, each), problem.queue,
           problem.by_score(), Pointer{problem.scores.const_data_ptr()},
           Pointer{problem.target.const_data_ptr()}, Pointer{marks.const_data_ptr()},
           Pointer{grad.const_data_ptr()}, Pointer{out.mutable_data_ptr()}, problem.arguments,
           problem.real(1.0 / (mean ? rows * classes : classes)));
  });
  return grad_input;
}

at::Tensor multilabel_margin_loss_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                           const at::Tensor& target, int64_t reduction,
                                           const at::Tensor& is_target) {
  at::Tensor grad_input = at::empty(self.sizes(), self.options());
  return multilabel_margin_loss_backward_grad_input(grad_output, self, target, reduction, is_target,
                                                    grad_input);
}

}  // namespace ocl::native
