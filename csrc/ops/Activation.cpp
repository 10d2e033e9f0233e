// Activations whose upstream implementation is tied to the CPU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Activation.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "engine/pointwise.h"
#include "ops/gelu.h"
#include "ops/gelu_backward.h"
#include "ops/log_sigmoid_backward.h"
#include "ops/log_sigmoid_forward.h"

namespace ocl::native {

namespace {

const pointwise::Op gelu_erf_op{"gelu_erf", 0};
const pointwise::Op gelu_tanh_op{"gelu_tanh", 0};
const pointwise::Op gelu_erf_backward_op{"gelu_erf_backward", 0};
const pointwise::Op gelu_tanh_backward_op{"gelu_tanh_backward", 0};
const pointwise::Op log_sigmoid_op{"log_sigmoid", 0};
const pointwise::Op log_sigmoid_backward_op{"log_sigmoid_backward", 0};

bool is_tanh(c10::string_view approximate) {
  return at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh;
}

}  // namespace

TORCH_IMPL_FUNC(gelu_out)(const at::Tensor&, c10::string_view approximate, const at::Tensor&) {
  pointwise::run(*this, is_tanh(approximate) ? gelu_tanh_op : gelu_erf_op);
}

TORCH_IMPL_FUNC(gelu_backward_out)(const at::Tensor&, const at::Tensor&,
                                   c10::string_view approximate, const at::Tensor&) {
  pointwise::run(*this, is_tanh(approximate) ? gelu_tanh_backward_op : gelu_erf_backward_op);
}

// The buffer of upstream's CPU kernel saves exp(-|x|); recomputing it costs less than storing it.
std::tuple<at::Tensor&, at::Tensor&> log_sigmoid_forward_output(const at::Tensor& self,
                                                                at::Tensor& output,
                                                                at::Tensor& buffer) {
  auto iter = at::TensorIterator::unary_op(output, self);
  pointwise::run(iter, log_sigmoid_op);
  return {output, buffer};
}

std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& self) {
  at::Tensor output = at::empty_like(self);
  at::Tensor buffer = at::empty({0}, self.options());
  log_sigmoid_forward_output(self, output, buffer);
  return {output, buffer};
}

at::Tensor& log_sigmoid_backward_grad_input(const at::Tensor& grad_output, const at::Tensor& self,
                                            const at::Tensor&, at::Tensor& grad_input) {
  auto iter = at::TensorIterator::binary_op(grad_input, grad_output, self);
  pointwise::run(iter, log_sigmoid_backward_op);
  return grad_input;
}

at::Tensor log_sigmoid_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                const at::Tensor& buffer) {
  at::Tensor grad_input = at::empty_like(grad_output);
  return log_sigmoid_backward_grad_input(grad_output, self, buffer, grad_input);
}

}  // namespace ocl::native
