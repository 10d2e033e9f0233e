#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include "engine/spatial/pool.h"
#include "ops/DtypeChecks.h"
#include "ops/avg_pool2d.h"
#include "ops/avg_pool2d_backward.h"
#include "ops/avg_pool3d.h"
#include "ops/avg_pool3d_backward.h"
#include "ops/spatial/PoolArguments.h"

namespace ocl::native {

namespace {

// CPU torch averages half types in two dimensions only.
void check_average(const char* name, at::ScalarType dtype, bool half) {
  check_supported(name, dtype,
                  dtype == at::kLong || (half ? at::isFloatingType(dtype)
                                              : dtype == at::kFloat || dtype == at::kDouble));
}

}  // namespace

void structured_avg_pool2d_out::impl(const at::Tensor& self, int64_t kH, int64_t kW, int64_t dH,
                                     int64_t dW, int64_t padH, int64_t padW, bool,
                                     bool count_include_pad,
                                     std::optional<int64_t> divisor_override,
                                     const at::Tensor& out) {
  check_average("avg_pool2d", self.scalar_type(), true);
  spatial::average_pool(out, self,
                        average_window(pool_window(2, {kH, kW}, {dH, dW}, {padH, padW}),
                                       count_include_pad, divisor_override));
}

void structured_avg_pool2d_backward_out::impl(const at::Tensor& grad_output, const at::Tensor& self,
                                              at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                              at::IntArrayRef padding, bool, bool count_include_pad,
                                              std::optional<int64_t> divisor_override,
                                              const at::Tensor& grad_input) {
  check_average("avg_pool2d_backward", self.scalar_type(), true);
  check_same_dtype(grad_output, self.scalar_type());
  spatial::average_pool_backward(grad_input, grad_output,
                                 average_window(pool_window(2, kernel_size, stride, padding),
                                                count_include_pad, divisor_override));
}

void structured_avg_pool3d_out::impl(const at::Tensor& self, at::IntArrayRef kernel_size,
                                     at::IntArrayRef stride, at::IntArrayRef padding, bool,
                                     bool count_include_pad,
                                     std::optional<int64_t> divisor_override,
                                     const at::Tensor& out) {
  check_average("avg_pool3d_out_frame", self.scalar_type(), false);
  spatial::average_pool(out, self,
                        average_window(pool_window(3, kernel_size, stride, padding),
                                       count_include_pad, divisor_override));
}

void structured_avg_pool3d_backward_out::impl(const at::Tensor& grad_output, const at::Tensor& self,
                                              at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                              at::IntArrayRef padding, bool, bool count_include_pad,
                                              std::optional<int64_t> divisor_override,
                                              const at::Tensor& grad_input) {
  check_average("avg_pool3d_backward_out_frame", self.scalar_type(), false);
  check_same_dtype(grad_output, self.scalar_type());
  spatial::average_pool_backward(grad_input, grad_output,
                                 average_window(pool_window(3, kernel_size, stride, padding),
                                                count_include_pad, divisor_override));
}

}  // namespace ocl::native
