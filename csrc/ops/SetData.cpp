// Tensor.data's setter between this device and others: `tensor.data = other`, and with it
// torch.nn.Module.to, which changes parameters in place.
//
// Upstream asks whether one tensor can take the other's place. What it lists as dense tensors,
// c10::TensorImpl::has_compatible_shallow_copy_type, lacks those of PrivateUse1.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace ocl::native {

namespace {

bool is_dense(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kDense(c10::DispatchKey::Dense);
  constexpr c10::DispatchKeySet kBackends(
      {c10::BackendComponent::CPUBit, c10::BackendComponent::CUDABit, c10::BackendComponent::MPSBit,
       c10::BackendComponent::XPUBit, c10::BackendComponent::PrivateUse1Bit});
  return tensor.key_set().has_any(kDense) && tensor.key_set().has_any(kBackends);
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return (is_dense(self) && is_dense(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

void implement(torch::Library& library) {
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { implement(m); }

}  // namespace

}  // namespace ocl::native
