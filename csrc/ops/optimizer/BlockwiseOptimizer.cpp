// torch_ocl::optimizer_8bit_: a step of an optimizer whose states have 8 bits with a largest value
// for each block, as bitsandbytes keeps them (T. Dettmers et al., "8-bit Optimizers via Block-wise
// Quantization", 2022). torch_ocl/integrations/bitsandbytes.py registers it.
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cmath>
#include <string_view>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using at::Tensor;

const KernelFamily family{"quantize/blockwise.cl", "blockwise"};
constexpr int64_t kBlock = 256;  // bitsandbytes': elements with one largest value

using namespace kernel_types;
#include "quantize/blockwise_arguments.clh"

int rule_of(std::string_view name) {
  constexpr std::string_view kNames[] = {"adam", "momentum", "rmsprop", "lion", "adagrad"};
  for (int rule = 0; rule < 5; ++rule) {
    if (kNames[rule] == name) return rule;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "ocl: no optimizer of 8 bits called ", name);
}

void check_states(const Tensor& parameter, const Tensor& states, const Tensor& table,
                  const Tensor& largest) {
  TORCH_CHECK(states.scalar_type() == at::kByte && states.is_contiguous() &&
                  states.numel() == parameter.numel(),
              "optimizer_8bit_: expected a contiguous state of uint8 for each parameter");
  TORCH_CHECK(table.scalar_type() == at::kFloat && table.is_contiguous() && table.numel() == 256,
              "optimizer_8bit_: expected a table of 256 float32 values");
  TORCH_CHECK(largest.scalar_type() == at::kFloat && largest.is_contiguous() &&
                  largest.numel() == ceil_div(parameter.numel(), kBlock),
              "optimizer_8bit_: expected a float32 value for each block of ", kBlock);
}

void optimizer_8bit_(std::string_view name, const Tensor& gradient, Tensor& parameter,
                     Tensor& state1, const std::optional<Tensor>& state2, double beta1,
                     double beta2, double eps, int64_t step, double rate, const Tensor& table1,
                     const std::optional<Tensor>& table2, Tensor& largest1,
                     const std::optional<Tensor>& largest2, double decay, double gradient_scale) {
  const c10::DeviceGuard guard(parameter.device());
  const int rule = rule_of(name);
  const at::ScalarType dtype = parameter.scalar_type();
  TORCH_CHECK(compute_dtype(dtype) == at::kFloat && at::isFloatingType(dtype),
              "optimizer_8bit_: expected parameters of float32, float16 or bfloat16, got ", dtype);
  TORCH_CHECK(gradient.scalar_type() == dtype && gradient.sizes() == parameter.sizes(),
              "optimizer_8bit_: expected a gradient like the parameter");
  TORCH_CHECK(parameter.is_contiguous(), "optimizer_8bit_: expected a contiguous parameter");
  check_states(parameter, state1, table1, largest1);
  if (rule == 0) {
    TORCH_CHECK(state2 && table2 && largest2, "optimizer_8bit_: adam has two states");
    check_states(parameter, *state2, *table2, *largest2);
  }
  if (parameter.numel() == 0) return;
  BlockwiseArguments arguments{};
  arguments.elements = static_cast<uint64_t>(parameter.numel());
  arguments.block = kBlock;
  arguments.beta1 = static_cast<float>(beta1);
  arguments.beta2 = static_cast<float>(beta2);
  arguments.eps = static_cast<float>(eps);
  arguments.rate = static_cast<float>(rate);
  arguments.decay = static_cast<float>(decay);
  arguments.gradient_scale = static_cast<float>(gradient_scale);
  const auto count = static_cast<double>(step);
  arguments.correction1 = static_cast<float>(1 - std::pow(beta1, count));
  arguments.correction2 = static_cast<float>(std::sqrt(1 - std::pow(beta2, count)));
  arguments.first = step == 1 ? 1 : 0;
  Queue& queue = current_queue(parameter.device().index());
  Device& device = queue.device();
  const int64_t group = device.is_cpu() ? 1 : static_cast<int64_t>(group_of_lanes(device));
  const auto blocks = static_cast<size_t>(ceil_div(parameter.numel(), kBlock));
  const Tensor dense = gradient.contiguous();
  const auto optional_pointer = [](const std::optional<Tensor>& tensor) {
    return Pointer{tensor ? tensor->const_data_ptr() : nullptr};
  };
  launch(
      family.get(device,
                 {{"E", tag(dtype)}, {"GROUP", group}, {"SHARE", kBlock / group}, {"RULE", rule}}),
      queue, NDRange::linear(blocks * static_cast<size_t>(group), static_cast<size_t>(group)),
      Pointer{parameter.mutable_data_ptr()}, Pointer{dense.const_data_ptr()},
      Pointer{state1.mutable_data_ptr()}, optional_pointer(state2),
      Pointer{table1.const_data_ptr()}, optional_pointer(table2),
      Pointer{largest1.mutable_data_ptr()}, optional_pointer(largest2), arguments);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ocl, library) {
  library.def(
      "optimizer_8bit_(str name, Tensor gradient, Tensor(a!) parameter, Tensor(b!) state1, "
      "Tensor(c!)? state2, float beta1, float beta2, float eps, int step, float rate, Tensor "
      "table1, Tensor? table2, Tensor(d!) largest1, Tensor(e!)? largest2, float decay, float "
      "gradient_scale) -> ()");
}

TORCH_LIBRARY_IMPL(torch_ocl, PrivateUse1, library) {
  library.impl("optimizer_8bit_", TORCH_FN(optimizer_8bit_));
}

}  // namespace ocl::native
