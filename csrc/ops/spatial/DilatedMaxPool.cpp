#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/empty.h>

#include "engine/spatial/pool.h"
#include "ops/DtypeChecks.h"
#include "ops/max_pool2d_with_indices.h"
#include "ops/max_pool2d_with_indices_backward.h"
#include "ops/max_pool3d_with_indices.h"
#include "ops/max_pool3d_with_indices_backward.h"
#include "ops/spatial/PoolArguments.h"
#include "ops/spatial/SpatialShapes.h"

namespace ocl::native {

namespace {

void check_maximum(const char* name, at::ScalarType dtype) {
  check_supported(name, dtype, dtype != at::kBool && !at::isComplexType(dtype));
}

void check_lengths(const char* name, at::IntArrayRef kernel, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation) {
  const auto valid = [](at::IntArrayRef values) {
    return values.size() == 1 || values.size() == 3;
  };
  TORCH_CHECK(valid(kernel), name,
              ": kernel_size must either be a single int, or a tuple of three "
              "ints, but got ",
              kernel);
  TORCH_CHECK(stride.empty() || valid(stride), name,
              ": stride must either be omitted, a single int, or a tuple of three ints, but got ",
              stride);
  TORCH_CHECK(valid(padding), name,
              ": padding must either be a single int, or a tuple of three "
              "ints, but got ",
              padding);
  TORCH_CHECK(valid(dilation), name,
              ": dilation must be either a single int, or a tuple of three "
              "ints, but got ",
              dilation);
}

/// Checks the shapes and gives the output's spatial sizes.
std::array<int64_t, 3> output_sizes(const char* name, const at::Tensor& in,
                                    const spatial::PoolWindow& window, bool ceil_mode) {
  TORCH_CHECK(in.dim() == 4 || in.dim() == 5, name,
              ": non-empty 4D or 5D (batch mode) tensor expected for input, but got: ", in.sizes());
  const auto &k = window.kernel, &s = window.stride, &p = window.pad, &d = window.dilation;
  std::array<int64_t, 3> sizes;
  for (int axis = 0; axis < 3; ++axis) {
    sizes[axis] = at::native::pooling_output_shape<int64_t>(in.size(axis - 3), k[axis], p[axis],
                                                            s[axis], d[axis], ceil_mode);
  }
  at::native::pool3d_shape_check(in, in.size(-4), k[0], k[1], k[2], s[0], s[1], s[2], p[0], p[1],
                                 p[2], d[0], d[1], d[2], in.size(-3), in.size(-2), in.size(-1),
                                 sizes[0], sizes[1], sizes[2], name);
  return sizes;
}

/// Gives a result its shape, in the format of `in`: as on the CPU a volume without a batch keeps
/// channels last, too.
void resize_volume(const at::Tensor& out, const at::Tensor& in, at::IntArrayRef spatial) {
  const c10::DimVector sizes = with_spatial_sizes(in, spatial);
  const at::MemoryFormat format = in.suggest_memory_format();
  if (format != at::MemoryFormat::Contiguous || in.dim() == 5 ||
      format_of(in.unsqueeze(0)) != at::MemoryFormat::ChannelsLast3d) {
    out.resize_(sizes, format);
    return;
  }
  out.resize_({sizes[1], sizes[2], sizes[3], sizes[0]});
  const int64_t row = sizes[3] * sizes[0];
  out.as_strided_(sizes, {1, sizes[2] * row, row, sizes[0]});
}

}  // namespace

void structured_max_pool2d_with_indices_out::impl(const at::Tensor& self,
                                                  at::IntArrayRef kernel_size,
                                                  at::IntArrayRef stride, at::IntArrayRef padding,
                                                  at::IntArrayRef dilation, bool,
                                                  const at::Tensor& out,
                                                  const at::Tensor& indices) {
  check_maximum("max_pool2d", self.scalar_type());
  spatial::max_pool(out, indices, self, pool_window(2, kernel_size, stride, padding, dilation));
}

void structured_max_pool2d_with_indices_backward_out::impl(
    const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef kernel_size,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool,
    const at::Tensor& indices, const at::Tensor& grad_input) {
  check_floating("max_pool2d_backward", self);
  check_same_dtype(grad_output, self.scalar_type());
  check_same_dtype(indices, at::kLong);
  spatial::max_pool_backward(grad_input, grad_output, indices,
                             pool_window(2, kernel_size, stride, padding, dilation));
}

std::tuple<at::Tensor&, at::Tensor&> max_pool3d_with_indices_out(
    const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode, at::Tensor& out,
    at::Tensor& indices) {
  check_lengths("max_pool3d", kernel_size, stride, padding, dilation);
  const spatial::PoolWindow window = pool_window(3, kernel_size, stride, padding, dilation);
  const auto sizes = output_sizes("max_pool3d_with_indices", self, window, ceil_mode);
  check_maximum("max_pool3d", self.scalar_type());
  check_same_dtype(out, self.scalar_type());
  check_same_dtype(indices, at::kLong);
  resize_volume(out, self, sizes);
  resize_volume(indices, self, sizes);
  spatial::max_pool(out, indices, self, window);
  return {out, indices};
}

std::tuple<at::Tensor, at::Tensor> max_pool3d_with_indices(
    const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  at::Tensor out = at::empty({0}, self.options());
  at::Tensor indices = at::empty({0}, self.options().dtype(at::kLong));
  max_pool3d_with_indices_out(self, kernel_size, stride, padding, dilation, ceil_mode, out,
                              indices);
  return {out, indices};
}

at::Tensor& max_pool3d_with_indices_backward_grad_input(
    const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef kernel_size,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode,
    const at::Tensor& indices, at::Tensor& grad_input) {
  check_lengths("max_pool3d", kernel_size, stride, padding, dilation);
  const spatial::PoolWindow window = pool_window(3, kernel_size, stride, padding, dilation);
  const auto sizes = output_sizes("max_pool3d_with_indices_backward", self, window, ceil_mode);
  const c10::DimVector expected = with_spatial_sizes(self, sizes);
  TORCH_CHECK(grad_output.sizes() == at::IntArrayRef(expected) &&
                  indices.sizes() == at::IntArrayRef(expected),
              "max_pool3d_with_indices_backward: expected grad_output and indices of shape ",
              at::IntArrayRef(expected), ", but got ", grad_output.sizes(), " and ",
              indices.sizes());
  check_floating("max_pool3d_backward", self);
  check_same_dtype(grad_output, self.scalar_type());
  check_same_dtype(grad_input, self.scalar_type());
  check_same_dtype(indices, at::kLong);
  grad_input.resize_(self.sizes(), self.suggest_memory_format());
  spatial::max_pool_backward(grad_input, grad_output, indices, window);
  return grad_input;
}

at::Tensor max_pool3d_with_indices_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                            at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                            at::IntArrayRef padding, at::IntArrayRef dilation,
                                            bool ceil_mode, const at::Tensor& indices) {
  at::Tensor grad_input = at::empty({0}, self.options());
  return max_pool3d_with_indices_backward_grad_input(
      grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices, grad_input);
}

}  // namespace ocl::native
