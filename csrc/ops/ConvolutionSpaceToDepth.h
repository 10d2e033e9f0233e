// Strided convolutions of few channels, such as the first layers of residual networks and vision
// transformers: columns as channels ("space to depth"), as far as a stride reaches.
//
// 7 x 7 windows of 3 channels with a stride of 2 become 7 x 4 windows of 6 with a stride of 1 along
// lines, and 16 x 16 ones side by side 16 x 1 windows of 48. Matrix instructions take channels by
// eight. With channels last nothing moves for it: a line's columns and channels are contiguous.
#pragma once

#include "ops/ConvolutionPlan.h"

namespace ocl::native {

/// A convolution's input and weight with columns as channels.
struct SpaceToDepth {
  at::Tensor in, weight;
  conv::Window window;
};

/// Why it isn't done; null if it is: an output, or a weight's gradient.
const char* refuse_space_to_depth(const ConvolutionPlan& plan);
/// The weight has the convolution's values, but for its gradient, which is to be written.
SpaceToDepth space_to_depth(const ConvolutionPlan& plan);
/// Copies what was computed of SpaceToDepth::weight into the convolution's.
void deliver_weight(const SpaceToDepth& folded, const ConvolutionPlan& plan);

}  // namespace ocl::native
