// Convolutions and their gradients as sums of products with affine indices.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/conv.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/conv/depthwise.h"
#include "engine/conv/phase.h"
#include "engine/conv/plan.h"
#include "engine/conv/source.h"
#include "engine/dtype.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl {

namespace {

Reach reach_of_windows(const ConvTensor& out, const ConvWindow& w) {
  Reach reach;
  for (int axis = 0; axis < kAxes; ++axis) {
    reach.low[axis] = -w.pad[axis];
    reach.high[axis] = (out.size[2 + axis] - 1) * w.stride[axis] - w.pad[axis] +
                       (w.kernel[axis] - 1) * w.dilation[axis];
  }
  return reach;
}

/// (channel, window) in the order in which the elements of `source` lie.
template <class AddChannels, class AddAxis>
void add_in_order(const Source& source, const AddChannels& channels, const AddAxis& axis) {
  if (!source.channels_last) channels();
  for (int i = 0; i < kAxes; ++i) axis(i);
  if (source.channels_last) channels();
}

void set_origin(ConvPlan& plan, const Source& source, const Reach& reach) {
  int64_t at = 0;
  for (int axis = 0; axis < kAxes; ++axis) at += reach.low[axis] * source.stride[2 + axis];
  plan.a = source.data + at * static_cast<int64_t>(c10::elementSize(plan.compute));
}

ConvPlan make_plan(const ConvTensor& tensor, int64_t groups) {
  const c10::DeviceIndex index = current_device();
  Queue& queue = current_queue(index);
  ConvPlan plan{queue.device(), queue};
  plan.dtype = plan.b_dtype = tensor.dtype;
  plan.compute = computed_in(tensor.dtype);
  plan.groups = groups;
  return plan;
}

void run(const ConvPlan& plan, ConvAccumulator* accumulator = nullptr) {
  const bool whole = accumulator == nullptr || (accumulator->first && accumulator->last);
  if (plan.device.is_cpu()) {
    if (whole && (run_conv_narrow(plan) || run_conv_gathered(plan))) return;
    run_conv_panels(plan, accumulator);
  } else {
    if (whole && (run_conv_few_columns(plan) || run_conv_direct(plan))) return;
    run_conv_tiled(plan, accumulator);
  }
}

char* advance(char* data, c10::ScalarType dtype, int64_t elements) {
  return data + elements * static_cast<int64_t>(c10::elementSize(dtype));
}

/// Whether vectors are to run along positions, which few columns per group leave registers for.
bool takes_planes(const ConvPlan& plan, int64_t columns, int64_t line, int64_t stride) {
  return plan.device.is_cpu() && columns > 1 && columns <= kPlaneColumns && line >= kPlaneLength &&
         stride <= 2;
}

bool is_depthwise(const ConvTensor& tensor, const ConvTensor& weight, int64_t groups) {
  return groups > 1 && weight.size[0] == groups && weight.size[1] == 1 && tensor.stride[1] == 1;
}

}  // namespace

ConvTensor::ConvTensor(const at::Tensor& tensor, int axes)
    : data(static_cast<char*>(tensor.data_ptr())), dtype(tensor.scalar_type()) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const int64_t to = d < 2 ? d : d + (kAxes - axes);
    size[static_cast<size_t>(to)] = tensor.size(d);
    stride[static_cast<size_t>(to)] = tensor.stride(d);
  }
}

void convolution(const ConvTensor& out, const ConvTensor& in, const ConvTensor& given_weight,
                 const void* bias, const ConvWindow& w) {
  if (depthwise_convolution(out, in, given_weight, bias, w)) return;
  if (run_conv_product(out, in, given_weight, bias, w, false)) return;
  if (run_conv_winograd(out, in, given_weight, bias, w, false)) return;
  const Reach reach = reach_of_windows(out, w);
  ConvPlan plan = make_plan(in, w.groups);
  c10::DataPtr weight_copy;
  const ConvTensor weight = plan.device.is_cpu() && is_depthwise(in, given_weight, w.groups)
                                ? weight_channels_last(given_weight, weight_copy)
                                : given_weight;
  plan.b_dtype = weight.dtype;
  const bool planes =
      takes_planes(plan, weight.size[0] / w.groups, out.size[2 + kAxes - 1], w.stride[kAxes - 1]);
  const int64_t step = images_at_a_time(plan.device, in.size[0], copy_bytes(in, reach));
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(in, image, images, reach, planes);
    const auto& a = source.stride;
    const int64_t channels = weight.size[1];
    plan.rows = plan.k = {};
    plan.rows.add(images, a[0], out.stride[0]);
    for (int i = 0; i < kAxes; ++i) {
      plan.rows.add(out.size[2 + i], w.stride[i] * a[2 + i], out.stride[2 + i]);
    }
    add_in_order(
        source, [&] { plan.k.add(channels, a[1], weight.stride[1]); },
        [&](int i) { plan.k.add(w.kernel[i], w.dilation[i] * a[2 + i], weight.stride[2 + i]); });
    plan.columns = weight.size[0] / w.groups;
    plan.column_b = weight.stride[0];
    plan.column_out = out.stride[1];
    plan.a_group = channels * a[1];
    plan.b_group = plan.columns * weight.stride[0];
    plan.out_group = plan.columns * out.stride[1];
    set_origin(plan, source, reach);
    plan.b = weight.data;
    plan.bias = static_cast<const char*>(bias);
    plan.out = advance(out.data, out.dtype, image * out.stride[0]);
    run(plan);
  }
}

void convolution_input(const ConvTensor& in, const ConvTensor& out, const ConvTensor& given_weight,
                       const void* bias, const ConvWindow& w) {
  if (depthwise_input(in, out, given_weight, bias, w)) return;
  if (run_conv_product(in, out, given_weight, bias, w, true)) return;
  if (run_conv_winograd(in, out, given_weight, bias, w, true)) return;
  if (run_conv_side_by_side(in, out, given_weight, bias, w)) return;
  // Per axis: the window's parts, and the coordinates of `out` they touch.
  std::array<std::vector<Phase>, kAxes> phases;
  Reach reach;
  for (int axis = 0; axis < kAxes; ++axis) {
    for (int64_t phase = 0; phase < std::min(w.stride[axis], in.size[2 + axis]); ++phase) {
      const Phase p = phase_of(w, axis, phase, in.size[2 + axis]);
      phases[axis].push_back(p);
      if (p.count == 0) continue;
      reach.low[axis] = std::min(reach.low[axis], p.origin - (p.count - 1) * p.back);
      reach.high[axis] = std::max(reach.high[axis], p.origin + p.elements - 1);
    }
  }
  ConvPlan plan = make_plan(out, w.groups);
  c10::DataPtr weight_copy;
  const ConvTensor weight = plan.device.is_cpu() && is_depthwise(out, given_weight, w.groups)
                                ? weight_channels_last(given_weight, weight_copy)
                                : given_weight;
  plan.b_dtype = weight.dtype;
  const bool planes = takes_planes(plan, weight.size[1], in.size[2 + kAxes - 1], 1);
  const int64_t step = images_at_a_time(plan.device, in.size[0], copy_bytes(out, reach));
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(out, image, images, reach, planes);
    const auto& a = source.stride;
    const int64_t channels = weight.size[0] / w.groups;
    plan.columns = weight.size[1];
    plan.column_b = weight.stride[1];
    plan.column_out = in.stride[1];
    plan.a_group = channels * a[1];
    plan.b_group = channels * weight.stride[0];
    plan.out_group = plan.columns * in.stride[1];
    plan.bias = static_cast<const char*>(bias);
    const int64_t parts = static_cast<int64_t>(phases[0].size() * phases[1].size()) *
                          static_cast<int64_t>(phases[2].size());
    for (int64_t part = 0; part < parts; ++part) {
      std::array<int64_t, kAxes> phase{};
      int64_t rest = part;
      for (int axis = kAxes - 1; axis >= 0; --axis) {
        const auto count = static_cast<int64_t>(phases[axis].size());
        phase[axis] = rest % count;
        rest /= count;
      }
      const auto of = [&](int axis) -> const Phase& { return phases[axis][phase[axis]]; };
      plan.rows = plan.k = {};
      plan.rows.add(images, a[0], in.stride[0]);
      int64_t a_first = 0, b_first = 0, out_first = image * in.stride[0], taps = 1;
      for (int i = 0; i < kAxes; ++i) {
        plan.rows.add(of(i).elements, a[2 + i], w.stride[i] * in.stride[2 + i]);
        a_first += of(i).origin * a[2 + i];
        b_first += of(i).first * weight.stride[2 + i];
        out_first += phase[i] * in.stride[2 + i];
        taps *= of(i).count;
      }
      if (taps == 0) continue;
      add_in_order(
          source, [&] { plan.k.add(channels, a[1], weight.stride[0]); },
          [&](int i) {
            plan.k.add(of(i).count, -of(i).back * a[2 + i], of(i).step * weight.stride[2 + i]);
          });
      plan.a = source.data + a_first * static_cast<int64_t>(c10::elementSize(plan.compute));
      plan.b = advance(weight.data, weight.dtype, b_first);
      plan.out = advance(in.data, in.dtype, out_first);
      run(plan);
    }
  }
}

bool covers_all(const ConvWindow& w) {
  for (int axis = 0; axis < kAxes; ++axis) {
    for (int64_t phase = 0; phase < w.stride[axis]; ++phase) {
      if (phase_of(w, axis, phase, phase + 1).count == 0) return false;
    }
  }
  return true;
}

void convolution_weight(const ConvTensor& weight, const ConvTensor& in, const ConvTensor& out,
                        const ConvWindow& w) {
  if (run_conv_weight_product(weight, in, out, w)) return;
  const Reach reach = reach_of_windows(out, w);
  ConvPlan plan = make_plan(in, w.groups);
  const int64_t packed = out.size[1] * out.size[2] * out.size[3] * out.size[4] *
                         static_cast<int64_t>(c10::elementSize(plan.compute));
  // What takes few columns can't go on with a sum.
  const bool narrow = plan.device.is_cpu() && weight.size[0] / w.groups <= kNarrowColumns;
  const int64_t step =
      narrow ? in.size[0]
             : images_at_a_time(plan.device, in.size[0], copy_bytes(in, reach) + packed);
  ConvAccumulator accumulator;
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(in, image, images, reach);
    const auto& a = source.stride;
    const int64_t channels = weight.size[1];
    plan.rows = plan.k = {};
    add_in_order(
        source, [&] { plan.rows.add(channels, a[1], weight.stride[1]); },
        [&](int i) { plan.rows.add(w.kernel[i], w.dilation[i] * a[2 + i], weight.stride[2 + i]); });
    plan.k.add(images, a[0], out.stride[0]);
    for (int i = 0; i < kAxes; ++i) {
      plan.k.add(out.size[2 + i], w.stride[i] * a[2 + i], out.stride[2 + i]);
    }
    plan.columns = weight.size[0] / w.groups;
    plan.column_b = out.stride[1];
    plan.column_out = weight.stride[0];
    plan.a_group = channels * a[1];
    plan.b_group = plan.columns * out.stride[1];
    plan.out_group = plan.columns * weight.stride[0];
    set_origin(plan, source, reach);
    plan.b = advance(out.data, out.dtype, image * out.stride[0]);
    plan.out = weight.data;
    accumulator.first = image == 0;
    accumulator.last = image + images == in.size[0];
    run(plan, &accumulator);
  }
}

}  // namespace ocl
