#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/convolution/ConvolutionChecks.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "ops/linalg/Float32Precision.h"

namespace ocl::native {

int64_t of_axis(at::IntArrayRef list, size_t axis) {
  return list.size() == 1 ? list[0] : list[axis];
}

conv::Window window_of(const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, int64_t groups) {
  conv::Window window;
  const auto axes = static_cast<size_t>(weight.dim() - 2);
  for (size_t i = 0; i < axes; ++i) {
    const size_t to = i + 3 - axes;
    window.kernel[to] = weight.size(static_cast<int64_t>(i) + 2);
    window.stride[to] = of_axis(stride, i);
    window.pad[to] = of_axis(padding, i);
    window.dilation[to] = of_axis(dilation, i);
  }
  window.groups = groups;
  return window;
}

conv::Precision precision_of(at::ScalarType dtype) {
  if (dtype != at::kFloat) return {};
  const Float32Precision allowed = allowed_precision(Float32Use::conv);
  return {allowed == Float32Precision::tf32, rounded_terms(allowed)};
}

void check_window(const at::Tensor& weight, at::IntArrayRef stride, int64_t groups) {
  TORCH_CHECK(std::all_of(stride.begin(), stride.end(), [](int64_t s) { return s > 0; }),
              "non-positive stride is not supported");
  TORCH_CHECK(groups > 0, "expected groups to be greater than 0, but got groups=", groups);
  TORCH_CHECK(weight.size(0) % groups == 0, "expected weight to be divisible by ", groups,
              " at dimension 0, but got sizes ", weight.sizes());
}

void check_weight(const at::Tensor& weight, bool transposed) {
  const at::IntArrayRef window = weight.sizes().slice(2);
  TORCH_CHECK(std::all_of(window.begin(), window.end(), [](int64_t size) { return size > 0; }),
              "kernel size should be greater than zero, but got: ", window);
  TORCH_CHECK(!transposed || weight.size(1) > 0,
              "non-empty weight tensor expected, but got: ", weight.sizes());
}

void check_dilation(at::IntArrayRef dilation) {
  TORCH_CHECK(std::all_of(dilation.begin(), dilation.end(), [](int64_t d) { return d > 0; }),
              "non-positive dilation is not supported");
}

at::MemoryFormat convolution_format(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat own = input.suggest_memory_format();
  if (own != at::MemoryFormat::Contiguous) return own;
  return input.dim() == weight.dim() ? weight.suggest_memory_format() : own;
}

}  // namespace ocl::native
