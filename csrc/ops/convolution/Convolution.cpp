// convolution_overrideable and its backward, which ATen's convolution calls for this device.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/conv/conv.h"
#include "ops/DtypeChecks.h"
#include "ops/convolution/ConvolutionEpilogue.h"
#include "ops/convolution_backward_overrideable.h"
#include "ops/convolution_overrideable.h"
#include "ops/linalg/Float32Precision.h"

namespace ocl::native {

namespace {

int64_t element(at::IntArrayRef list, size_t i) { return list.size() == 1 ? list[0] : list[i]; }

conv::Window window_of(const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, int64_t groups) {
  conv::Window window;
  const auto axes = static_cast<size_t>(weight.dim() - 2);
  for (size_t i = 0; i < axes; ++i) {
    const size_t to = i + 3 - axes;
    window.kernel[to] = weight.size(static_cast<int64_t>(i) + 2);
    window.stride[to] = element(stride, i);
    window.pad[to] = element(padding, i);
    window.dilation[to] = element(dilation, i);
  }
  window.groups = groups;
  return window;
}

conv::Precision precision_of(at::ScalarType dtype) {
  if (dtype != at::kFloat) return {};
  const Float32Precision allowed = allowed_precision(Float32Use::conv);
  return {allowed == Float32Precision::tf32, rounded_terms(allowed)};
}

/// Upstream's convolution has seen to this, where it calls these functions.
void check_window(const at::Tensor& weight, at::IntArrayRef stride, int64_t groups) {
  TORCH_CHECK(std::all_of(stride.begin(), stride.end(), [](int64_t s) { return s > 0; }),
              "non-positive stride is not supported");
  TORCH_CHECK(groups > 0, "expected groups to be greater than 0, but got groups=", groups);
  TORCH_CHECK(weight.size(0) % groups == 0, "expected weight to be divisible by ", groups,
              " at dimension 0, but got sizes ", weight.sizes());
}

/// Upstream leaves this to its kernels for the CPU.
void check_weight(const at::Tensor& weight, bool transposed) {
  const at::IntArrayRef window = weight.sizes().slice(2);
  TORCH_CHECK(std::all_of(window.begin(), window.end(), [](int64_t size) { return size > 0; }),
              "kernel size should be greater than zero, but got: ", window);
  TORCH_CHECK(!transposed || weight.size(1) > 0,
              "non-empty weight tensor expected, but got: ", weight.sizes());
}

/// Upstream leaves this to them, too.
void check_output_padding(int64_t axes, at::IntArrayRef stride, at::IntArrayRef dilation,
                          at::IntArrayRef output_padding) {
  for (size_t i = 0; i < static_cast<size_t>(axes); ++i) {
    const int64_t most = std::max(element(stride, i), element(dilation, i));
    TORCH_CHECK(element(output_padding, i) < most,
                "output padding must be smaller than either stride or dilation, but got ",
                element(output_padding, i), " in dimension ", i + 2, ", of stride ",
                element(stride, i), " and dilation ", element(dilation, i));
  }
}

}  // namespace

at::MemoryFormat convolution_format(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat own = input.suggest_memory_format();
  if (own != at::MemoryFormat::Contiguous) return own;
  return input.dim() == weight.dim() ? weight.suggest_memory_format() : own;
}

void run_convolution_with_epilogue(const at::Tensor& input, const at::Tensor& weight,
                                   const at::Tensor& bias, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation,
                                   int64_t groups, const conv::MatrixEpilogue& epilogue) {
  const at::DimVector sizes(
      at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation));
  at::Tensor result;
  if (epilogue.channels_last) {
    at::DimVector last(sizes);
    std::rotate(last.begin() + 1, last.begin() + 2, last.end());
    result = at::empty(last, input.options()).movedim(-1, 1);
  } else {
    result = at::empty(sizes, input.options());
  }
  conv::forward(result, input, weight, bias.defined() ? bias.contiguous() : bias,
                window_of(weight, stride, padding, dilation, groups),
                precision_of(weight.scalar_type()), &epilogue);
}

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                    at::IntArrayRef padding, at::IntArrayRef dilation,
                                    bool transposed, at::IntArrayRef output_padding,
                                    int64_t groups) {
  check_same_dtype(weight, input.scalar_type());
  check_window(weight, stride, groups);
  check_weight(weight, transposed);
  TORCH_CHECK(std::all_of(dilation.begin(), dilation.end(), [](int64_t d) { return d > 0; }),
              "non-positive dilation is not supported");
  if (c10::isIntegralType(input.scalar_type(), /*includeBool=*/false) &&
      input.scalar_type() != at::kLong && !transposed) {
    // Sums modulo 2^64 are right in fewer bits. Transposed ones CPU torch has for int64 alone.
    const auto widened = [](const at::Tensor& t) { return t.to(at::kLong); };
    return convolution_overrideable(widened(input), widened(weight),
                                    bias && bias->defined() ? std::optional(widened(*bias)) : bias,
                                    stride, padding, dilation, transposed, output_padding, groups)
        .to(input.scalar_type());
  }
  at::Tensor addend = bias.value_or(at::Tensor());
  if (addend.defined()) {
    check_same_dtype(addend, input.scalar_type());
    addend = addend.contiguous();
  }
  const at::DimVector sizes =
      transposed
          ? at::DimVector(at::native::conv_input_size(input.sizes(), weight.sizes(), padding,
                                                      output_padding, stride, dilation, groups))
          : at::DimVector(at::native::conv_output_size(input.sizes(), weight.sizes(), padding,
                                                       stride, dilation));
  if (transposed) {
    check_output_padding(weight.dim() - 2, stride, dilation, output_padding);
    // As upstream's kernels for the CPU, which oneDNN's for half types replace.
    const bool empty = std::any_of(sizes.begin() + 2, sizes.end(), [](int64_t n) { return n < 1; });
    TORCH_CHECK(!empty || c10::isReducedFloatingType(input.scalar_type()),
                "Given input size per channel: ", input.sizes().slice(2),
                ". Calculated output size per channel: ", at::IntArrayRef(sizes).slice(2),
                ". Output size is too small");
  }
  const at::Tensor result =
      at::empty(sizes, input.options().memory_format(convolution_format(input, weight)));
  const conv::Window window = window_of(weight, stride, padding, dilation, groups);
  const conv::Precision precision = precision_of(weight.scalar_type());
  if (transposed) {
    conv::input_gradient(result, input, weight, addend, window, precision);
  } else {
    conv::forward(result, input, weight, addend, window, precision);
  }
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef, int64_t groups, std::array<bool, 3> output_mask) {
  check_same_dtype(weight, input.scalar_type());
  check_same_dtype(grad_output, input.scalar_type());
  check_window(weight, stride, groups);
  const conv::Window window = window_of(weight, stride, padding, dilation, groups);
  const conv::Precision precision = precision_of(weight.scalar_type());
  const at::MemoryFormat format = convolution_format(input, weight);
  at::Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) {
    grad_input = at::empty(input.sizes(), input.options().memory_format(format));
    if (transposed) {
      conv::forward(grad_input, grad_output, weight, {}, window, precision);
    } else {
      conv::input_gradient(grad_input, grad_output, weight, {}, window, precision);
    }
  }
  if (output_mask[1]) {
    grad_weight = at::empty(weight.sizes(), weight.options().memory_format(format));
    if (transposed) {
      conv::weight_gradient(grad_weight, grad_output, input, window, precision);
    } else {
      conv::weight_gradient(grad_weight, input, grad_output, window, precision);
    }
  }
  if (output_mask[2]) {
    at::DimVector dimensions{0};
    for (int64_t d = 2; d < grad_output.dim(); ++d) dimensions.push_back(d);
    grad_bias = grad_output.sum(dimensions);
  }
  return {grad_input, grad_weight, grad_bias};
}

}  // namespace ocl::native
