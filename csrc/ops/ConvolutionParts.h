// A convolution's operands of single precision as bfloat16: each element as `products` parts, 1 or
// 3, whose products stand for the elements' (engine/gemm/bfloat16_parts.h), or as three parts in
// planes, which lose nothing (engine/gemm/bfloat16_planes.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace ocl::native {

/// An image's channels, or a gradient's, as parts one after another, with channels last and zeros
/// up to a multiple of 8: the first operand.
at::Tensor parts_of_channels(const at::Tensor& image, int products);
/// The second operand: a weight as contiguous [row][taps][channel], the same of its channels.
at::Tensor parts_of_rows(const at::Tensor& rows, int products);
/// Images one after another, [image][positions][channel], contiguous, as parts of all of them: for
/// sums over positions.
at::Tensor parts_of_images(const at::Tensor& images, int products, bool second);

/// The high parts, and the bytes from each plane to the next.
struct PlanesOf {
  at::Tensor high;
  uint64_t distance;
};
/// An image with channels last, of which those it doesn't have are zeros.
PlanesOf planes_of_image(const at::Tensor& image, int64_t channels);
/// A contiguous tensor.
PlanesOf planes_of(const at::Tensor& tensor);

}  // namespace ocl::native
