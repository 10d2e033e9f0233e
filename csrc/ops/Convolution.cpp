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
#include <string>

#include "engine/conv/conv.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "ops/ConvolutionEpilogue.h"
#include "ops/ConvolutionMatrix.h"
#include "ops/ConvolutionSpaceToDepth.h"
#include "ops/DtypeChecks.h"
#include "ops/convolution_backward_overrideable.h"
#include "ops/convolution_overrideable.h"
#include "ops/linalg/Float32Precision.h"
#include "runtime/stream.h"

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
  if (weight.scalar_type() == at::kFloat) {
    const Float32Precision precision = allowed_precision(Float32Use::conv);
    window.tf32 = precision == Float32Precision::tf32;
    window.rounded_terms = rounded_terms(precision);
  }
  return window;
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
at::Tensor for_few_columns(const at::Tensor& tensor, int64_t columns, const conv::Window& window) {
  const bool channels_last = tensor.size(1) > 1 && tensor.stride(1) == 1;
  if (!channels_last || window.groups != 1) return tensor;
  if (!current_queue(current_device()).device().is_cpu()) {
    return columns > conv::kFewColumns ? tensor : tensor.contiguous();
  }
  const bool single = std::all_of(window.kernel.begin(), window.kernel.end(),
                                  [](int64_t size) { return size == 1; });
  return columns > conv::kNarrowColumns || single ? tensor : tensor.contiguous();
}

bool on_cpu() { return current_queue(current_device()).device().is_cpu(); }

int64_t taps_of(const conv::Window& window) {
  int64_t taps = 1;
  for (const int64_t size : window.kernel) taps *= size;
  return taps;
}

void output_of(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
               const at::Tensor& bias, const conv::Window& window,
               const conv::Results* results = nullptr);
void weight_of(const at::Tensor& weight, const at::Tensor& in, const at::Tensor& out,
               const conv::Window& window);

const char* refuse_product(const ConvolutionPlan& plan) {
  const conv::Window& window = plan.window;
  if (on_cpu()) return "the convolutions of CPUs store results in their places";
  if (window.groups != 1) return "there are groups";
  if (!at::isFloatingType(plan.in.scalar_type())) return "the dtype is no floating one";
  if (plan.bias.defined() && plan.in.element_size() < 4) {
    return "half types would be rounded before the bias is added";
  }
  for (int64_t i = 0; i < plan.axes(); ++i) {
    const auto at = static_cast<size_t>(i + 3 - plan.axes());
    if (window.kernel[at] != window.stride[at] || window.pad[at] != 0 ||
        (window.kernel[at] > 1 && window.dilation[at] != 1) ||
        plan.in.size(2 + i) != plan.out.size(2 + i) * window.stride[at]) {
      return "windows don't lie side by side";
    }
  }
  return taps_of(window) == 1 ? "windows have one element" : nullptr;
}

/// Windows that lie side by side: one product with every element of the windows, whose results then
/// take their places.
void run_product(const ConvolutionPlan& plan) {
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  const int64_t axes = plan.axes(), taps = taps_of(window);
  const int64_t positions = out.numel() / (out.size(0) * out.size(1));
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
}

const char* refuse_phases(const ConvolutionPlan& plan) {
  const conv::Window& window = plan.window;
  if (on_cpu()) return "on CPUs a sum per phase does better";
  if (window.groups != 1) return "there are groups";
  int64_t phases = 1;
  for (int64_t i = 0; i < plan.axes(); ++i) {
    const auto at = static_cast<size_t>(i + 3 - plan.axes());
    const int64_t stride = window.stride[at], pad = window.pad[at];
    if (window.dilation[at] != 1) return "there is a dilation";
    if (plan.in.size(2 + i) % stride != 0) return "the stride doesn't divide the size";
    const int64_t reach = ceil_div(pad, stride), before = reach * stride - pad;
    if (ceil_div(window.kernel[at] + before, stride) - 1 < reach) return "padding exceeds windows";
    phases *= stride;
  }
  if (phases == 1) return "there is no stride";
  return phases * plan.weight.size(1) > conv::kFewColumns ? "channels are many" : nullptr;
}

/// Few channels of `in` and a stride: sums that differ in their place between the strides are
/// computed as so many channels of one convolution, with the window's elements that each of them
/// takes, and then take their places. One by one they would share no loads.
void run_phases(const ConvolutionPlan& plan) {
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  const int64_t axes = plan.axes(), channels = weight.size(1);
  int64_t phases = 1;
  conv::Window shared;  // of the convolution with all phases
  // Along an axis the element u * stride + phase of the window with `padding` zeros in front of it
  // and after it meets the result's coordinate i + reach - u, for the input's i * stride + phase.
  std::vector<int64_t> padding;
  at::DimVector split{weight.size(0), channels}, order, place_order{0};
  at::DimVector grid{in.size(0)}, sizes;
  for (int64_t i = 0; i < axes; ++i) {
    const auto at = static_cast<size_t>(i + 3 - axes);
    const int64_t stride = window.stride[at], pad = window.pad[at], size = in.size(2 + i);
    const int64_t reach = ceil_div(pad, stride), before = reach * stride - pad;
    const int64_t taps = ceil_div(window.kernel[at] + before, stride);
    phases *= stride;
    shared.kernel[at] = taps;
    shared.pad[at] = taps - 1 - reach;
    padding.insert(padding.begin(), {before, taps * stride - before - window.kernel[at]});
    split.append({taps, stride});
    order.push_back(3 + 2 * i);
    sizes.push_back(taps);
    grid.push_back(size / stride);
  }
  order.append({1, 0});
  at::DimVector flipped;
  for (int64_t i = 0; i < axes; ++i) {
    order.push_back(2 + 2 * i);
    flipped.push_back(axes + 2 + i);
  }
  sizes.insert(sizes.begin(), {phases * channels, weight.size(0)});
  const at::Tensor windows = at::constant_pad_nd(weight, padding).reshape(split).permute(order);
  const at::Tensor taps = at::flip(windows, flipped).reshape(sizes);
  const at::Tensor addend = bias.defined() ? bias.repeat({phases}) : at::Tensor();
  grid.insert(grid.begin() + 1, phases * channels);
  const at::Tensor result = at::empty(grid, in.options());
  output_of(result, out, taps, addend, shared);
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
}

void output_of_depth(const ConvolutionPlan& plan) {
  const SpaceToDepth folded = space_to_depth(plan);
  output_of(plan.out, folded.in, folded.weight, plan.bias, folded.window, plan.results);
}

void weight_of_depth(const ConvolutionPlan& plan) {
  const SpaceToDepth folded = space_to_depth(plan);
  weight_of(folded.weight, folded.in, plan.out, folded.window);
  deliver_weight(folded, plan);
}

const char* refuse_nothing(const ConvolutionPlan&) { return nullptr; }

void output_by_kernels(const ConvolutionPlan& plan) {
  const int axes = static_cast<int>(plan.axes());
  const at::Tensor read = for_few_columns(plan.in, plan.weight.size(0), plan.window);
  conv::forward(conv::Operand(plan.out, axes), conv::Operand(read, axes),
                conv::Operand(plan.weight, axes), plan.addend(), plan.window, plan.results);
}

void input_by_kernels(const ConvolutionPlan& plan) {
  const int axes = static_cast<int>(plan.axes());
  const at::Tensor read = for_few_columns(plan.out, plan.weight.size(1), plan.window);
  conv::input_gradient(conv::Operand(plan.in, axes), conv::Operand(read, axes),
                       conv::Operand(plan.weight, axes), plan.addend(), plan.window);
}

void weight_by_kernels(const ConvolutionPlan& plan) {
  const int axes = static_cast<int>(plan.axes());
  const conv::Operand to(plan.weight, axes), a(plan.in, axes), b(plan.out, axes);
  if (!conv::weight_gradient_wants_channels_last(to, a, b, plan.window)) {
    conv::weight_gradient(to, a, b, plan.window);
    return;
  }
  const at::Tensor channels_last = at::empty_like(plan.weight.movedim(0, -1)).movedim(-1, 0);
  conv::weight_gradient(conv::Operand(channels_last, axes), a, b, plan.window);
  plan.weight.copy_(channels_last);
}

/// In planes, or, where there is no memory for these, as they are.
template <void (*by_planes)(const ConvolutionPlan&), void (*by_kernels)(const ConvolutionPlan&)>
void run_by_planes(const ConvolutionPlan& plan) {
  try {
    return by_planes(plan);
  } catch (const c10::OutOfMemoryError&) {
    // The kernels need none.
  }
  by_kernels(plan);
}

// How tensors are brought to the kernels. `conv`: as they are, to the conv engine, which chooses
// among kernels of its own.
using Way = Implementation<const ConvolutionPlan>;
constexpr Way kOutputByParts{"bfloat16_parts", refuse_by_parts, output_by_matrix};
constexpr Way kInputByParts{"bfloat16_parts", refuse_by_parts, input_by_matrix};
constexpr Way kWeightByParts{"bfloat16_parts", refuse_by_parts, weight_by_matrix};
constexpr Way kOutputByPlanes{"bfloat16_planes", refuse_by_planes,
                              run_by_planes<output_by_planes, output_by_kernels>};
constexpr Way kInputByPlanes{"bfloat16_planes", refuse_by_planes,
                             run_by_planes<input_by_planes, input_by_kernels>};
constexpr Way kWeightByPlanes{"bfloat16_planes", refuse_by_planes,
                              run_by_planes<weight_by_planes, weight_by_kernels>};
constexpr Way kOutputByMatrix{"implicit_gemm", refuse_by_matrix, output_by_matrix};
constexpr Way kInputByMatrix{"implicit_gemm", refuse_by_matrix, input_by_matrix};
constexpr Way kWeightByMatrix{"implicit_gemm", refuse_by_matrix, weight_by_matrix};
constexpr Way kOutputOfDepth{"space_to_depth", refuse_space_to_depth, output_of_depth};
constexpr Way kWeightOfDepth{"space_to_depth", refuse_space_to_depth, weight_of_depth};
constexpr Way kProduct{"product", refuse_product, run_product};
constexpr Way kPhases{"phases", refuse_phases, run_phases};
constexpr Way kOutputByConv{"conv", refuse_nothing, output_by_kernels};
constexpr Way kInputByConv{"conv", refuse_nothing, input_by_kernels};
constexpr Way kWeightByConv{"conv", refuse_nothing, weight_by_kernels};
constexpr const Way* kOfOutput[] = {&kOutputOfDepth, &kOutputByParts, &kOutputByPlanes,
                                    &kOutputByMatrix, &kOutputByConv};
constexpr const Way* kOfInput[] = {&kInputByParts, &kInputByPlanes, &kInputByMatrix,
                                   &kProduct,      &kPhases,        &kInputByConv};
constexpr const Way* kOfWeight[] = {&kWeightOfDepth, &kWeightByParts, &kWeightByPlanes,
                                    &kWeightByMatrix, &kWeightByConv};
Engine engine{"convolution", kOfOutput, kOfInput, kOfWeight};

std::string describe(const ConvolutionPlan& plan) {
  constexpr const char* kPasses[] = {"output", "input gradient", "weight gradient"};
  std::string text = std::string("convolution ") + kPasses[static_cast<size_t>(plan.pass)];
  const char* separator = " ";
  for (const int64_t size : plan.in.sizes()) {
    text += separator + std::to_string(size);
    separator = "x";
  }
  return text + " " + tag(plan.in.scalar_type());
}

void output_of(const at::Tensor& out, const at::Tensor& in, const at::Tensor& weight,
               const at::Tensor& bias, const conv::Window& window, const conv::Results* results) {
  if (out.numel() == 0) return;
  if (weight.numel() == 0) {
    fill_channels(out, bias);
    if (results != nullptr) {
      const int64_t columns =
          results->channels_last ? out.size(1) : out.numel() / (out.size(0) * out.size(1));
      conv::hand_over(*results, out.const_data_ptr(), out.scalar_type(), 0, out.numel() / columns,
                      columns);
    }
    return;
  }
  const ConvolutionPlan plan{ConvolutionPlan::Pass::output, in, out, weight, bias, window, results};
  run_first(engine, kOfOutput, plan, describe);
}

/// The gradient of output_of()'s input, or a transposed convolution.
void input_of(const at::Tensor& in, const at::Tensor& out, const at::Tensor& weight,
              const at::Tensor& bias, const conv::Window& window) {
  if (in.numel() == 0) return;
  if (out.numel() == 0 || !conv::covers_all(window)) {
    fill_channels(in, bias);
    if (out.numel() == 0) return;
  }
  const ConvolutionPlan plan{ConvolutionPlan::Pass::input, in, out, weight, bias, window};
  run_first(engine, kOfInput, plan, describe);
}

void weight_of(const at::Tensor& weight, const at::Tensor& in, const at::Tensor& out,
               const conv::Window& window) {
  if (weight.numel() == 0) return;
  if (in.numel() == 0 || out.numel() == 0) {
    weight.zero_();
    return;
  }
  const at::Tensor none;
  const ConvolutionPlan plan{ConvolutionPlan::Pass::weight, in, out, weight, none, window};
  run_first(engine, kOfWeight, plan, describe);
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
void check_weight(const at::Tensor& weight, bool transposed) {
  const at::IntArrayRef window = weight.sizes().slice(2);
  TORCH_CHECK(std::all_of(window.begin(), window.end(), [](int64_t size) { return size > 0; }),
              "kernel size should be greater than zero, but got: ", window);
  TORCH_CHECK(!transposed || weight.size(1) > 0,
              "non-empty weight tensor expected, but got: ", weight.sizes());
}

/// Likewise.
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
                                   int64_t groups, const conv::Results& results) {
  const at::DimVector sizes(
      at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation));
  at::Tensor result;
  if (results.channels_last) {
    at::DimVector last(sizes);
    std::rotate(last.begin() + 1, last.begin() + 2, last.end());
    result = at::empty(last, input.options()).movedim(-1, 1);
  } else {
    result = at::empty(sizes, input.options());
  }
  output_of(result, input, weight, bias.defined() ? bias.contiguous() : bias,
            window_of(weight, stride, padding, dilation, groups), &results);
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
  const conv::Window window = window_of(weight, stride, padding, dilation, groups);
  const at::MemoryFormat format = convolution_format(input, weight);
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
