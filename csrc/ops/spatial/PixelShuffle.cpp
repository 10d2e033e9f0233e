// pixel_shuffle and its inverse. Upstream's composites forget the input's memory format.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/PixelShuffle.h>
#include <ATen/ops/empty.h>

#include <limits>

#include "ops/pixel_shuffle.h"
#include "ops/pixel_unshuffle.h"

namespace ocl::native {

namespace {

/// Channels as [..., channel, row in a square, column in it, height, width].
at::Tensor squares_of_channels(const at::Tensor& tensor, int64_t factor) {
  return tensor.unflatten(-3, {tensor.size(-3) / (factor * factor), factor, factor});
}

/// Positions in the same order: [..., channel, row, column, height, width].
at::Tensor squares_of_positions(const at::Tensor& tensor, int64_t factor) {
  const at::Tensor rows = tensor.unflatten(-2, {tensor.size(-2) / factor, factor});
  const at::Tensor squares = rows.unflatten(-1, {tensor.size(-1) / factor, factor});
  return squares.movedim({-3, -1}, {-4, -3});
}

at::Tensor empty_like_format(const at::Tensor& self, at::IntArrayRef sizes) {
  return at::empty(sizes, self.options(), self.suggest_memory_format());
}

}  // namespace

at::Tensor pixel_shuffle(const at::Tensor& self, int64_t upscale_factor) {
  at::native::check_pixel_shuffle_shapes(self, upscale_factor);
  at::DimVector sizes(self.sizes().begin(), self.sizes().end() - 3);
  sizes.append({self.size(-3) / (upscale_factor * upscale_factor), self.size(-2) * upscale_factor,
                self.size(-1) * upscale_factor});
  const at::Tensor out = empty_like_format(self, sizes);
  if (out.numel() == 0) return out;
  squares_of_positions(out, upscale_factor).copy_(squares_of_channels(self, upscale_factor));
  return out;
}

at::Tensor pixel_unshuffle(const at::Tensor& self, int64_t downscale_factor) {
  at::native::check_pixel_unshuffle_shapes(self, downscale_factor);
  at::DimVector sizes(self.sizes().begin(), self.sizes().end() - 3);
  sizes.append({self.size(-3) * downscale_factor * downscale_factor,
                self.size(-2) / downscale_factor, self.size(-1) / downscale_factor});
  const at::Tensor out = empty_like_format(self, sizes);
  if (out.numel() == 0) return out;
  squares_of_channels(out, downscale_factor).copy_(squares_of_positions(self, downscale_factor));
  return out;
}

}  // namespace ocl::native
