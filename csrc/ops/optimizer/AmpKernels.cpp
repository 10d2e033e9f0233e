// Gradient scaling of mixed precision training (torch.amp.GradScaler).
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "engine/multi_tensor/multi_tensor.h"
#include "opencl/kernel_family.h"
#include "ops/_amp_foreach_non_finite_check_and_unscale.h"
#include "ops/_amp_update_scale.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily unscale_family{"multi_tensor/amp.cl", "unscale_tensors"};
const KernelFamily update_family{"multi_tensor/amp.cl", "update_scale"};

void check_single(const at::Tensor& tensor, const char* name, at::ScalarType dtype) {
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(tensor.scalar_type() == dtype, name, " must be ",
              dtype == at::kInt ? "an int" : "a float", " tensor.");
}

}  // namespace

void _amp_foreach_non_finite_check_and_unscale_(at::TensorList self, at::Tensor& found_inf,
                                                const at::Tensor& inv_scale) {
  if (self.empty()) return;
  check_single(inv_scale, "inv_scale", at::kFloat);
  check_single(found_inf, "found_inf", at::kFloat);
  TORCH_CHECK(self[0].device() == found_inf.device() && inv_scale.device() == found_inf.device(),
              "found_inf, inv_scale and the gradients must be on one device.");
  const auto unscale = [&](at::TensorList tensors) {
    const multi_tensor::Operand operands[] = {{tensors, multi_tensor::Operand::written}};
    multi_tensor::check("_amp_foreach_non_finite_check_and_unscale_", operands);
    multi_tensor::run(unscale_family, operands, {}, [&](Kernel& kernel, cl_uint index) {
      detail::set_argument(kernel, index, Pointer{found_inf.mutable_data_ptr()});
      detail::set_argument(kernel, index, Pointer{inv_scale.const_data_ptr()});
    });
  };
  // torch.amp.GradScaler passes gradients of one dtype; others may not.
  const auto same = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == self[0].scalar_type();
  };
  if (std::all_of(self.begin(), self.end(), same)) {
    unscale(self);
  } else {
    for (const at::Tensor& tensor : self) unscale(tensor);
  }
}

at::Tensor& _amp_update_scale_(at::Tensor& self, at::Tensor& growth_tracker,
                               const at::Tensor& found_inf, double scale_growth_factor,
                               double scale_backoff_factor, int64_t growth_interval) {
  check_single(growth_tracker, "growth_tracker", at::kInt);
  check_single(self, "current_scale", at::kFloat);
  check_single(found_inf, "found_inf", at::kFloat);
  Queue& queue = current_queue(self.device().index());
  launch(update_family.get(queue.device(), {}), queue, NDRange::linear(1, 1),
         Pointer{self.mutable_data_ptr()}, Pointer{growth_tracker.mutable_data_ptr()},
         Pointer{found_inf.const_data_ptr()}, static_cast<float>(scale_growth_factor),
         static_cast<float>(scale_backoff_factor), static_cast<int32_t>(growth_interval));
  return self;
}

}  // namespace ocl::native
