// Makes tensors on an `ocl` device.
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::native {

/// An uninitialised tensor on options' device (the current one if it has no index). Throws
/// TypeError for a dtype the device can't hold, torch.OutOfMemoryError past its memory.
at::Tensor empty_with(c10::IntArrayRef sizes, const c10::TensorOptions& options);
at::Tensor empty_strided_with(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                              const c10::TensorOptions& options);

}  // namespace ocl::native
