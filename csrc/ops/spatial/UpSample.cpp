// Resampling by size or scale factor: nearest, linear, cubic and antialiased.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include "engine/spatial/resample.h"
#include "ops/DtypeChecks.h"
#include "ops/_upsample_bicubic2d_aa.h"
#include "ops/_upsample_bicubic2d_aa_backward.h"
#include "ops/_upsample_bilinear2d_aa.h"
#include "ops/_upsample_bilinear2d_aa_backward.h"
#include "ops/spatial/SpatialShapes.h"
#if __has_include("ops/_upsample_lanczos2d_aa.h")  // since 2.13
#include "ops/_upsample_lanczos2d_aa.h"
#include "ops/_upsample_lanczos2d_aa_backward.h"
#define OCL_LANCZOS 1
#endif
#include "ops/_upsample_nearest_exact1d.h"
#include "ops/_upsample_nearest_exact1d_backward.h"
#include "ops/_upsample_nearest_exact2d.h"
#include "ops/_upsample_nearest_exact2d_backward.h"
#include "ops/_upsample_nearest_exact3d.h"
#include "ops/_upsample_nearest_exact3d_backward.h"
#include "ops/upsample_bicubic2d.h"
#include "ops/upsample_bicubic2d_backward.h"
#include "ops/upsample_bilinear2d.h"
#include "ops/upsample_bilinear2d_backward.h"
#include "ops/upsample_linear1d.h"
#include "ops/upsample_linear1d_backward.h"
#include "ops/upsample_nearest1d.h"
#include "ops/upsample_nearest1d_backward.h"
#include "ops/upsample_nearest2d.h"
#include "ops/upsample_nearest2d_backward.h"
#include "ops/upsample_nearest3d.h"
#include "ops/upsample_nearest3d_backward.h"
#include "ops/upsample_trilinear3d.h"
#include "ops/upsample_trilinear3d_backward.h"

namespace ocl::native {

namespace {

using Scale = std::optional<double>;

/// From the scale factors of the last one to three dimensions.
template <class... Scales>
spatial::ResampleScales scales_of(bool align_corners, Scales... given) {
  spatial::ResampleScales scales{.axes = sizeof...(given), .align_corners = align_corners};
  int axis = 3 - scales.axes;
  ((scales.given[axis++] = given), ...);
  return scales;
}

void check_image(const char* name, const at::Tensor& tensor) {
  check_supported(name, tensor.scalar_type(),
                  at::isFloatingType(tensor.scalar_type()) || tensor.scalar_type() == at::kByte);
}

// CPU torch has no antialiasing of half types.
void check_antialias(const char* name, const at::Tensor& tensor, bool bytes) {
  const at::ScalarType dtype = tensor.scalar_type();
  check_supported(name, dtype,
                  dtype == at::kFloat || dtype == at::kDouble || (bytes && dtype == at::kByte));
}

}  // namespace

void structured_upsample_nearest1d_out::impl(const at::Tensor& self, at::IntArrayRef, Scale scales,
                                             const at::Tensor& out) {
  check_image("upsample_nearest1d", self);
  spatial::nearest(out, self, scales_of(false, scales), false);
}

void structured_upsample_nearest1d_backward_out::impl(const at::Tensor& grad_output,
                                                      at::IntArrayRef, at::IntArrayRef,
                                                      Scale scales, const at::Tensor& grad_input) {
  check_floating("upsample_nearest1d_backward", grad_output);
  spatial::nearest_backward(grad_input, grad_output, scales_of(false, scales), false);
}

void structured_upsample_nearest2d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                             Scale scales_h, Scale scales_w,
                                             const at::Tensor& out) {
  check_image("upsample_nearest2d", self);
  spatial::nearest(out, self, scales_of(false, scales_h, scales_w), false);
}

void structured_upsample_nearest2d_backward_out::impl(const at::Tensor& grad_output,
                                                      at::IntArrayRef, at::IntArrayRef,
                                                      Scale scales_h, Scale scales_w,
                                                      const at::Tensor& grad_input) {
  check_floating("upsample_nearest2d_backward", grad_output);
  spatial::nearest_backward(grad_input, grad_output, scales_of(false, scales_h, scales_w), false);
}

void structured_upsample_nearest3d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                             Scale scales_d, Scale scales_h, Scale scales_w,
                                             const at::Tensor& out) {
  check_image("upsample_nearest3d", self);
  spatial::nearest(out, self, scales_of(false, scales_d, scales_h, scales_w), false);
}

void structured_upsample_nearest3d_backward_out::impl(const at::Tensor& grad_output,
                                                      at::IntArrayRef, at::IntArrayRef,
                                                      Scale scales_d, Scale scales_h,
                                                      Scale scales_w,
                                                      const at::Tensor& grad_input) {
  check_floating("upsample_nearest3d_backward", grad_output);
  spatial::nearest_backward(grad_input, grad_output, scales_of(false, scales_d, scales_h, scales_w),
                            false);
}

void structured__upsample_nearest_exact1d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                                    Scale scales, const at::Tensor& out) {
  check_image("_upsample_nearest_exact1d", self);
  spatial::nearest(out, self, scales_of(false, scales), true);
}

void structured__upsample_nearest_exact1d_backward_out::impl(const at::Tensor& grad_output,
                                                             at::IntArrayRef, at::IntArrayRef,
                                                             Scale scales,
                                                             const at::Tensor& grad_input) {
  check_floating("_upsample_nearest_exact1d_backward", grad_output);
  spatial::nearest_backward(grad_input, grad_output, scales_of(false, scales), true);
}

void structured__upsample_nearest_exact2d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                                    Scale scales_h, Scale scales_w,
                                                    const at::Tensor& out) {
  check_image("_upsample_nearest_exact2d", self);
  spatial::nearest(out, self, scales_of(false, scales_h, scales_w), true);
}

void structured__upsample_nearest_exact2d_backward_out::impl(const at::Tensor& grad_output,
                                                             at::IntArrayRef, at::IntArrayRef,
                                                             Scale scales_h, Scale scales_w,
                                                             const at::Tensor& grad_input) {
  check_floating("_upsample_nearest_exact2d_backward", grad_output);
  spatial::nearest_backward(grad_input, grad_output, scales_of(false, scales_h, scales_w), true);
}

void structured__upsample_nearest_exact3d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                                    Scale scales_d, Scale scales_h, Scale scales_w,
                                                    const at::Tensor& out) {
  check_image("_upsample_nearest_exact3d", self);
  spatial::nearest(out, self, scales_of(false, scales_d, scales_h, scales_w), true);
}

void structured__upsample_nearest_exact3d_backward_out::impl(const at::Tensor& grad_output,
                                                             at::IntArrayRef, at::IntArrayRef,
                                                             Scale scales_d, Scale scales_h,
                                                             Scale scales_w,
                                                             const at::Tensor& grad_input) {
  check_floating("_upsample_nearest_exact3d_backward", grad_output);
  spatial::nearest_backward(grad_input, grad_output, scales_of(false, scales_d, scales_h, scales_w),
                            true);
}

void structured_upsample_linear1d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                            bool align_corners, Scale scales,
                                            const at::Tensor& out) {
  check_floating("upsample_linear1d", self);
  spatial::interpolate(out, self, scales_of(align_corners, scales), spatial::Filter::linear);
}

void structured_upsample_linear1d_backward_out::impl(const at::Tensor& grad_output, at::IntArrayRef,
                                                     at::IntArrayRef, bool align_corners,
                                                     Scale scales, const at::Tensor& grad_input) {
  check_floating("upsample_linear1d_backward", grad_output);
  spatial::resample_backward(grad_input, grad_output, scales_of(align_corners, scales),
                             spatial::Filter::linear, false);
}

void structured_upsample_bilinear2d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                              bool align_corners, Scale scales_h, Scale scales_w,
                                              const at::Tensor& out) {
  check_image("upsample_bilinear2d", self);
  const spatial::ResampleScales scales = scales_of(align_corners, scales_h, scales_w);
  if (self.scalar_type() == at::kByte) {
    spatial::resample_separable(out, self, scales, spatial::Filter::linear, false);
  } else {
    spatial::interpolate(out, self, scales, spatial::Filter::linear);
  }
}

void structured_upsample_bilinear2d_backward_out::impl(const at::Tensor& grad_output,
                                                       at::IntArrayRef, at::IntArrayRef,
                                                       bool align_corners, Scale scales_h,
                                                       Scale scales_w,
                                                       const at::Tensor& grad_input) {
  check_floating("upsample_bilinear2d_backward", grad_output);
  spatial::resample_backward(grad_input, grad_output, scales_of(align_corners, scales_h, scales_w),
                             spatial::Filter::linear, false);
}

void structured_upsample_trilinear3d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                               bool align_corners, Scale scales_d, Scale scales_h,
                                               Scale scales_w, const at::Tensor& out) {
  check_floating("upsample_trilinear3d", self);
  spatial::interpolate(out, self, scales_of(align_corners, scales_d, scales_h, scales_w),
                       spatial::Filter::linear);
}

void structured_upsample_trilinear3d_backward_out::impl(const at::Tensor& grad_output,
                                                        at::IntArrayRef, at::IntArrayRef,
                                                        bool align_corners, Scale scales_d,
                                                        Scale scales_h, Scale scales_w,
                                                        const at::Tensor& grad_input) {
  check_floating("upsample_trilinear3d_backward", grad_output);
  spatial::resample_backward(grad_input, grad_output,
                             scales_of(align_corners, scales_d, scales_h, scales_w),
                             spatial::Filter::linear, false);
}

void structured_upsample_bicubic2d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                             bool align_corners, Scale scales_h, Scale scales_w,
                                             const at::Tensor& out) {
  check_image("upsample_bicubic2d", self);
  const spatial::ResampleScales scales = scales_of(align_corners, scales_h, scales_w);
  if (self.scalar_type() == at::kByte) {
    spatial::resample_separable(out, self, scales, spatial::Filter::cubic, false);
  } else {
    spatial::interpolate(out, self, scales, spatial::Filter::cubic);
  }
}

void structured_upsample_bicubic2d_backward_out::impl(const at::Tensor& grad_output,
                                                      at::IntArrayRef, at::IntArrayRef,
                                                      bool align_corners, Scale scales_h,
                                                      Scale scales_w,
                                                      const at::Tensor& grad_input) {
  check_floating("upsample_bicubic2d_backward", grad_output);
  if (grad_input.sizes() == grad_output.sizes()) {
    grad_input.copy_(grad_output);  // whatever the scales, as CPU torch does
    return;
  }
  spatial::resample_backward(grad_input, grad_output, scales_of(align_corners, scales_h, scales_w),
                             spatial::Filter::cubic, false);
}

void structured__upsample_bilinear2d_aa_out::impl(const at::Tensor& self, at::IntArrayRef,
                                                  bool align_corners, Scale scales_h,
                                                  Scale scales_w, const at::Tensor& out) {
  check_antialias("_upsample_bilinear2d_aa", self, true);
  spatial::resample_separable(out, self, scales_of(align_corners, scales_h, scales_w),
                              spatial::Filter::linear, true);
}

void structured__upsample_bilinear2d_aa_backward_out::impl(const at::Tensor& grad_output,
                                                           at::IntArrayRef, at::IntArrayRef,
                                                           bool align_corners, Scale scales_h,
                                                           Scale scales_w,
                                                           const at::Tensor& grad_input) {
  check_antialias("upsample_bilinear2d_aa_backward_cpu", grad_output, false);
  spatial::resample_backward(grad_input, grad_output, scales_of(align_corners, scales_h, scales_w),
                             spatial::Filter::linear, true);
}

void structured__upsample_bicubic2d_aa_out::impl(const at::Tensor& self, at::IntArrayRef,
                                                 bool align_corners, Scale scales_h, Scale scales_w,
                                                 const at::Tensor& out) {
  check_antialias("_upsample_bicubic2d_aa", self, true);
  spatial::resample_separable(out, self, scales_of(align_corners, scales_h, scales_w),
                              spatial::Filter::cubic, true);
}

void structured__upsample_bicubic2d_aa_backward_out::impl(const at::Tensor& grad_output,
                                                          at::IntArrayRef, at::IntArrayRef,
                                                          bool align_corners, Scale scales_h,
                                                          Scale scales_w,
                                                          const at::Tensor& grad_input) {
  check_antialias("upsample_bicubic2d_aa_backward_cpu", grad_output, false);
  spatial::resample_backward(grad_input, grad_output, scales_of(align_corners, scales_h, scales_w),
                             spatial::Filter::cubic, true);
}

#ifdef OCL_LANCZOS
void structured__upsample_lanczos2d_aa_out::impl(const at::Tensor& self, at::IntArrayRef,
                                                 bool align_corners, Scale scales_h, Scale scales_w,
                                                 const at::Tensor& out) {
  check_antialias("_upsample_lanczos2d_aa", self, true);
  spatial::resample_separable(out, self, scales_of(align_corners, scales_h, scales_w),
                              spatial::Filter::lanczos, true);
}

void structured__upsample_lanczos2d_aa_backward_out::impl(const at::Tensor& grad_output,
                                                          at::IntArrayRef, at::IntArrayRef,
                                                          bool align_corners, Scale scales_h,
                                                          Scale scales_w,
                                                          const at::Tensor& grad_input) {
  check_antialias("upsample_lanczos2d_aa_backward_cpu", grad_output, false);
  spatial::resample_backward(grad_input, grad_output, scales_of(align_corners, scales_h, scales_w),
                             spatial::Filter::lanczos, true);
}
#endif
}  // namespace ocl::native
