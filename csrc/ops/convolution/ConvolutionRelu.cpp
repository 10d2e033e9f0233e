// cudnn_convolution_relu, cudnn_convolution_add_relu and MIOpen's of the same meaning.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/conv/conv.h"
#include "ops/DtypeChecks.h"
#include "ops/convolution/ConvolutionChecks.h"
#include "ops/cudnn_convolution_add_relu.h"
#include "ops/cudnn_convolution_relu.h"
#include "ops/miopen_convolution_add_relu.h"
#include "ops/miopen_convolution_relu.h"

namespace ocl::native {

namespace {

/// The lists that these ops take.
struct Settings {
  at::IntArrayRef stride, padding, dilation;
  int64_t groups;
};

void check_list(const char* op, const char* name, at::IntArrayRef list, int64_t axes) {
  TORCH_CHECK(static_cast<int64_t>(list.size()) == axes, op, ": expected ", name,
              " to be a list of ", axes, " values to match the convolution dimensions, but got ",
              name, "=", list);
}

/// Upstream's convolution checks this, but these ops don't go through it.
void check_operands(const char* op, const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias, const Settings& settings) {
  const int64_t axes = input.dim() - 2;
  TORCH_CHECK(axes >= 1 && axes <= 3, op, ": expected an input of 3 to 5 dimensions, but got ",
              input.sizes());
  TORCH_CHECK(weight.dim() == input.dim(), op, ": expected a weight of ", input.dim(),
              " dimensions, but got ", weight.sizes());
  check_floating(op, input);
  check_same_dtype(weight, input.scalar_type());
  check_list(op, "stride", settings.stride, axes);
  check_list(op, "padding", settings.padding, axes);
  check_list(op, "dilation", settings.dilation, axes);
  check_window(weight, settings.stride, settings.groups);
  check_dilation(settings.dilation);
  check_weight(weight, false);
  TORCH_CHECK(std::ranges::all_of(settings.padding, [](int64_t p) { return p >= 0; }),
              "negative padding is not supported");
  TORCH_CHECK(input.size(1) == weight.size(1) * settings.groups, op,
              ": given groups=", settings.groups, ", weight of size ", weight.sizes(),
              ", expected input", input.sizes(), " to have ", weight.size(1) * settings.groups,
              " channels, but got ", input.size(1), " channels instead");
  if (bias.defined()) {
    check_same_dtype(bias, input.scalar_type());
    TORCH_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), op, ": expected bias to be 1-",
                "dimensional with ", weight.size(0), " elements, but got bias of size ",
                bias.sizes());
  }
  for (int64_t i = 0; i < axes; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t window = settings.dilation[at] * (weight.size(2 + i) - 1) + 1;
    const int64_t padded = input.size(2 + i) + 2 * settings.padding[at];
    TORCH_CHECK(padded >= window, op,
                ": Kernel size can't be greater than actual input size: ", window, " and ", padded,
                " in dimension ", 2 + i);
  }
}

/// relu(convolution + alpha * z), or relu(convolution) if z is undefined.
at::Tensor convolution_relu(const char* op, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& z, double alpha, const at::Tensor& bias,
                            const Settings& settings) {
  check_operands(op, input, weight, bias, settings);
  const at::ScalarType dtype = input.scalar_type();
  const at::MemoryFormat format = convolution_format(input, weight);
  const at::DimVector sizes(at::native::conv_output_size(
      input.sizes(), weight.sizes(), settings.padding, settings.stride, settings.dilation));
  at::Tensor addend;
  if (z.defined()) {
    check_same_dtype(z, dtype);
    TORCH_CHECK(z.sizes() == at::IntArrayRef(sizes), op, ": expected z of the result's size ",
                at::IntArrayRef(sizes), ", but got ", z.sizes());
    addend = z.contiguous(format);
  }
  const at::Tensor out = at::empty(sizes, input.options().memory_format(format));
  conv::forward(
      out, input, weight, bias.defined() ? bias.contiguous() : bias,
      window_of(weight, settings.stride, settings.padding, settings.dilation, settings.groups),
      precision_of(dtype), {addend, alpha, format != at::MemoryFormat::Contiguous});
  return out;
}

double value_or_one(const std::optional<at::Scalar>& alpha) {
  return alpha ? alpha->to<double>() : 1.0;
}

}  // namespace

at::Tensor cudnn_convolution_relu(const at::Tensor& self, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                  at::IntArrayRef padding, at::IntArrayRef dilation,
                                  int64_t groups) {
  return convolution_relu("cudnn_convolution_relu", self, weight, {}, 0,
                          bias.value_or(at::Tensor()), {stride, padding, dilation, groups});
}

at::Tensor cudnn_convolution_add_relu(const at::Tensor& self, const at::Tensor& weight,
                                      const at::Tensor& z, const std::optional<at::Scalar>& alpha,
                                      const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                      at::IntArrayRef padding, at::IntArrayRef dilation,
                                      int64_t groups) {
  return convolution_relu("cudnn_convolution_add_relu", self, weight, z, value_or_one(alpha),
                          bias.value_or(at::Tensor()), {stride, padding, dilation, groups});
}

at::Tensor miopen_convolution_relu(const at::Tensor& self, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation,
                                   int64_t groups) {
  return convolution_relu("miopen_convolution_relu", self, weight, {}, 0,
                          bias.value_or(at::Tensor()), {stride, padding, dilation, groups});
}

at::Tensor miopen_convolution_add_relu(const at::Tensor& self, const at::Tensor& weight,
                                       const at::Tensor& z, const std::optional<at::Scalar>& alpha,
                                       const std::optional<at::Tensor>& bias,
                                       at::IntArrayRef stride, at::IntArrayRef padding,
                                       at::IntArrayRef dilation, int64_t groups) {
  return convolution_relu("miopen_convolution_add_relu", self, weight, z, value_or_one(alpha),
                          bias.value_or(at::Tensor()), {stride, padding, dilation, groups});
}

}  // namespace ocl::native
