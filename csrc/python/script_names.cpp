// TorchScript as programs see it that know "cuda" alone: torch_ocl.cuda_to_ocl().
//
// Scripts are run by an interpreter of torch's own, which asks neither Python's torch.device nor
// its Tensor.is_cuda. It finds what a device's name and type are by operators, so these are
// replaced: a name of CUDA's becomes a device of `ocl`, and a device shows itself as CUDA's.
#include <ATen/autocast_mode.h>
#include <ATen/core/jit_type.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "opencl/device_types.h"
#include "opencl/platform.h"
#include "python/bindings.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

using torch::jit::drop;
using torch::jit::Operation;
using torch::jit::pop;
using torch::jit::push;
using torch::jit::Stack;

bool is_ours(const c10::Device& device) { return device.type() == kDeviceType; }

/// The device of `ocl` for one of CUDA's.
c10::Device to_ocl(const c10::Device& device) {
  return device.is_cuda() ? c10::Device(kDeviceType, device.index()) : device;
}

/// A device's text, as device_names.cpp has it.
std::string text_of(const c10::Device& device) {
  if (!is_ours(device)) return device.str();
  return device.has_index() ? "cuda:" + std::to_string(device.index()) : "cuda";
}

/// Has `make` of upstream's operation take its place, for the operator of that schema.
template <class Make>
void replace(const char* schema, Make make) {
  const c10::FunctionSchema wanted = torch::jit::parseSchema(schema);
  const auto symbol = c10::Symbol::fromQualString(wanted.name());
  for (const auto& known : torch::jit::getAllOperatorsFor(symbol)) {
    if (known->schema().overload_name() != wanted.overload_name()) continue;
    const c10::AliasAnalysisKind alias_analysis = known->aliasAnalysisKind();
    Operation operation = make(known->getOperation());
    torch::jit::deregisterOperator(known->schema());
    torch::jit::registerOperator(
        torch::jit::Operator(schema, std::move(operation), alias_analysis));
    return;
  }
  throw std::runtime_error(std::string("TorchScript has no operator ") + schema);
}

/// An operation that makes nothing of upstream's.
template <class Function>
auto instead(Function function) {
  return [function](const Operation&) -> Operation { return function; };
}

void add(const char* schema, Operation operation) {
  torch::jit::registerOperator(
      torch::jit::Operator(schema, std::move(operation), c10::AliasAnalysisKind::CONSERVATIVE));
}

void replace_devices() {
  replace("aten::device(str a) -> Device", instead([](Stack& stack) {
            push(stack, to_ocl(c10::Device(pop(stack).toStringRef())));
          }));
  replace("aten::device.with_index(str type, int index) -> Device", instead([](Stack& stack) {
            const int64_t index = pop(stack).toInt();
            const c10::Device type(pop(stack).toStringRef());
            push(stack, to_ocl(c10::Device(type.type(), static_cast<c10::DeviceIndex>(index))));
          }));
  replace("prim::type(Device self) -> str", instead([](Stack& stack) {
            const c10::Device device = pop(stack).toDevice();
            push(stack, is_ours(device) ? "cuda" : c10::DeviceTypeName(device.type(), true));
          }));
  replace("aten::str(t elem) -> str", [](Operation upstream) -> Operation {
    return [upstream = std::move(upstream)](Stack& stack) mutable {
      if (!stack.back().isDevice()) return upstream(stack);
      push(stack, text_of(pop(stack).toDevice()));
    };
  });
  replace("aten::cuda(Tensor(a) self) -> Tensor(a|b)", instead([](Stack& stack) {
            push(stack, pop(stack).toTensor().to(c10::Device(kDeviceType)));
          }));
}

void replace_autocast() {
  replace("aten::is_autocast_enabled() -> bool", instead([](Stack& stack) {
            push(stack, at::autocast::is_autocast_enabled(kDeviceType));
          }));
  replace("aten::get_autocast_dtype(str device_type) -> ScalarType", instead([](Stack& stack) {
            const c10::Device type = to_ocl(c10::Device(pop(stack).toStringRef()));
            push(stack, at::autocast::get_autocast_dtype(type.type()));
          }));
  replace(
      "aten::_autocast_to_reduced_precision(Tensor(a) self, bool cuda_enabled, bool cpu_enabled, "
      "ScalarType cuda_dtype, ScalarType cpu_dtype) -> Tensor(a)",
      [](Operation upstream) -> Operation {
        return [upstream = std::move(upstream)](Stack& stack) mutable {
          const size_t first = stack.size() - 5;
          const at::Tensor tensor = stack[first].toTensor();
          if (!is_ours(tensor.device())) return upstream(stack);
          const bool casts = stack[first + 1].toBool() && tensor.scalar_type() == at::kFloat;
          const auto dtype = stack[first + 3].toScalarType();
          drop(stack, 5);
          push(stack, casts ? tensor.to(dtype) : tensor);
        };
      });
  replace(
      "aten::_autocast_to_full_precision(Tensor(a) self, bool cuda_enabled, bool cpu_enabled) -> "
      "Tensor(a)",
      [](Operation upstream) -> Operation {
        return [upstream = std::move(upstream)](Stack& stack) mutable {
          const size_t first = stack.size() - 3;
          const at::Tensor tensor = stack[first].toTensor();
          if (!is_ours(tensor.device())) return upstream(stack);
          const auto dtype = tensor.scalar_type();
          const bool casts =
              stack[first + 1].toBool() && (dtype == at::kHalf || dtype == at::kBFloat16);
          drop(stack, 3);
          push(stack, casts ? tensor.to(at::kFloat) : tensor);
        };
      });
}

/// The functions of torch.cuda that scripts call by operators. A torch without CUDA has none.
void add_functions() {
  const auto wait = [](c10::DeviceIndex index) { synchronize_device(checked_index(index)); };
  add("cuda::device_count() -> int",
      [](Stack& stack) { push(stack, static_cast<int64_t>(device_count())); });
  add("cuda::_current_device() -> int",
      [](Stack& stack) { push(stack, static_cast<int64_t>(current_device())); });
  add("cuda::_set_device(int64_t val) -> ()",
      [](Stack& stack) { set_device(checked_index(pop(stack).toInt())); });
  add("cuda::device_index(Device device) -> int",
      [](Stack& stack) { push(stack, static_cast<int64_t>(pop(stack).toDevice().index())); });
  add("cuda::synchronize() -> ()", [wait](Stack&) { wait(current_device()); });
  add("cuda::synchronize.device(Device? device) -> ()", [wait](Stack& stack) {
    const auto device = pop(stack).toOptional<c10::Device>();
    wait(device && device->has_index() ? device->index() : current_device());
  });
  add("cuda::synchronize.int(int64_t val) -> ()",
      [wait](Stack& stack) { wait(static_cast<c10::DeviceIndex>(pop(stack).toInt())); });
}

/// Has scripts take "cuda" for `ocl`. It can't be undone.
void show_scripts_cuda() {
  static const bool done = [] {
    replace_devices();
    replace_autocast();
    add_functions();
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

void bind_script_names(py::module_& module) { module.def("show_scripts_cuda", &show_scripts_cuda); }

}  // namespace ocl::python
