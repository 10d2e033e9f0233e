// A depthwise convolution as its kernels see it: depthwise.cpp's on CPUs, depthwise_direct.cpp's on
// GPUs.
#pragma once

#include "engine/conv/description.h"
#include "engine/dtype.h"

namespace ocl::conv {

#include "conv/depthwise_arguments.clh"

struct DepthwiseCall {
  explicit DepthwiseCall(const Description& description)
      : device(description.device), queue(description.queue) {
    const Operand &source = description.source(), &result = description.result();
    in = source.dtype;
    out = result.dtype;
    weight = description.weight.dtype;
    compute = compute_dtype(in);
    DepthwiseArguments& a = arguments;
    const auto &from = source.stride, &to = result.stride;
    a.in_n = from[0], a.in_c = from[1], a.in_y = from[3], a.in_x = from[4];
    a.out_n = to[0], a.out_c = to[1], a.out_y = to[3], a.out_x = to[4];
    a.images = static_cast<uint32_t>(result.size[0]);
    a.channels = static_cast<uint32_t>(result.size[1]);
    a.in_h = static_cast<uint32_t>(source.size[3]);
    a.in_w = static_cast<uint32_t>(source.size[4]);
    a.out_h = static_cast<uint32_t>(result.size[3]);
    a.out_w = static_cast<uint32_t>(result.size[4]);
    a.pad_y = static_cast<int32_t>(description.window.pad[1]);
    a.pad_x = static_cast<int32_t>(description.window.pad[2]);
  }

  Device& device;
  Queue& queue;
  DepthwiseArguments arguments{};
  c10::ScalarType in, out, weight, compute;
};

}  // namespace ocl::conv
