#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/optimizer/FusedOptimizer.h"

#include <ATen/core/Tensor.h>

namespace ocl::native::detail {

namespace {

bool given(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

void check_flag(const char* op, const char* name, const std::optional<at::Tensor>& tensor,
                at::Device device) {
  if (!given(tensor)) return;
  TORCH_CHECK(
      tensor->device() == device && tensor->scalar_type() == at::kFloat && tensor->numel() == 1, op,
      ": ", name, " must be one float on ", device, ", got ", tensor->sizes(), " of ",
      tensor->scalar_type(), " on ", tensor->device());
}

Pointer address(const std::optional<at::Tensor>& tensor) {
  return {given(tensor) ? tensor->const_data_ptr() : nullptr};
}

}  // namespace

void prepare(const char* op, Options& options, std::span<const multi_tensor::Operand> operands,
             Defines& defines) {
  multi_tensor::check(op, operands);
  const at::Device device = operands[0].tensors[0].device();
  check_flag(op, "grad_scale", options.grad_scale, device);
  check_flag(op, "found_inf", options.found_inf, device);
  if (options.lr_tensor.defined() && options.lr_tensor.is_cpu()) {
    options.lr = options.lr_tensor.item().toDouble();
    options.lr_tensor.reset();
  }
  defines.emplace_back("SCALED", given(options.grad_scale));
  defines.emplace_back("SKIPPABLE", given(options.found_inf));
  defines.emplace_back("MAXIMIZE", options.maximize);
  if (options.lr_tensor.defined()) {
    TORCH_CHECK(options.lr_tensor.device() == device && options.lr_tensor.numel() == 1, op,
                ": lr must be one number on the host or on ", device);
    defines.emplace_back("LR", tag(options.lr_tensor.scalar_type()));
  }
}

cl_uint set_options(Kernel& kernel, cl_uint index, const Options& options, at::ScalarType compute) {
  ocl::detail::set_argument(kernel, index, address(options.grad_scale));
  ocl::detail::set_argument(kernel, index, address(options.found_inf));
  const at::Tensor& lr = options.lr_tensor;
  ocl::detail::set_argument(kernel, index, Pointer{lr.defined() ? lr.const_data_ptr() : nullptr});
  if (compute == at::kDouble) {
    kernel.set_value(index++, options.lr);
  } else {
    kernel.set_value(index++, static_cast<float>(options.lr));
  }
  return index;
}

}  // namespace ocl::native::detail
