// The fused Adagrad.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "opencl/kernel_family.h"
#include "ops/_fused_adagrad.h"
#include "ops/optimizer/FusedOptimizer.h"

namespace ocl::native {

namespace {

const KernelFamily family{"multi_tensor/adagrad.cl", "adagrad_tensors"};

using multi_tensor::Operand;

struct AdagradLists {
  at::TensorList params, grads, state_sums, steps;
};

void adagrad(const AdagradLists& lists, double lr_decay, double weight_decay, double eps,
             const Options& options) {
  const Operand operands[] = {{lists.params, Operand::written},
                              {lists.grads, access_of_gradients(options)},
                              {lists.state_sums, Operand::written},
                              {lists.steps, Operand::single}};
  run_optimizer("_fused_adagrad_", family, operands, options, {},
                kernel_arguments::AdagradArguments{
                    .lr_decay = lr_decay, .weight_decay = weight_decay, .eps = eps});
}

}  // namespace

void _fused_adagrad_(at::TensorList self, at::TensorList grads, at::TensorList state_sums,
                     at::TensorList state_steps, double lr, double lr_decay, double weight_decay,
                     double eps, bool maximize, const std::optional<at::Tensor>& grad_scale,
                     const std::optional<at::Tensor>& found_inf) {
  adagrad({self, grads, state_sums, state_steps}, lr_decay, weight_decay, eps,
          Options{lr, {}, grad_scale, found_inf, maximize});
}

void _fused_adagrad__tensor_lr(at::TensorList self, at::TensorList grads, at::TensorList state_sums,
                               at::TensorList state_steps, const at::Tensor& lr, double lr_decay,
                               double weight_decay, double eps, bool maximize,
                               const std::optional<at::Tensor>& grad_scale,
                               const std::optional<at::Tensor>& found_inf) {
  adagrad({self, grads, state_sums, state_steps}, lr_decay, weight_decay, eps,
          Options{0, lr, grad_scale, found_inf, maximize});
}

}  // namespace ocl::native
