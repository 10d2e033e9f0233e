// The parts of a window that a strided convolution's input gradient is made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "engine/conv/description.h"
#include "opencl/ceil_div.h"

namespace ocl::conv {

/// The part of a window that contributes to the input's elements phase, phase + stride, ... along
/// an axis: every `step`-th of its elements, from `first` on, `count` of them; the element at
/// `first` belongs to the output's coordinate `origin` + i, the next ones to coordinates `back`
/// lower each.
struct Phase {
  int64_t elements, first, count, step, origin, back;
};

inline Phase phase_of(const Window& w, int axis, int64_t phase, int64_t size) {
  const int64_t stride = w.stride[axis], dilation = w.dilation[axis];
  const int64_t step = stride / std::gcd(stride, dilation);
  Phase result{ceil_div(size - phase, stride), 0, 0, step, 0, step * dilation / stride};
  for (int64_t first = 0; first < std::min(step, w.kernel[axis]); ++first) {
    const int64_t distance = phase + w.pad[axis] - first * dilation;
    if (distance % stride != 0) continue;
    result.first = first;
    result.count = ceil_div(w.kernel[axis] - first, step);
    result.origin = distance / stride;
    break;
  }
  return result;
}

/// Whether every element of an input could be covered by some window.
inline bool covers_all(const Window& w) {
  for (int axis = 0; axis < kAxes; ++axis) {
    for (int64_t phase = 0; phase < w.stride[axis]; ++phase) {
      if (phase_of(w, axis, phase, phase + 1).count == 0) return false;
    }
  }
  return true;
}

}  // namespace ocl::conv
