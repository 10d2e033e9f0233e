// Activations whose upstream implementation is tied to the CPU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Activation.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>

#include "engine/dtype.h"
#include "engine/pointwise/pointwise.h"
#include "ops/gelu.h"
#include "ops/gelu_backward.h"
#include "ops/log_sigmoid_backward.h"
#include "ops/log_sigmoid_forward.h"
#include "ops/rrelu_with_noise.h"

namespace ocl::native {

namespace {

constexpr uint32_t kOnlyFloating =
    pointwise::flag::no_bool | pointwise::flag::no_integer | pointwise::flag::no_complex;
const pointwise::Op gelu_erf_op{"gelu_erf", 0, kOnlyFloating};
const pointwise::Op gelu_tanh_op{"gelu_tanh", 0, kOnlyFloating};
const pointwise::Op gelu_erf_backward_op{"gelu_erf_backward", 0, kOnlyFloating};
const pointwise::Op gelu_tanh_backward_op{"gelu_tanh_backward", 0, kOnlyFloating};
const pointwise::Op log_sigmoid_op{"log_sigmoid", 0, kOnlyFloating};
const pointwise::Op threshold_op{"threshold", 2,
                                 pointwise::flag::no_bool | pointwise::flag::no_complex};
const pointwise::Op log_sigmoid_backward_op{"log_sigmoid_backward", 0, kOnlyFloating};

const pointwise::Op rrelu_op{"rrelu", 0, pointwise::flag::two_outputs};

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

void threshold(at::TensorIteratorBase& iter, const c10::Scalar& threshold,
               const c10::Scalar& value) {
  // The threshold only has to fit what is computed in, the value the result.
  if (!c10::isComplexType(iter.dtype(0))) {
    check_scalar(compute_dtype(iter.dtype(0)), threshold);
    check_scalar(iter.dtype(0), value);
  }
  const c10::Scalar scalars[] = {threshold, value};
  pointwise::run(iter, threshold_op, scalars);
}

// The buffer of upstream's CPU kernel saves exp(-|x|); recomputing it costs less than storing it.
std::tuple<at::Tensor&, at::Tensor&> log_sigmoid_forward_output(const at::Tensor& self,
                                                                at::Tensor& output,
                                                                at::Tensor& buffer) {
  if (!output.sizes().equals(self.sizes())) output.resize_as_(self);  // as on the CPU no warning
  auto iter = at::TensorIterator::unary_op(output, self);
  pointwise::run(iter, log_sigmoid_op);
  return {output, buffer};
}

std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& self) {
  at::Tensor output = at::empty_like(self);
  // vmap looks for its dimension in every result, but there is nothing to keep.
  at::Tensor buffer = at::empty({}, self.options()).expand(self.sizes());
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

at::Tensor& rrelu_with_noise_out(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                                 const at::Scalar& upper, bool training,
                                 std::optional<at::Generator> generator, at::Tensor& out) {
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  if (!training) {
    return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "\"rrelu_with_noise\" not implemented for '", self.scalar_type(),
                              "'");
  TORCH_CHECK(noise.scalar_type() == self.scalar_type(), "expected scalar type ",
              self.scalar_type(), " but found ", noise.scalar_type());
  noise.uniform_(lower.toDouble(), upper.toDouble(), generator);
  at::native::resize_output(out, self.sizes());
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .add_output(out)
                  .add_output(noise)
                  .add_const_input(self)
                  .add_const_input(noise)
                  .build();
  pointwise::run(iter, rrelu_op);
  return out;
}

at::Tensor rrelu_with_noise(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                            const at::Scalar& upper, bool training,
                            std::optional<at::Generator> generator) {
  at::Tensor out = at::empty_like(self);
  return rrelu_with_noise_out(self, noise, lower, upper, training, generator, out);
}

at::Tensor& rrelu_with_noise_(at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                              const at::Scalar& upper, bool training,
                              std::optional<at::Generator> generator) {
  return rrelu_with_noise_out(self, noise, lower, upper, training, generator, self);
}

}  // namespace ocl::native
