// The fused Adam and AdamW.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <cmath>
#include <string_view>

#include "opencl/kernel_family.h"
#include "ops/optimizer/FusedOptimizer.h"

namespace ocl::native::fused {

namespace {

const KernelFamily family{"multi_tensor/adam.cl", "adam_tensors"};

using multi_tensor::Operand;

}  // namespace

void adam(const char* op, const AdamLists& lists, const AdamNumbers& numbers,
          const Options& options) {
  const bool decoupled = std::string_view(op) == "_fused_adamw_";
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

}  // namespace ocl::native::fused
