// A convolution or one of its gradients as tensors, before it has a layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/conv/conv.h"

namespace ocl::native {

/// Checked. `in`, `out` and `weight` are the convolution's, whichever of them is written; `bias`
/// may be undefined, and is for a weight's gradient.
struct ConvolutionPlan {
  enum class Pass : uint8_t { output, input, weight };
  Pass pass;
  const at::Tensor &in, &out, &weight, &bias;
  const conv::Window& window;
  const conv::Results* results = nullptr;  // who runs the plan hands the results over

  int64_t axes() const { return weight.dim() - 2; }
  const void* addend() const { return bias.defined() ? bias.const_data_ptr() : nullptr; }
};

}  // namespace ocl::native
