// Strided convolutions of few channels, such as the first layers of residual networks and vision
// transformers: columns as channels ("space to depth"), as far as a stride reaches.
//
// 7 x 7 windows of 3 channels with a stride of 2 become 7 x 4 windows of 6 with a stride of 1 along
// lines, and 16 x 16 ones side by side 16 x 1 windows of 48. Matrix instructions take channels by
// eight. With channels last nothing moves for it: a line's columns and channels are contiguous.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "engine/conv/description.h"
#include "engine/conv/implicit_gemm.h"
#include "engine/conv/operands.h"
#include "opencl/ceil_div.h"

namespace ocl::conv {

namespace {

constexpr size_t kInner = 2;  // the axis of lines

/// Along lines the window's element t at output o is input column stride * (o - pad') + shift + t,
/// so that t + shift is stride * t' + the column among the folded ones.
struct Line {
  explicit Line(const Window& window)
      : stride(window.stride[kInner]),
        pad(ceil_div(window.pad[kInner], stride)),
        shift(pad * stride - window.pad[kInner]),
        kernel(ceil_div(window.kernel[kInner] + shift, stride)) {}
  int64_t stride, pad, shift, kernel;
};

Window folded_window(const Window& window) {
  const Line line(window);
  Window folded = window;
  folded.kernel[kInner] = line.kernel;
  folded.pad[kInner] = line.pad;
  folded.stride[kInner] = folded.dilation[kInner] = 1;
  return folded;
}

/// [...][columns][channels] with `stride` columns as channels, these next to the first.
at::Tensor folded(const at::Tensor& last, int64_t stride) {
  at::DimVector sizes(last.sizes().begin(), last.sizes().end());
  sizes[sizes.size() - 2] /= stride;
  sizes.back() *= stride;
  return last.contiguous().view(sizes).movedim(-1, 1);
}

const char* refuse(const Description& description) {
  const Window& window = description.window;
  if (description.device.is_cpu()) return "CPUs pack any windows";
  if (description.pass == Pass::input_gradient) return "it doesn't serve gradients of inputs";
  if (window.groups != 1) return "there are groups";
  if (window.stride[kInner] == 1) return "there is no stride along lines";
  if (window.dilation[kInner] != 1 && window.kernel[kInner] > 1) return "there is a dilation";
  const int64_t channels = description.weight.size[1];
  const Window folded = folded_window(window);
  const auto chunks = [](int64_t count, const Window& of) {
    return ceil_div(count, kChunk) * of.taps();
  };
  if (window.taps() <= kMostTaps &&
      chunks(channels * window.stride[kInner], folded) >= chunks(channels, window)) {
    return "channels are many enough";
  }
  return refuse_windows(description, description.in.dtype, folded,
                        description.pass == Pass::weight_gradient);
}

at::Tensor folded_input(const Description& description) {
  const Line line(description.window);
  at::Tensor in = description.in.tensor.movedim(1, -1);
  if (const int64_t rest = in.size(-2) % line.stride; rest != 0) {
    in = at::constant_pad_nd(in, {0, 0, 0, line.stride - rest});
  }
  return folded(in, line.stride);
}

void run_forward(Description& description) {
  const Line line(description.window);
  at::Tensor weight = description.weight.tensor.movedim(1, -1);
  const int64_t behind = line.kernel * line.stride - line.shift - weight.size(-2);
  if (line.shift + behind > 0) {
    weight = at::constant_pad_nd(weight, {0, 0, line.shift, behind});
  }
  const Window window = folded_window(description.window);
  Description of_depth(Pass::forward, folded_input(description), description.out.tensor,
                       folded(weight, line.stride), description.bias, window, description.precision,
                       std::exchange(description.epilogue, nullptr));
  run_convolution(of_depth);
}

void run_weight(const Description& description) {
  const Line line(description.window);
  const at::Tensor target = description.weight.tensor.movedim(1, -1);
  at::DimVector sizes(target.sizes().begin(), target.sizes().end());
  sizes[sizes.size() - 2] = line.kernel * line.stride;
  const at::Tensor columns = at::empty(sizes, target.options());
  const Window window = folded_window(description.window);
  Description of_depth(Pass::weight_gradient, folded_input(description), description.out.tensor,
                       folded(columns, line.stride), description.bias, window,
                       description.precision);
  run_convolution(of_depth);
  target.copy_(columns.narrow(-2, line.shift, target.size(-2)));
}

}  // namespace

const Implementation space_to_depth{"space_to_depth", refuse, [](Description& description) {
                                      if (description.pass == Pass::weight_gradient)
                                        return run_weight(description);
                                      run_forward(description);
                                    }};

}  // namespace ocl::conv
