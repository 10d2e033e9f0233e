// Convolutions of patches: windows that lie side by side along lines, such as the first layer of a
// vision transformer (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020).
//
// With channels last, what a window has of a line is contiguous. So it can be channels: 16 x 16
// windows of 3 channels are 16 x 1 windows of 48, of which matrix instructions can make use.
#pragma once

#include "ops/ConvolutionPlan.h"

namespace ocl::native {

/// A convolution's input and weight with windows of one column. The weight shares its memory with
/// the convolution's only if `weight_is_shared`.
struct Patches {
  at::Tensor in, weight;
  conv::Window window;
  bool weight_is_shared;
};

/// Why it isn't done; null if it is: an output, or a weight's gradient.
const char* refuse_patches(const ConvolutionPlan& plan);
/// The weight has the convolution's values but for its gradient, which is to be written.
Patches patches_of(const ConvolutionPlan& plan);
/// Copies what was computed of Patches::weight into the convolution's, if that has other memory.
void deliver_weight(const Patches& patches, const at::Tensor& weight);

}  // namespace ocl::native
