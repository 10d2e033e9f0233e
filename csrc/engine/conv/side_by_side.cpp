// Transposed convolutions on CPUs whose windows lie side by side (kernels/conv/panels.cl).
#include <algorithm>

#include "engine/conv/plan.h"
#include "engine/conv/source.h"
#include "runtime/stream.h"

namespace ocl {

namespace {

bool lie_side_by_side(const ConvTensor& in, const ConvTensor& out, const ConvWindow& w) {
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (w.kernel[axis] != w.stride[axis] || w.pad[axis] != 0) return false;
    if (w.kernel[axis] > 1 && w.dilation[axis] != 1) return false;
    if (in.size[2 + axis] != out.size[2 + axis] * w.stride[axis]) return false;
  }
  return w.groups == 1;
}

}  // namespace

bool run_conv_side_by_side(const ConvTensor& in, const ConvTensor& out, const ConvTensor& weight,
                           const void* bias, const ConvWindow& w) {
  const int64_t channels = weight.size[1], taps = w.kernel[2];
  if (taps == 1 || !lie_side_by_side(in, out, w)) return false;
  // (element of a line, channel) is one dimension of both.
  if (in.stride[1] != 1 || in.stride[4] != channels) return false;
  if (weight.stride[4] != channels * weight.stride[1]) return false;
  Queue& queue = current_queue(current_device());
  if (!queue.device().is_cpu()) return false;
  ConvPlan plan{queue.device(), queue};
  plan.dtype = plan.b_dtype = out.dtype;
  plan.compute = computed_in(out.dtype);
  plan.columns = taps * channels;
  plan.column_b = weight.stride[1];
  plan.column_out = 1;
  // The lines of a window are groups that read the same.
  plan.groups = w.kernel[1];
  plan.b_group = weight.stride[3];
  plan.out_group = in.stride[3];
  plan.bias_channels = channels;
  if (channels % conv_panel_columns(plan) != 0)
    return false;  // a panel's bias would be in two parts
  plan.bias = static_cast<const char*>(bias);
  const Reach reach;  // what it reads is not padded
  const auto size = static_cast<int64_t>(c10::elementSize(out.dtype));
  const int64_t images = out.size[0];
  const int64_t step = images_at_a_time(plan.device, images, copy_bytes(out, reach));
  for (int64_t image = 0; image < images; image += step) {
    const int64_t count = std::min(step, images - image);
    const Source source = source_of(out, image, count, reach);
    plan.rows = plan.k = {};
    plan.rows.add(count, source.stride[0], in.stride[0]);
    for (size_t d = 2; d < 5; ++d) {
      plan.rows.add(out.size[d], source.stride[d], w.stride[d - 2] * in.stride[d]);
    }
    plan.k.add(out.size[1], source.stride[1], weight.stride[0]);
    plan.a = source.data;
    for (int64_t plane = 0; plane < w.kernel[0]; ++plane) {
      plan.b = weight.data + plane * weight.stride[2] * size;
      plan.out = in.data + (image * in.stride[0] + plane * in.stride[2]) * size;
      run_conv_panels(plan, nullptr);
    }
  }
  return true;
}

}  // namespace ocl
