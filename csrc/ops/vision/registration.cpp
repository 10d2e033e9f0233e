// Registers torchvision's ops for `ocl`, once torchvision has declared them.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "ops/vision/vision.h"

namespace ocl::vision {

void register_ops() {
  // Unregistered if a schema is another one; leaked otherwise, as static registrations are.
  auto library = std::make_unique<torch::Library>(
      torch::Library::IMPL, "torchvision", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->impl("nms", TORCH_FN(nms));
  library->impl("roi_align", TORCH_FN(roi_align));
  library->impl("_roi_align_backward", TORCH_FN(roi_align_backward));
  library->impl("roi_pool", TORCH_FN(roi_pool));
  library->impl("_roi_pool_backward", TORCH_FN(roi_pool_backward));
  library->impl("ps_roi_align", TORCH_FN(ps_roi_align));
  library->impl("_ps_roi_align_backward", TORCH_FN(ps_roi_align_backward));
  library->impl("ps_roi_pool", TORCH_FN(ps_roi_pool));
  library->impl("_ps_roi_pool_backward", TORCH_FN(ps_roi_pool_backward));
  library->impl("deform_conv2d", TORCH_FN(deform_conv2d));
  library->impl("_deform_conv2d_backward", TORCH_FN(deform_conv2d_backward));
  (void)library.release();
}

}  // namespace ocl::vision
