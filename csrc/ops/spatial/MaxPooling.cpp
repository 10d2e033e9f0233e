// max_pool1d: upstream's composite function asks every device but the CPU for positions, which only
// the gradient needs.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/MaxPooling.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool1d_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

#include "engine/spatial/pool.h"
#include "ops/spatial/PoolArguments.h"

namespace ocl::native {
namespace {

using at::Tensor;

/// Whether positions are needed, or the arguments are upstream's to judge.
bool is_left_to_upstream(const Tensor& self) {
  const bool plain = !self.key_set().has_any(c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize}));
  return !plain || (self.requires_grad() && at::GradMode::is_enabled()) ||
         self._fw_grad(/*level=*/0).defined() || self.is_neg() || self.numel() == 0 ||
         (self.dim() != 2 && self.dim() != 3) ||
         !(self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble ||
           self.scalar_type() == at::kHalf || self.scalar_type() == at::kBFloat16);
}

Tensor max_pool1d(const Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                  at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  if (!is_left_to_upstream(self)) {
    at::native::check_max_pool1d(self, kernel_size, stride, padding, dilation, ceil_mode);
    const spatial::PoolWindow window = pool_window(1, kernel_size, stride, padding, dilation);
    c10::DimVector sizes(self.sizes().begin(), self.sizes().end());
    sizes.back() =
        at::native::pooling_output_shape<int64_t>(self.size(-1), window.kernel[2], window.pad[2],
                                                  window.stride[2], window.dilation[2], ceil_mode);
    const Tensor out = at::empty(sizes, self.options());
    if (spatial::max_pool_only(out, self, window)) return out;
  }
  return at::compositeimplicitautograd::max_pool1d(self, kernel_size, stride, padding, dilation,
                                                   ceil_mode);
}

}  // namespace

// Composite functions are registered below autograd too, for inference mode.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("max_pool1d", TORCH_FN(max_pool1d)); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("max_pool1d", TORCH_FN(max_pool1d)); }

}  // namespace ocl::native
