// torch.distributed's collectives on `ocl` tensors: an error that says what to do where the process
// group has no backend for them.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/stream.h"

namespace ocl {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// The group that an argument is or names; null for other arguments.
Group group_of(const c10::Argument& argument, const c10::IValue& value) {
  if (argument.name() != "process_group" && argument.name() != "group_name") return nullptr;
  if (value.isString()) return c10d::resolve_process_group(value.toStringRef());
  return value.isCustomClass() ? value.toCustomClass<c10d::ProcessGroup>() : nullptr;
}

bool has_backend(const c10d::ProcessGroup& group) {
  return std::ranges::any_of(group.getDeviceTypes(),
                             [](c10::Device device) { return device.type() == kDeviceType; });
}

void check_backend(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Group group = group_of(arguments[i], values[i]);
    TORCH_CHECK(!group || has_backend(*group), op.schema().name(),
                ": the process group has no backend for ocl tensors. Make it with "
                "init_process_group() or the backend \"gloo\" or \"cpu:gloo,ocl:gloo\", or send "
                "them as CPU tensors, tensor.cpu().");
  }
}

// Stands above upstream's kernel for all devices, which looks for the backend.
void check_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  check_backend(op, *stack);
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

// Stands in the place of upstream's kernel for all devices, below the formulas of gradients.
void check_and_call(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  check_backend(op, *stack);
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
}

template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* kernel>
void implement(torch::Library& library, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<kernel>());
  }
}

TORCH_LIBRARY_IMPL(c10d, AutogradPrivateUse1, m) {
  implement<&check_first>(
      m, {"_allgather_base_", "_reduce_scatter_base_", "allgather_", "allgather_coalesced_",
          "allgather_into_tensor_coalesced_", "allreduce_", "allreduce_coalesced_", "alltoall_",
          "alltoall_base_", "barrier", "broadcast_", "gather_", "recv_", "recv_any_source_",
          "reduce_", "reduce_scatter_", "reduce_scatter_tensor_coalesced_", "scatter_", "send"});
}

TORCH_LIBRARY_IMPL(_c10d_functional, PrivateUse1, m) {
  implement<&check_and_call>(
      m, {"all_gather_into_tensor", "all_gather_into_tensor_coalesced",
          "all_gather_into_tensor_out", "all_reduce", "all_reduce_", "all_reduce_coalesced",
          "all_reduce_coalesced_", "all_to_all_single", "broadcast", "broadcast_",
          "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_out"});
}

}  // namespace
}  // namespace ocl
