#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/ops/empty.h>

#include "engine/spatial/pool.h"
#include "ops/DtypeChecks.h"
#include "ops/fractional_max_pool2d.h"
#include "ops/fractional_max_pool2d_backward.h"
#include "ops/fractional_max_pool3d.h"
#include "ops/fractional_max_pool3d_backward.h"
#include "ops/spatial/PoolArguments.h"
#include "ops/spatial/SpatialShapes.h"

namespace ocl::native {

void structured_fractional_max_pool2d_out::impl(const at::Tensor& self, at::IntArrayRef kernel_size,
                                                at::IntArrayRef, const at::Tensor& random_samples,
                                                const at::Tensor& output,
                                                const at::Tensor& indices) {
  at::native::fractional_max_pool_check_shape<2>(self, random_samples);
  check_floating("fractional_max_pool2d_out_frame", self);
  spatial::fractional_max_pool(output, indices, self, random_samples,
                               pool_window(2, kernel_size, {}, 0));
}

void structured_fractional_max_pool2d_backward_out::impl(const at::Tensor& grad_output,
                                                         const at::Tensor& self,
                                                         at::IntArrayRef kernel_size,
                                                         at::IntArrayRef, const at::Tensor& indices,
                                                         const at::Tensor& grad_input) {
  check_floating("fractional_max_pool2d_backward_out_frame", self);
  check_same_dtype(grad_output, self.scalar_type());
  check_same_dtype(indices, at::kLong);
  spatial::fractional_max_pool_backward(grad_input, grad_output, indices,
                                        pool_window(2, kernel_size, {}, 0));
}

void structured_fractional_max_pool3d_out::impl(const at::Tensor& self, int64_t poolSizeT,
                                                int64_t poolSizeH, int64_t poolSizeW, int64_t,
                                                int64_t, int64_t, const at::Tensor& random_samples,
                                                int64_t, int64_t, int64_t, int64_t, int64_t,
                                                const at::Tensor& output,
                                                const at::Tensor& indices) {
  at::native::fractional_max_pool_check_shape<3>(self, random_samples);
  check_floating("fractional_max_pool3d_out_frame", self);
  spatial::fractional_max_pool(output, indices, self, random_samples,
                               pool_window(3, {poolSizeT, poolSizeH, poolSizeW}, {}, 0));
}

at::Tensor& fractional_max_pool3d_backward_grad_input(
    const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef kernel_size,
    at::IntArrayRef output_size, const at::Tensor& indices, at::Tensor& grad_input) {
  TORCH_CHECK((self.dim() == 4 || self.dim() == 5) && output_size.size() == 3 &&
                  kernel_size.size() == 3 &&
                  grad_output.sizes() == at::IntArrayRef(with_spatial_sizes(self, output_size)) &&
                  indices.sizes() == grad_output.sizes(),
              "fractional_max_pool3d_backward_out(): gradOutput of shape ", grad_output.sizes(),
              " unexpected for an input of shape ", self.sizes(), " and output_size ", output_size);
  check_floating("fractional_max_pool3d_backward_out_frame", self);
  check_same_dtype(grad_output, self.scalar_type());
  check_same_dtype(grad_input, self.scalar_type());
  check_same_dtype(indices, at::kLong);
  grad_input.resize_(self.sizes());
  spatial::fractional_max_pool_backward(grad_input, grad_output, indices,
                                        pool_window(3, kernel_size, {}, 0));
  return grad_input;
}

at::Tensor fractional_max_pool3d_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                          at::IntArrayRef kernel_size, at::IntArrayRef output_size,
                                          const at::Tensor& indices) {
  at::Tensor grad_input = at::empty({0}, self.options());
  return fractional_max_pool3d_backward_grad_input(grad_output, self, kernel_size, output_size,
                                                   indices, grad_input);
}

}  // namespace ocl::native
