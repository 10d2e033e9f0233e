// The fused Adam and AdamW.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <cmath>

#include "opencl/kernel_family.h"
#include "ops/_fused_adam.h"
#include "ops/_fused_adamw.h"
#include "ops/optimizer/FusedOptimizer.h"

namespace ocl::native {

namespace {

const KernelFamily family{"multi_tensor/adam.cl", "adam_tensors"};

using multi_tensor::Operand;

struct AdamLists {
  at::TensorList params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps;
};
struct AdamNumbers {
  double beta1, beta2, weight_decay, eps;
  bool amsgrad;
};

void adam(const char* op, bool decoupled, const AdamLists& lists, const AdamNumbers& numbers,
          const Options& options) {
  c10::SmallVector<Operand, 6> operands{{lists.params, Operand::written},
                                        {lists.grads, access_of_gradients(options)},
                                        {lists.exp_avgs, Operand::written},
                                        {lists.exp_avg_sqs, Operand::written}};
  if (numbers.amsgrad) operands.push_back({lists.max_exp_avg_sqs, Operand::written});
  operands.push_back({lists.steps, Operand::single});
  const kernel_arguments::AdamArguments arguments{.beta2 = numbers.beta2,
                                                  .complement1 = 1 - numbers.beta1,
                                                  .complement2 = 1 - numbers.beta2,
                                                  .log_beta1 = std::log(numbers.beta1),
                                                  .log_beta2 = std::log(numbers.beta2),
                                                  .weight_decay = numbers.weight_decay,
                                                  .eps = numbers.eps};
  run_optimizer(op, family, operands, options,
                {{"AMSGRAD", numbers.amsgrad}, {"DECOUPLED", decoupled}}, arguments);
}

}  // namespace

void _fused_adam_(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs,
                  at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                  at::TensorList state_steps, double lr, double beta1, double beta2,
                  double weight_decay, double eps, bool amsgrad, bool maximize,
                  const std::optional<at::Tensor>& grad_scale,
                  const std::optional<at::Tensor>& found_inf) {
  adam("_fused_adam_", false, {self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps},
       {beta1, beta2, weight_decay, eps, amsgrad},
       Options{lr, {}, grad_scale, found_inf, maximize});
}

void _fused_adam__tensor_lr(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs,
                            at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                            at::TensorList state_steps, const at::Tensor& lr, double beta1,
                            double beta2, double weight_decay, double eps, bool amsgrad,
                            bool maximize, const std::optional<at::Tensor>& grad_scale,
                            const std::optional<at::Tensor>& found_inf) {
  adam("_fused_adam_", false, {self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps},
       {beta1, beta2, weight_decay, eps, amsgrad}, Options{0, lr, grad_scale, found_inf, maximize});
}

void _fused_adamw_(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs,
                   at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                   at::TensorList state_steps, double lr, double beta1, double beta2,
                   double weight_decay, double eps, bool amsgrad, bool maximize,
                   const std::optional<at::Tensor>& grad_scale,
                   const std::optional<at::Tensor>& found_inf) {
  adam("_fused_adamw_", true, {self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps},
       {beta1, beta2, weight_decay, eps, amsgrad},
       Options{lr, {}, grad_scale, found_inf, maximize});
}

void _fused_adamw__tensor_lr(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs,
                             at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                             at::TensorList state_steps, const at::Tensor& lr, double beta1,
                             double beta2, double weight_decay, double eps, bool amsgrad,
                             bool maximize, const std::optional<at::Tensor>& grad_scale,
                             const std::optional<at::Tensor>& found_inf) {
  adam("_fused_adamw_", true, {self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps},
       {beta1, beta2, weight_decay, eps, amsgrad}, Options{0, lr, grad_scale, found_inf, maximize});
}

}  // namespace ocl::native
