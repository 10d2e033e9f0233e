// How gradients of torchvision's ops are added up.
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::vision {

/// Whether work-items of the result add to `sums` by atomics; else a work-item adds to each plane
/// of the input, in order. `op` is for traces.
bool adds_by_scatter(const char* op, const at::Tensor& sums);

}  // namespace ocl::vision
