// convolution_overrideable and its backward, which ATen's convolution calls for this device.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "engine/conv/conv.h"
#include "engine/conv/depthwise.h"
#include "ops/ConvolutionMatrix.h"
#include "ops/DtypeChecks.h"
#include "ops/convolution_backward_overrideable.h"
#include "ops/convolution_overrideable.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

int64_t element(at::IntArrayRef list, size_t i) { return list.size() == 1 ? list[0] : list[i]; }

ConvWindow window_of(const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
                     at::IntArrayRef dilation, int64_t groups) {
  ConvWindow window;
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

/// CPU torch's result has the format of either operand that has one of its own.
at::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat own = input.suggest_memory_format();
  if (own != at::MemoryFormat::Contiguous) return own;
  return input.dim() == weight.dim() ? weight.suggest_memory_format() : own;
}

/// What a sum of nothing gives.
void fill_channels(const at::Tensor& tensor, const at::Tensor& bias) {
  if (!bias.defined()) {
    tensor.zero_();
    return;
  }
  at::DimVector shape(static_cast<size_t>(tensor.dim()), 1);
  shape[1] = -1;
  tensor.copy_(bias.reshape(shape));
}

/// `tensor`, which a convolution with `columns` output channels reads: contiguous if that is what
/// the kernels for few of them want, whose work-items or lanes have positions side by side.
at::Tensor for_few_columns(const at::Tensor& tensor, int64_t columns, const ConvWindow& window) {
  const bool channels_last = tensor.size(1) > 1 && tensor.stride(1) == 1;
  if (!channels_last || window.groups != 1) return tensor;
  if (!current_queue(current_device()).device().is_cpu()) {
    return columns > kFewColumns ? tensor : tensor.contiguous();
  }
  const bool single = std::all_of(window.kernel.begin(), window.kernel.end(),
                                  [](int64_t size) { return size == 1; });
  return columns > kNarrowColumns || single ? tensor : tensor.contiguous();
}

void output_of(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
               const at::Tensor& bias, const ConvWindow& window) {
  const int axes = static_cast<int>(weight.dim()) - 2;
  if (out.numel() == 0) return;
  if (weight.numel() == 0) {
    fill_channels(out, bias);
    return;
  }
  if (output_by_matrix(out, in, weight, bias, window)) return;
  const at::Tensor read = for_few_columns(in, weight.size(0), window);
  convolution(ConvTensor(out, axes), ConvTensor(read, axes), ConvTensor(weight, axes),
              bias.defined() ? bias.const_data_ptr() : nullptr, window);
}

/// input_of() on GPUs where windows lie side by side: one product with every element of the
/// windows, whose results then take their places. False if it doesn't take the convolution.
bool input_of_tiles(const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
                    const at::Tensor& bias, const ConvWindow& window) {
  const int64_t axes = weight.dim() - 2;
  if (current_queue(current_device()).device().is_cpu() || window.groups != 1) return false;
  if (!at::isFloatingType(in.scalar_type())) return false;
  // Half types would be rounded before the bias is added.
  if (bias.defined() && in.element_size() < 4) return false;
  int64_t taps = 1, positions = 1;
  for (int64_t i = 0; i < axes; ++i) {
    const auto at = static_cast<size_t>(i + 3 - axes);
    if (window.kernel[at] != window.stride[at] || window.pad[at] != 0) return false;
    if (window.kernel[at] > 1 && window.dilation[at] != 1) return false;
    if (in.size(2 + i) != out.size(2 + i) * window.stride[at]) return false;
    taps *= window.kernel[at];
    positions *= out.size(2 + i);
  }
  if (taps == 1) return false;
  const int64_t images = out.size(0), channels = out.size(1), results = weight.size(1);
  const bool last = in.stride(1) == 1 && results > 1;
  // The product's dimensions in the order of `in`: image, channel, then positions and taps by
  // turns.
  at::DimVector shape, order{0};
  at::Tensor product;
  if (last) {
    const at::Tensor rows = out.movedim(1, -1).reshape({images * positions, channels});
    product = at::mm(rows, weight.movedim(1, -1).reshape({channels, taps * results}));
    shape.push_back(images);
    for (int64_t i = 0; i < axes; ++i) shape.push_back(out.size(2 + i));
    for (int64_t i = 0; i < axes; ++i) shape.push_back(weight.size(2 + i));
    shape.push_back(results);
    order.push_back(1 + 2 * axes);
    for (int64_t i = 0; i < axes; ++i) order.append({1 + i, 1 + axes + i});
  } else {
    const at::Tensor taken = weight.reshape({channels, results * taps}).t();
    product = at::bmm(taken.expand({images, results * taps, channels}),
                      out.reshape({images, channels, positions}));
    shape.append({images, results});
    for (int64_t i = 0; i < axes; ++i) shape.push_back(weight.size(2 + i));
    for (int64_t i = 0; i < axes; ++i) shape.push_back(out.size(2 + i));
    order.push_back(1);
    for (int64_t i = 0; i < axes; ++i) order.append({2 + axes + i, 2 + i});
  }
  const at::Tensor places = product.view(shape).permute(order);
  const at::Tensor whole = in.view(places.sizes());
  if (bias.defined()) {
    at::DimVector along(static_cast<size_t>(places.dim()), 1);
    along[1] = results;
    at::Tensor result = whole;
    at::add_out(result, places, bias.view(along));
  } else {
    whole.copy_(places);
  }
  return true;
}

/// input_of() on GPUs for few channels of `in` and a stride: sums that differ in their place
/// between the strides are computed as so many channels of one convolution, with the window's
/// elements that each of them takes, and then take their places. One by one they would share no
/// loads. False if it doesn't take the convolution.
bool input_of_phases(const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
                     const at::Tensor& bias, const ConvWindow& window) {
  const int64_t axes = weight.dim() - 2, channels = weight.size(1);
  if (current_queue(current_device()).device().is_cpu() || window.groups != 1) return false;
  int64_t phases = 1;
  ConvWindow shared;  // of the convolution with all phases
  // Along an axis the element u * stride + phase of the window with `padding` zeros in front of it
  // and after it meets the result's coordinate i + reach - u, for the input's i * stride + phase.
  std::vector<int64_t> padding;
  at::DimVector split{weight.size(0), channels}, order, place_order{0};
  at::DimVector grid{in.size(0)}, sizes;
  for (int64_t i = 0; i < axes; ++i) {
    const auto at = static_cast<size_t>(i + 3 - axes);
    const int64_t stride = window.stride[at], pad = window.pad[at], size = in.size(2 + i);
    if (window.dilation[at] != 1 || size % stride != 0) return false;
    const int64_t reach = (pad + stride - 1) / stride, before = reach * stride - pad;
    const int64_t taps = (window.kernel[at] + before + stride - 1) / stride;
    if (taps - 1 < reach) return false;
    phases *= stride;
    shared.kernel[at] = taps;
    shared.pad[at] = taps - 1 - reach;
    padding.insert(padding.begin(), {before, taps * stride - before - window.kernel[at]});
    split.append({taps, stride});
    order.push_back(3 + 2 * i);
    sizes.push_back(taps);
    grid.push_back(size / stride);
  }
  if (phases == 1 || phases * channels > kFewColumns) return false;
  order.append({1, 0});
  at::DimVector flipped;
  for (int64_t i = 0; i < axes; ++i) {
    order.push_back(2 + 2 * i);
    flipped.push_back(axes + 2 + i);
  }
  sizes.insert(sizes.begin(), {phases * channels, weight.size(0)});
  const at::Tensor windows = at::constant_pad_nd(weight, padding).reshape(split).permute(order);
  const at::Tensor turned = at::flip(windows, flipped).reshape(sizes);
  const at::Tensor addend = bias.defined() ? bias.repeat({phases}) : at::Tensor();
  grid.insert(grid.begin() + 1, phases * channels);
  const at::Tensor result = at::empty(grid, in.options());
  output_of(result, out, turned, addend, shared);
  // From [image][phases][channel][positions] to [image][channel][position, phase along each axis].
  at::DimVector shape{in.size(0)}, target{in.size(0), channels};
  for (int64_t i = 0; i < axes; ++i)
    shape.push_back(window.stride[static_cast<size_t>(i + 3 - axes)]);
  shape.push_back(channels);
  place_order.push_back(1 + axes);
  for (int64_t i = 0; i < axes; ++i) {
    shape.push_back(grid[static_cast<size_t>(2 + i)]);
    place_order.append({2 + axes + i, 1 + i});
    target.append(
        {grid[static_cast<size_t>(2 + i)], window.stride[static_cast<size_t>(i + 3 - axes)]});
  }
  in.view(target).copy_(result.view(shape).permute(place_order));
  return true;
}

/// The gradient of convolution()'s input, or a transposed convolution.
void input_of(const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
              const at::Tensor& bias, const ConvWindow& window) {
  const int axes = static_cast<int>(weight.dim()) - 2;
  if (in.numel() == 0) return;
  if (out.numel() == 0 || !covers_all(window)) {
    fill_channels(in, bias);
    if (out.numel() == 0) return;
  }
  if (input_by_matrix(in, out, weight, bias, window)) return;
  if (input_of_tiles(in, out, weight, bias, window)) return;
  if (input_of_phases(in, out, weight, bias, window)) return;
  const at::Tensor read = for_few_columns(out, weight.size(1), window);
  convolution_input(ConvTensor(in, axes), ConvTensor(read, axes), ConvTensor(weight, axes),
                    bias.defined() ? bias.const_data_ptr() : nullptr, window);
}

void weight_of(const at::Tensor& weight, const at::Tensor& in, const at::Tensor& out,
               const ConvWindow& window) {
  const int axes = static_cast<int>(weight.dim()) - 2;
  if (weight.numel() == 0) return;
  if (in.numel() == 0 || out.numel() == 0) {
    weight.zero_();
    return;
  }
  if (weight_by_matrix(weight, in, out, window)) return;
  const ConvTensor a(in, axes), b(out, axes);
  if (depthwise_weight(ConvTensor(weight, axes), a, b, window)) return;
  // Depthwise with channels last: vectors run along the channels of the gradient too.
  if (window.groups > 1 && weight.size(0) == window.groups && a.stride[1] == 1 &&
      b.stride[1] == 1) {
    const at::Tensor turned = at::empty_like(weight.movedim(0, -1)).movedim(-1, 0);
    convolution_weight(ConvTensor(turned, axes), a, b, window);
    weight.copy_(turned);
    return;
  }
  convolution_weight(ConvTensor(weight, axes), a, b, window);
}

/// What upstream's convolution has seen to, where it calls these functions.
void check_window(const at::Tensor& weight, at::IntArrayRef stride, int64_t groups) {
  TORCH_CHECK(std::all_of(stride.begin(), stride.end(), [](int64_t s) { return s > 0; }),
              "non-positive stride is not supported");
  TORCH_CHECK(groups > 0, "expected groups to be greater than 0, but got groups=", groups);
  TORCH_CHECK(weight.size(0) % groups == 0, "expected weight to be divisible by ", groups,
              " at dimension 0, but got sizes ", weight.sizes());
}

/// What upstream leaves to its kernels for the CPU.
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

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                    at::IntArrayRef padding, at::IntArrayRef dilation,
                                    bool transposed, at::IntArrayRef output_padding,
                                    int64_t groups) {
  check_same_dtype(weight, input.scalar_type());
  check_window(weight, stride, groups);
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
      at::empty(sizes, input.options().memory_format(format_of(input, weight)));
  const ConvWindow window = window_of(weight, stride, padding, dilation, groups);
  if (transposed) {
    input_of(result, input, weight, addend, window);
  } else {
    output_of(result, input, weight, addend, window);
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
  const ConvWindow window = window_of(weight, stride, padding, dilation, groups);
  const at::MemoryFormat format = format_of(input, weight);
  at::Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) {
    grad_input = at::empty(input.sizes(), input.options().memory_format(format));
    if (transposed) {
      output_of(grad_input, grad_output, weight, {}, window);
    } else {
      input_of(grad_input, grad_output, weight, {}, window);
    }
  }
  if (output_mask[1]) {
    grad_weight = at::empty(weight.sizes(), weight.options().memory_format(format));
    if (transposed) {
      weight_of(grad_weight, grad_output, input, window);
    } else {
      weight_of(grad_weight, input, grad_output, window);
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
