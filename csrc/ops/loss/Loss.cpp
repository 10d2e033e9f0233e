// Losses whose upstream implementation is tied to the CPU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>

#include "engine/pointwise/pointwise.h"
#include "ops/binary_cross_entropy.h"
#include "ops/binary_cross_entropy_backward.h"

namespace ocl::native {

namespace {

const pointwise::Op binary_cross_entropy_op{
    "binary_cross_entropy",
    0,
    0,
    {"fails_probabilities",
     "binary_cross_entropy: all elements of input should be between 0 and 1, and all of target"}};
const pointwise::Op binary_cross_entropy_backward_op{"binary_cross_entropy_backward", 0};

at::TensorIterator loss_iterator(at::Tensor& out, std::initializer_list<at::Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.add_output(out);
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build();
}

}  // namespace

at::Tensor& binary_cross_entropy_out(const at::Tensor& self, const at::Tensor& target,
                                     const std::optional<at::Tensor>& weight, int64_t reduction,
                                     at::Tensor& out) {
  const bool weighted = weight && weight->defined();
  at::Tensor loss = reduction == at::Reduction::None && !weighted ? out : at::empty_like(self);
  if (reduction == at::Reduction::None && !weighted) loss.resize_(self.sizes());
  auto iter = loss_iterator(loss, {self, target});
  pointwise::run(iter, binary_cross_entropy_op);
  if (weighted) loss.mul_(*weight);
  if (reduction == at::Reduction::Mean) {
    at::mean_out(out, loss, at::OptionalIntArrayRef(), false, std::nullopt);
  } else if (reduction == at::Reduction::Sum) {
    at::sum_out(out, loss, at::OptionalIntArrayRef(), false, std::nullopt);
  } else if (weighted) {
    out.resize_(loss.sizes());
    out.copy_(loss);
  }
  return out;
}

at::Tensor binary_cross_entropy(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, int64_t reduction) {
  at::Tensor out =
      reduction == at::Reduction::None ? at::empty_like(self) : at::empty({}, self.options());
  return binary_cross_entropy_out(self, target, weight, reduction, out);
}

at::Tensor& binary_cross_entropy_backward_grad_input(const at::Tensor& grad_output,
                                                     const at::Tensor& self,
                                                     const at::Tensor& target,
                                                     const std::optional<at::Tensor>& weight,
                                                     int64_t reduction, at::Tensor& grad_input) {
  grad_input.resize_(self.sizes());
  auto iter = loss_iterator(grad_input, {grad_output.expand_as(self), self, target});
  pointwise::run(iter, binary_cross_entropy_backward_op);
  if (weight && weight->defined()) grad_input.mul_(*weight);
  if (reduction == at::Reduction::Mean) grad_input.div_(self.numel());
  return grad_input;
}

at::Tensor binary_cross_entropy_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                         const at::Tensor& target,
                                         const std::optional<at::Tensor>& weight,
                                         int64_t reduction) {
  at::Tensor grad_input = at::empty_like(self);
  return binary_cross_entropy_backward_grad_input(grad_output, self, target, weight, reduction,
                                                  grad_input);
}

}  // namespace ocl::native
