#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/AdaptivePooling.h>
#include <ATen/ops/empty.h>

#include "engine/spatial/pool.h"
#include "ops/DtypeChecks.h"
#include "ops/_adaptive_avg_pool2d.h"
#include "ops/_adaptive_avg_pool2d_backward.h"
#include "ops/_adaptive_avg_pool3d.h"
#include "ops/_adaptive_avg_pool3d_backward.h"
#include "ops/adaptive_avg_pool2d.h"
#include "ops/adaptive_avg_pool3d.h"
#include "ops/adaptive_avg_pool3d_backward.h"
#include "ops/adaptive_max_pool2d.h"
#include "ops/adaptive_max_pool2d_backward.h"
#include "ops/adaptive_max_pool3d.h"
#include "ops/adaptive_max_pool3d_backward.h"
#include "ops/spatial/PoolArguments.h"
#include "ops/spatial/SpatialShapes.h"

namespace ocl::native {

namespace {

/// With three axes CPU torch's results, and those that compiled graphs expect, are contiguous.
at::MemoryFormat format_like(const at::Tensor& self, int axes) {
  return axes == 3 ? at::MemoryFormat::Contiguous : self.suggest_memory_format();
}

at::Tensor& adaptive_average(const char* name, const at::Tensor& self, at::IntArrayRef output_size,
                             at::Tensor& out, int axes) {
  TORCH_CHECK(output_size.size() == static_cast<size_t>(axes), name, ": output_size must be ",
              axes);
  TORCH_CHECK(self.dim() == axes + 1 || self.dim() == axes + 2, name, "(): Expected ", axes + 1,
              "D or ", axes + 2, "D tensor, but got ", self.sizes());
  for (int axis = 1; axis <= axes; ++axis) {
    TORCH_CHECK(self.size(-axis) > 0, name,
                "(): Expected input to have non-zero size for non-batch dimensions, but input has "
                "sizes ",
                self.sizes(), " with dimension ", self.dim() - axis, " being empty");
  }
  for (const int64_t size : output_size) {
    TORCH_CHECK(size >= 0, name, ": elements of output_size must not be negative, but got ",
                output_size);
  }
  check_same_dtype(out, self.scalar_type());
  // Without images CPU torch's two-dimensional one takes every dtype.
  if (self.numel() != 0 || axes != 2) check_floating(name, self);
  out.resize_(with_spatial_sizes(self, output_size), format_like(self, axes));
  spatial::average_pool(out, self, adaptive_window(axes));
  return out;
}

at::Tensor& adaptive_average_backward(const char* name, const at::Tensor& grad_output,
                                      const at::Tensor& self, at::Tensor& grad_input, int axes) {
  at::native::adaptive_pool_empty_output_check(grad_output, name);
  TORCH_CHECK(self.dim() == axes + 1 || self.dim() == axes + 2, name, "(): Expected ", axes + 1,
              "D or ", axes + 2, "D tensor, but got ", self.sizes());
  const at::IntArrayRef spatial = grad_output.sizes();
  TORCH_CHECK(grad_output.dim() == self.dim() &&
                  grad_output.sizes() ==
                      at::IntArrayRef(with_spatial_sizes(
                          self, spatial.slice(spatial.size() - static_cast<size_t>(axes)))),
              name, ": grad_output of shape ", grad_output.sizes(),
              " does not belong to an input of shape ", self.sizes());
  check_same_dtype(grad_output, self.scalar_type());
  check_same_dtype(grad_input, self.scalar_type());
  check_floating(name, self);
  grad_input.resize_(self.sizes(), format_like(self, axes));
  spatial::average_pool_backward(grad_input, grad_output, adaptive_window(axes));
  return grad_input;
}

void adaptive_maximum(const char* name, const at::Tensor& self, const at::Tensor& out,
                      const at::Tensor& indices, int axes) {
  check_floating(name, self);
  spatial::max_pool(out, indices, self, adaptive_window(axes));
}

void adaptive_maximum_backward(const char* name, const at::Tensor& grad_output,
                               const at::Tensor& self, const at::Tensor& indices,
                               const at::Tensor& grad_input, int axes) {
  check_floating(name, self);
  check_same_dtype(grad_output, self.scalar_type());
  check_same_dtype(indices, at::kLong);
  spatial::max_pool_backward(grad_input, grad_output, indices, adaptive_window(axes));
}

}  // namespace

at::Tensor& adaptive_avg_pool2d_out(const at::Tensor& self, at::IntArrayRef output_size,
                                    at::Tensor& out) {
  return adaptive_average("adaptive_avg_pool2d", self, output_size, out, 2);
}

at::Tensor _adaptive_avg_pool2d(const at::Tensor& self, at::IntArrayRef output_size) {
  at::Tensor out = at::empty({0}, self.options());
  return adaptive_average("adaptive_avg_pool2d", self, output_size, out, 2);
}

at::Tensor _adaptive_avg_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  at::Tensor grad_input = at::empty({0}, self.options());
  return adaptive_average_backward("adaptive_avg_pool2d_backward", grad_output, self, grad_input,
                                   2);
}

at::Tensor& adaptive_avg_pool3d_out(const at::Tensor& self, at::IntArrayRef output_size,
                                    at::Tensor& out) {
  return adaptive_average("adaptive_avg_pool3d", self, output_size, out, 3);
}

at::Tensor _adaptive_avg_pool3d(const at::Tensor& self, at::IntArrayRef output_size) {
  at::Tensor out = at::empty({0}, self.options());
  return adaptive_average("adaptive_avg_pool3d", self, output_size, out, 3);
}

at::Tensor& adaptive_avg_pool3d_backward_grad_input(const at::Tensor& grad_output,
                                                    const at::Tensor& self,
                                                    at::Tensor& grad_input) {
  return adaptive_average_backward("adaptive_avg_pool3d_backward", grad_output, self, grad_input,
                                   3);
}

at::Tensor _adaptive_avg_pool3d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  at::Tensor grad_input = at::empty({0}, self.options());
  return adaptive_avg_pool3d_backward_grad_input(grad_output, self, grad_input);
}

void structured_adaptive_max_pool2d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                              const at::Tensor& out, const at::Tensor& indices) {
  adaptive_maximum("adaptive_max_pool2d", self, out, indices, 2);
}

void structured_adaptive_max_pool2d_backward_out::impl(const at::Tensor& grad_output,
                                                       const at::Tensor& self,
                                                       const at::Tensor& indices,
                                                       const at::Tensor& grad_input) {
  adaptive_maximum_backward("adaptive_max_pool2d_backward", grad_output, self, indices, grad_input,
                            2);
}

void structured_adaptive_max_pool3d_out::impl(const at::Tensor& self, at::IntArrayRef,
                                              const at::Tensor& out, const at::Tensor& indices) {
  adaptive_maximum("adaptive_max_pool3d", self, out, indices, 3);
}

void structured_adaptive_max_pool3d_backward_out::impl(const at::Tensor& grad_output,
                                                       const at::Tensor& self,
                                                       const at::Tensor& indices,
                                                       const at::Tensor& grad_input) {
  adaptive_maximum_backward("adaptive_max_pool3d_backward", grad_output, self, indices, grad_input,
                            3);
}

}  // namespace ocl::native
