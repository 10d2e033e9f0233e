// The fused optimisers, and what they share: their options, and the launch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <bit>
#include <optional>

#include "engine/dtype.h"
#include "engine/multi_tensor/multi_tensor.h"
#include "opencl/kernel_family.h"

namespace ocl::native {

namespace kernel_arguments {
using real = double;
#include "multi_tensor/optimizer_arguments.clh"
}  // namespace kernel_arguments

using Defines = c10::SmallVector<Define, 8>;

/// The learning rate (a tensor's counts if it is defined: 0-dim, on the host or on the device), and
/// what torch.amp.GradScaler passes: both 0-dim floats on the device.
struct Options {
  double lr;
  at::Tensor lr_tensor;
  std::optional<at::Tensor> grad_scale, found_inf;
  bool maximize;
};

/// Gradients are stored again only where they are unscaled: then they must not be expanded ones.
inline multi_tensor::Operand::Access access_of_gradients(const Options& options) {
  const bool scaled = options.grad_scale && options.grad_scale->defined();
  return scaled ? multi_tensor::Operand::written : multi_tensor::Operand::read;
}

namespace detail {
void prepare(const char* op, Options& options, std::span<const multi_tensor::Operand> operands,
             Defines& defines);
cl_uint set_options(Kernel& kernel, cl_uint index, const Options& options, at::ScalarType compute);
}  // namespace detail

/// Checks the lists and runs the kernel. Its own arguments are one of the structs above, which the
/// kernel gets in its compute dtype. `defines` are the kernel's own. Throws RuntimeError for bad
/// lists.
template <class Arguments>
void run_optimizer(const char* op, const KernelFamily& family,
                   std::span<const multi_tensor::Operand> operands, Options options,
                   Defines defines, const Arguments& arguments) {
  constexpr size_t count = sizeof(Arguments) / sizeof(kernel_arguments::real);
  const auto numbers = std::bit_cast<std::array<double, count>>(arguments);
  if (operands[0].tensors.empty()) return;
  detail::prepare(op, options, operands, defines);
  const at::ScalarType compute = compute_dtype(operands[0].tensors[0].scalar_type());
  std::array<float, count> floats;
  for (size_t i = 0; i < count; ++i) floats[i] = static_cast<float>(numbers[i]);
  multi_tensor::run(family, operands, defines, [&](Kernel& kernel, cl_uint index) {
    index = detail::set_options(kernel, index, options, compute);
    if (compute == at::kDouble) {
      kernel.set_value(index, numbers);
    } else {
      kernel.set_value(index, floats);
    }
  });
}

// Generated functions call these (codegen/fused.py), with lists and numbers in the schema's order.
namespace fused {

struct AdamLists {
  at::TensorList params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps;
};
struct AdamNumbers {
  double beta1, beta2, weight_decay, eps;
  bool amsgrad;
};
void adam(const char* op, const AdamLists& lists, const AdamNumbers& numbers,
          const Options& options);

struct AdagradLists {
  at::TensorList params, grads, state_sums, steps;
};
struct AdagradNumbers {
  double lr_decay, weight_decay, eps;
};
void adagrad(const char* op, const AdagradLists& lists, const AdagradNumbers& numbers,
             const Options& options);

struct SgdLists {
  at::TensorList params, grads, momentum_buffers;
};
struct SgdNumbers {
  double weight_decay, momentum, dampening;
  bool nesterov, first;
};
void sgd(const char* op, const SgdLists& lists, const SgdNumbers& numbers, const Options& options);

}  // namespace fused

}  // namespace ocl::native
