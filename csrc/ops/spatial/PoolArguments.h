// From the arguments of ATen's pooling functions to the engine's windows.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "engine/spatial/pool.h"

namespace ocl::native {

/// Values of `axes` dimensions (one value: the same for all) in a window's order.
inline std::array<int32_t, 3> per_axis(at::IntArrayRef values, int axes, int32_t missing) {
  std::array<int32_t, 3> result;
  result.fill(missing);
  for (int axis = 0; axis < axes; ++axis) {
    result[3 - axes + axis] = static_cast<int32_t>(values[values.size() == 1 ? 0 : axis]);
  }
  return result;
}

/// An empty stride means the kernel's size, an empty dilation 1.
inline spatial::PoolWindow pool_window(int axes, at::IntArrayRef kernel, at::IntArrayRef stride,
                                       at::IntArrayRef padding, at::IntArrayRef dilation = {}) {
  spatial::PoolWindow window;
  window.kernel = per_axis(kernel, axes, 1);
  window.stride = stride.empty() ? window.kernel : per_axis(stride, axes, 1);
  window.pad = per_axis(padding, axes, 0);
  if (!dilation.empty()) window.dilation = per_axis(dilation, axes, 1);
  window.axes = axes;
  return window;
}

inline spatial::PoolWindow average_window(spatial::PoolWindow window, bool count_include_pad,
                                          std::optional<int64_t> divisor) {
  window.count_pad = count_include_pad;
  window.divisor = static_cast<int32_t>(divisor.value_or(0));
  return window;
}

inline spatial::PoolWindow adaptive_window(int axes) {
  spatial::PoolWindow window;
  window.axes = axes;
  window.adaptive = 1;
  return window;
}

}  // namespace ocl::native
