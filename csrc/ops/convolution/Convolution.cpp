// convolution_overrideable and its backward, which ATen's convolution calls for this device.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/conv/conv.h"
#include "ops/DtypeChecks.h"
#include "ops/convolution/ConvolutionChecks.h"
#include "ops/convolution/ConvolutionEpilogue.h"
#include "ops/convolution_backward_overrideable.h"
#include "ops/convolution_overrideable.h"

namespace ocl::native {

namespace {

/// Upstream leaves this to its kernels for the CPU, too.
void check_output_padding(int64_t axes, at::IntArrayRef stride, at::IntArrayRef dilation,
                          at::IntArrayRef output_padding) {
  for (size_t i = 0; i < static_cast<size_t>(axes); ++i) {
    const int64_t most = std::max(of_axis(stride, i), of_axis(dilation, i));
    TORCH_CHECK(of_axis(output_padding, i) < most,
                "output padding must be smaller than either stride or dilation, but got ",
                of_axis(output_padding, i), " in dimension ", i + 2, ", of stride ",
                of_axis(stride, i), " and dilation ", of_axis(dilation, i));
  }
}

}  // namespace

void run_convolution_with_epilogue(const at::Tensor& input, const at::Tensor& weight,
                                   const at::Tensor& bias, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation,
                                   int64_t groups, const conv::MatrixEpilogue& epilogue) {
  const at::DimVector sizes(
      at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation));
  conv::forward_into(epilogue, sizes, input, weight, bias.defined() ? bias.contiguous() : bias,
                     window_of(weight, stride, padding, dilation, groups),
                     precision_of(weight.scalar_type()));
}

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                    at::IntArrayRef padding, at::IntArrayRef dilation,
                                    bool transposed, at::IntArrayRef output_padding,
                                    int64_t groups) {
  check_same_dtype(weight, input.scalar_type());
  check_window(weight, stride, groups);
  check_weight(weight, transposed);
  check_dilation(dilation);
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
