#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/ConvolutionPatches.h"

#include <ATen/ops/empty.h>

#include "engine/conv/implicit_gemm.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

constexpr size_t kInner = 2;       // the axis of lines
constexpr int64_t kChunk = 8;      // channels that matrix instructions take at least
constexpr int64_t kMostTaps = 64;  // implicit_gemm.cpp's

conv::Window with_one_column(const conv::Window& window) {
  conv::Window one = window;
  one.kernel[kInner] = one.stride[kInner] = one.dilation[kInner] = 1;
  return one;
}

/// [first][channels][..., lines of `columns` x `each`] with columns as channels: a view of the
/// tensor with its channels last, which is contiguous.
at::Tensor with_columns_as_channels(const at::Tensor& last, int64_t each) {
  const int64_t channels = last.size(-1), length = last.size(-2);
  at::DimVector sizes(last.sizes().begin(), last.sizes().end());
  sizes[sizes.size() - 2] = length / each;
  sizes.back() = each * channels;
  return last.view(sizes).movedim(-1, 1);
}

}  // namespace

const char* refuse_patches(const ConvolutionPlan& plan) {
  const conv::Window& window = plan.window;
  if (current_queue(current_device()).device().is_cpu()) return "CPUs pack any windows";
  if (window.groups != 1) return "there are groups";
  const int64_t each = window.kernel[kInner], channels = plan.weight.size(1);
  if (each == 1 || each != window.stride[kInner] || window.pad[kInner] != 0 ||
      window.dilation[kInner] != 1 || plan.in.size(-1) != plan.out.size(-1) * each) {
    return "windows don't lie side by side";
  }
  const int64_t taps = window.kernel[0] * window.kernel[1] * each;
  if (channels % kChunk == 0 && taps <= kMostTaps) return "channels are many enough";
  return conv::refuse_implicit_gemm(plan.in.scalar_type(), with_one_column(window),
                                    plan.pass == ConvolutionPlan::Pass::weight);
}

Patches patches_of(const ConvolutionPlan& plan) {
  const int64_t each = plan.window.kernel[kInner];
  const at::Tensor in = plan.in.movedim(1, -1).contiguous();
  at::Tensor weight = plan.weight.movedim(1, -1);
  const bool shared = weight.is_contiguous();
  if (!shared) {
    weight = plan.pass == ConvolutionPlan::Pass::weight
                 ? at::empty(weight.sizes(), weight.options())
                 : weight.contiguous();
  }
  return {with_columns_as_channels(in, each), with_columns_as_channels(weight, each),
          with_one_column(plan.window), shared};
}

void deliver_weight(const Patches& patches, const at::Tensor& weight) {
  if (patches.weight_is_shared) return;
  const at::Tensor target = weight.movedim(1, -1);
  target.copy_(patches.weight.movedim(1, -1).view(target.sizes()));
}

}  // namespace ocl::native
