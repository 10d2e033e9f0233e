// The parts of a window that a strided convolution's input gradient is made of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
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

/// A place between the strides, and the parts of windows that meet it along each axis.
struct PhasePlace {
  std::array<int64_t, kAxes> place;
  std::array<Phase, kAxes> along;
};

/// Calls take(const PhasePlace&) for the places of an input of those sizes that any window meets,
/// the last axis' fastest. The elements there are a sum each, which no other place has a part in.
template <class Take>
void for_each_phase(const Window& w, const Operand& in, const Take& take) {
  PhasePlace at{};
  const auto go = [&](const auto& self, size_t axis) -> void {
    if (axis == kAxes) return take(at);
    const int64_t size = in.size[2 + axis];
    for (int64_t phase = 0; phase < std::min(w.stride[axis], size); ++phase) {
      at.place[axis] = phase;
      at.along[axis] = phase_of(w, static_cast<int>(axis), phase, size);
      if (at.along[axis].count > 0) self(self, axis + 1);
    }
  };
  go(go, 0);
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
