// The fused Adagrad.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "opencl/kernel_family.h"
#include "ops/optimizer/FusedOptimizer.h"

namespace ocl::native::fused {

namespace {

const KernelFamily family{"multi_tensor/adagrad.cl", "adagrad_tensors"};

using multi_tensor::Operand;

}  // namespace

void adagrad(const char* op, const AdagradLists& lists, const AdagradNumbers& numbers,
             const Options& options) {
  const Operand operands[] = {{lists.params, Operand::written},
                              {lists.grads, access_of_gradients(options)},
                              {lists.state_sums, Operand::written},
                              {lists.steps, Operand::single}};
  run_optimizer(
      op, family, operands, options, {},
      kernel_arguments::AdagradArguments{
          .lr_decay = numbers.lr_decay, .weight_decay = numbers.weight_decay, .eps = numbers.eps});
}

}  // namespace ocl::native::fused
