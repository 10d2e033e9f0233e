// Average and max pooling in one to three dimensions, forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace ocl::spatial {

/// The windows: of a fixed size, or (adaptive) as large as the sizes of input and output tell. Axes
/// are depth, height, width.
struct PoolWindow {
  std::array<int32_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, pad{}, dilation{1, 1, 1};
  int32_t divisor = 0;    // of averages; 0: the window's size
  int32_t count_pad = 0;  // padding belongs to that size
  int32_t axes = 2;       // spatial dimensions of the tensors
  int32_t adaptive = 0;
};

/// Tensors are (channels, spatial...) or (batch, channels, spatial...), strided in any way. `in`
/// and `out` have one dtype, floating or integer; half types are summed in float.
void average_pool(const at::Tensor& out, const at::Tensor& in, const PoolWindow& window);
void average_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                           const PoolWindow& window);

/// Indices are int64 and count in the plane of a channel; a plane has less than 2^31 elements.
void max_pool(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& in,
              const PoolWindow& window);
/// Without positions; false, with nothing done, where no kernel does without them.
bool max_pool_only(const at::Tensor& out, const at::Tensor& in, const PoolWindow& window);
void max_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                       const at::Tensor& indices, const PoolWindow& window);

/// Windows begin at random places, told by `samples` (batch, channels, axes) of in's dtype. Only
/// window.kernel and .axes matter.
void fractional_max_pool(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& in,
                         const at::Tensor& samples, const PoolWindow& window);
void fractional_max_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                                  const at::Tensor& indices, const PoolWindow& window);

}  // namespace ocl::spatial
