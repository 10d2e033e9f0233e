// Resampling of images and volumes: nearest, linear, cubic, and filters that grow with the scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

namespace ocl::spatial {

/// Inputs per output along depth, height and width, as ATen computes them in double or float.
struct ResampleScales {
  int axes = 2;  // spatial dimensions of the tensors
  bool align_corners = false;
  std::array<std::optional<double>, 3> given{};  // the caller's scale factors, outputs per input
};

/// The kernels' FILTER. Lanczos has three lobes and serves only with antialiasing.
enum class Filter : uint8_t { linear = 0, cubic = 1, lanczos = 2 };

/// Tensors are (batch, channels, spatial...), strided in any way, `in` and `out` of one dtype.
/// `exact`: pixels are areas, not points at their corners.
void nearest(const at::Tensor& out, const at::Tensor& in, const ResampleScales& scales, bool exact);
void nearest_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                      const ResampleScales& scales, bool exact);

/// Linear or cubic interpolation of a floating dtype, all axes at once.
void interpolate(const at::Tensor& out, const at::Tensor& in, const ResampleScales& scales,
                 Filter filter);

/// Axis by axis; uint8 is computed in 16-bit fixed point, bit for bit as CPU torch does (on devices
/// with double precision).
void resample_separable(const at::Tensor& out, const at::Tensor& in, const ResampleScales& scales,
                        Filter filter, bool antialias);

/// The gradient of interpolate() or resample_separable(), of a floating dtype.
void resample_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                       const ResampleScales& scales, Filter filter, bool antialias);

}  // namespace ocl::spatial
