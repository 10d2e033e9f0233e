#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/ConvolutionSpaceToDepth.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include "engine/conv/implicit_gemm.h"
#include "opencl/ceil_div.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using conv::kChunk;
using conv::kMostTaps;

constexpr size_t kInner = 2;  // the axis of lines

/// Along lines the window's element t at output o is input column stride * (o - pad') + shift + t,
/// so that t + shift is stride * t' + the column among the folded ones.
struct Line {
  explicit Line(const conv::Window& window)
      : stride(window.stride[kInner]),
        pad(ceil_div(window.pad[kInner], stride)),
        shift(pad * stride - window.pad[kInner]),
        kernel(ceil_div(window.kernel[kInner] + shift, stride)) {}
  int64_t stride, pad, shift, kernel;
};

conv::Window folded_window(const conv::Window& window) {
  const Line line(window);
  conv::Window folded = window;
  folded.kernel[kInner] = line.kernel;
  folded.pad[kInner] = line.pad;
  folded.stride[kInner] = folded.dilation[kInner] = 1;
  return folded;
}

int64_t taps_of(const conv::Window& window) {
  return window.kernel[0] * window.kernel[1] * window.kernel[2];
}

/// [...][columns][channels] with `stride` columns as channels, these next to the first.
at::Tensor folded(const at::Tensor& last, int64_t stride) {
  at::DimVector sizes(last.sizes().begin(), last.sizes().end());
  sizes[sizes.size() - 2] /= stride;
  sizes.back() *= stride;
  return last.contiguous().view(sizes).movedim(-1, 1);
}

}  // namespace

const char* refuse_space_to_depth(const ConvolutionPlan& plan) {
  const conv::Window& window = plan.window;
  if (current_queue(current_device()).device().is_cpu()) return "CPUs pack any windows";
  if (window.groups != 1) return "there are groups";
  if (window.stride[kInner] == 1) return "there is no stride along lines";
  if (window.dilation[kInner] != 1 && window.kernel[kInner] > 1) return "there is a dilation";
  const int64_t channels = plan.weight.size(1);
  const conv::Window folded = folded_window(window);
  const auto chunks = [](int64_t count, const conv::Window& of) {
    return ceil_div(count, kChunk) * taps_of(of);
  };
  if (taps_of(window) <= kMostTaps &&
      chunks(channels * window.stride[kInner], folded) >= chunks(channels, window)) {
    return "channels are many enough";
  }
  return conv::refuse_implicit_gemm(plan.in.scalar_type(), folded,
                                    plan.pass == ConvolutionPlan::Pass::weight);
}

SpaceToDepth space_to_depth(const ConvolutionPlan& plan) {
  const Line line(plan.window);
  at::Tensor in = plan.in.movedim(1, -1);
  if (const int64_t rest = in.size(-2) % line.stride; rest != 0) {
    in = at::constant_pad_nd(in, {0, 0, 0, line.stride - rest});
  }
  at::Tensor weight = plan.weight.movedim(1, -1);
  const int64_t columns = line.kernel * line.stride,
                behind = columns - line.shift - weight.size(-2);
  if (plan.pass == ConvolutionPlan::Pass::weight) {
    at::DimVector sizes(weight.sizes().begin(), weight.sizes().end());
    sizes[sizes.size() - 2] = columns;
    weight = at::empty(sizes, weight.options());
  } else if (line.shift + behind > 0) {
    weight = at::constant_pad_nd(weight, {0, 0, line.shift, behind});
  }
  return {folded(in, line.stride), folded(weight, line.stride), folded_window(plan.window)};
}

void deliver_weight(const SpaceToDepth& from, const ConvolutionPlan& plan) {
  const Line line(plan.window);
  const at::Tensor target = plan.weight.movedim(1, -1), last = from.weight.movedim(1, -1);
  at::DimVector sizes(target.sizes().begin(), target.sizes().end());
  sizes[sizes.size() - 2] = line.kernel * line.stride;
  target.copy_(last.view(sizes).narrow(-2, line.shift, target.size(-2)));
}

}  // namespace ocl::native
