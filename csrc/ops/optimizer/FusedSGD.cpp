// The fused SGD.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "opencl/kernel_family.h"
#include "ops/optimizer/FusedOptimizer.h"

namespace ocl::native::fused {

namespace {

const KernelFamily family{"multi_tensor/sgd.cl", "sgd_tensors"};

using multi_tensor::Operand;

}  // namespace

void sgd(const char* op, const SgdLists& lists, const SgdNumbers& numbers, const Options& options) {
  const bool momentum = !lists.momentum_buffers.empty();
  if (!momentum) {
    TORCH_CHECK(numbers.momentum == 0, op, ": momentum needs buffers");
    TORCH_CHECK(!numbers.first, op, ": a first step needs momentum buffers");
  } else {
    TORCH_CHECK(numbers.momentum > 0, op, ": buffers are for a positive momentum");
  }
  c10::SmallVector<Operand, 6> operands{{lists.params, Operand::written},
                                        {lists.grads, access_of_gradients(options)}};
  if (momentum) operands.push_back({lists.momentum_buffers, Operand::written});
  const kernel_arguments::SgdArguments arguments{.weight_decay = numbers.weight_decay,
                                                 .momentum = numbers.momentum,
                                                 .undamped = 1 - numbers.dampening};
  run_optimizer(op, family, operands, options,
                {{"MOMENTUM", momentum}, {"NESTEROV", numbers.nesterov}, {"FIRST", numbers.first}},
                arguments);
}

}  // namespace ocl::native::fused
