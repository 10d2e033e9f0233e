// torch_ocl::set_data: `self.data = data` between this device and another one, which Tensor.data
// refuses for PrivateUse1. What torch_ocl/_parameters.py needs.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

namespace ocl::native {

namespace {

void set_data(const at::Tensor& self, const at::Tensor& data) {
  TORCH_CHECK(self.is_leaf(), "set_data: not a leaf");
  TORCH_CHECK(self.layout() == at::kStrided && data.layout() == at::kStrided,
              "set_data: both tensors must be strided");
  // A gradient's way back ends in a node that knows the old device.
  if (auto* meta = torch::autograd::impl::get_autograd_meta(self)) {
    const std::lock_guard<std::mutex> lock(meta->mutex_);
    meta->grad_accumulator_.reset();
  }
  self.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

}  // namespace

TORCH_LIBRARY(torch_ocl, library) {
  library.def("set_data(Tensor(a!) self, Tensor data) -> ()");
  library.impl("set_data", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(set_data));
}

}  // namespace ocl::native
