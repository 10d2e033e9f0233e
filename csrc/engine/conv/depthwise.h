// Depthwise convolutions and their gradients.
//
// Offers: depthwise_convolution(), depthwise_input(), depthwise_weight(), weight_channels_last().
#pragma once

#include <c10/core/Allocator.h>

#include "engine/conv/conv.h"

namespace ocl {

/// As convolution(), convolution_input() and convolution_weight(). False, and nothing done, if the
/// kernels don't take it: those of plan.h take everything.
bool depthwise_convolution(const ConvTensor& out, const ConvTensor& in, const ConvTensor& weight,
                           const void* bias, const ConvWindow& window);
bool depthwise_input(const ConvTensor& in, const ConvTensor& out, const ConvTensor& weight,
                     const void* bias, const ConvWindow& window);
bool depthwise_weight(const ConvTensor& weight, const ConvTensor& in, const ConvTensor& out,
                      const ConvWindow& window);

/// The same on GPUs (kernels/conv/depthwise_direct.cl).
bool direct_depthwise_convolution(const ConvTensor& out, const ConvTensor& in,
                                  const ConvTensor& weight, const void* bias,
                                  const ConvWindow& window);
bool direct_depthwise_input(const ConvTensor& in, const ConvTensor& out, const ConvTensor& weight,
                            const void* bias, const ConvWindow& window);
bool direct_depthwise_weight(const ConvTensor& weight, const ConvTensor& in, const ConvTensor& out,
                             const ConvWindow& window);

/// A depthwise weight copied with its channels next to each other, in the dtype computed with.
/// `copy` keeps it.
ConvTensor weight_channels_last(const ConvTensor& weight, c10::DataPtr& copy);

}  // namespace ocl
