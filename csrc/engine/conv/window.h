// The windows of a convolution.
#pragma once

#include <array>
#include <cstdint>

namespace ocl::conv {

/// How windows lie over the input; axes are depth, height, width, missing ones have the defaults.
struct Window {
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, pad{}, dilation{1, 1, 1};
  int64_t groups = 1;

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  /// Whether positions of the input and of the output are the same, and channels all meet.
  bool has_single_elements() const {
    constexpr std::array<int64_t, 3> kOne{1, 1, 1}, kNone{};
    return groups == 1 && kernel == kOne && stride == kOne && pad == kNone;
  }
};

}  // namespace ocl::conv
