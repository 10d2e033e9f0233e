// The fused SGD.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "opencl/kernel_family.h"
#include "ops/_fused_sgd.h"
#include "ops/optimizer/FusedOptimizer.h"

namespace ocl::native {

namespace {

const KernelFamily family{"multi_tensor/sgd.cl", "sgd_tensors"};

using multi_tensor::Operand;

struct SgdLists {
  at::TensorList params, grads, momentum_buffers;
};
struct SgdNumbers {
  double weight_decay, momentum, dampening;
  bool nesterov, first;
};

void sgd(const SgdLists& lists, const SgdNumbers& numbers, const Options& options) {
  const bool momentum = !lists.momentum_buffers.empty();
  if (!momentum) {
    TORCH_CHECK(numbers.momentum == 0, "_fused_sgd_: momentum needs buffers");
    TORCH_CHECK(!numbers.first, "_fused_sgd_: a first step needs momentum buffers");
  } else {
    TORCH_CHECK(numbers.momentum > 0, "_fused_sgd_: buffers are for a positive momentum");
  }
  c10::SmallVector<Operand, 6> operands{{lists.params, Operand::written},
                                        {lists.grads, access_of_gradients(options)}};
  if (momentum) operands.push_back({lists.momentum_buffers, Operand::written});
  const kernel_arguments::SgdArguments arguments{.weight_decay = numbers.weight_decay,
                                                 .momentum = numbers.momentum,
                                                 .undamped = 1 - numbers.dampening};
  run_optimizer("_fused_sgd_", family, operands, options,
                {{"MOMENTUM", momentum}, {"NESTEROV", numbers.nesterov}, {"FIRST", numbers.first}},
                arguments);
}

}  // namespace

void _fused_sgd_(at::TensorList self, at::TensorList grads, at::TensorList momentum_buffer_list,
                 double weight_decay, double momentum, double lr, double dampening, bool nesterov,
                 bool maximize, bool is_first_step, const std::optional<at::Tensor>& grad_scale,
                 const std::optional<at::Tensor>& found_inf) {
  sgd({self, grads, momentum_buffer_list},
      {weight_decay, momentum, dampening, nesterov, is_first_step},
      Options{lr, {}, grad_scale, found_inf, maximize});
}

void _fused_sgd__tensor_lr(at::TensorList self, at::TensorList grads,
                           at::TensorList momentum_buffer_list, double weight_decay,
                           double momentum, const at::Tensor& lr, double dampening, bool nesterov,
                           bool maximize, bool is_first_step,
                           const std::optional<at::Tensor>& grad_scale,
                           const std::optional<at::Tensor>& found_inf) {
  sgd({self, grads, momentum_buffer_list},
      {weight_decay, momentum, dampening, nesterov, is_first_step},
      Options{0, lr, grad_scale, found_inf, maximize});
}

}  // namespace ocl::native
