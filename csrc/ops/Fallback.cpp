// Ops without a kernel: an error by default, the CPU on request. Never silently.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <sstream>

#include "opencl/environment.h"
#include "runtime/counters.h"

namespace ocl {

namespace {

bool fallback_allowed() {
  // Read on every use: a slow path, and a user may set it after the first error.
  return switched_on("TORCH_OCL_FALLBACK", false);
}

std::string dtypes_of(const torch::jit::Stack& stack, size_t count) {
  std::ostringstream text;
  const char* separator = "";
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    text << separator << tensor.scalar_type();
    separator = ", ";
  };
  for (const c10::IValue& value : torch::jit::last(stack, count)) {
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    }
  }
  return text.str();
}

/// Whether results are quantised tensors, which this device has no memory layout for: with the
/// fallback they could not be brought back.
bool makes_quantized(const std::string& name) {
  return name.rfind("aten::quantize_per_", 0) == 0 || name.rfind("aten::_make_per_", 0) == 0;
}

[[noreturn]] void refuse_quantized(const std::string& name) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "The operator '", name,
                              "' has no kernel for the ocl device, which has no quantised tensors, "
                              "and can't fall back to the CPU. Quantise tensors there, after "
                              ".cpu(); torch.fake_quantize_per_tensor_affine and "
                              "fake_quantize_per_channel_affine run on the device.");
}

void fallback_of_quantized(const c10::OperatorHandle& op, torch::jit::Stack*) {
  refuse_quantized(c10::toString(op.operator_name()));
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.schema().operator_name());
  if (makes_quantized(name)) refuse_quantized(name);
  TORCH_CHECK_NOT_IMPLEMENTED(fallback_allowed(), "The operator '", name,
                              "' has no kernel for the ocl device (dtypes: ",
                              dtypes_of(*stack, op.schema().arguments().size()),
                              "). Set TORCH_OCL_FALLBACK=1 to run it on the CPU; "
                              "torch.ocl.fallback_counts() then counts it.");
  at::native::cpu_fallback(op, stack);
  // After the fact: what the CPU can't run either has not been run there.
  if (count_fallback(name) == 1) {
    TORCH_WARN("The operator '", name,
               "' has no kernel for the ocl device and runs on the CPU (TORCH_OCL_FALLBACK=1).");
  }
}

/// Functions that upstream has for every device, and that read elements by their addresses as if
/// all were CPUs: left to them, they would end the process.
constexpr const char* kReadOnHost[] = {
    "_nnpack_spatial_convolution",
    "_rowwise_prune",
    "_sobol_engine_draw",
    "_sobol_engine_ff_",
    "_sobol_engine_initialize_state_",
    "_sobol_engine_scramble_",
    "choose_qparams_optimized",
    "fbgemm_linear_fp16_weight",
    "fbgemm_linear_fp16_weight.out",
    "fbgemm_linear_fp16_weight_fp32_activation",
    "fbgemm_linear_fp16_weight_fp32_activation.out",
    "fbgemm_linear_int8_weight",
    "fbgemm_linear_int8_weight_fp32_activation",
    "fbgemm_linear_quantize_weight",
    "fbgemm_pack_gemm_matrix_fp16",
    "fbgemm_pack_quantized_matrix",
    "fbgemm_pack_quantized_matrix.KN",
    "mkldnn_convolution",
    "quantized_gru_cell",
    "quantized_lstm_cell",
    "quantized_rnn_relu_cell",
    "quantized_rnn_tanh_cell",
};

void register_functions_of_hosts(torch::Library& m) {
  for (const char* name : kReadOnHost) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_quantized>());
}

// Composite functions come before a fallback, and are registered for autograd as well.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_functions_of_hosts(m); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_functions_of_hosts(m); }

}  // namespace ocl
