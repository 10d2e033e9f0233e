// Which implementation takes a convolution, and convolutions as sums of products with affine
// indices.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/conv.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/conv/phase.h"
#include "engine/conv/plan.h"
#include "engine/conv/source.h"
#include "engine/dtype.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::conv {

namespace {

Reach reach_of_windows(const Operand& out, const Window& w) {
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

void set_origin(Contraction& sum, const Source& source, const Reach& reach) {
  int64_t at = 0;
  for (int axis = 0; axis < kAxes; ++axis) at += reach.low[axis] * source.stride[2 + axis];
  sum.a = source.data + at * static_cast<int64_t>(c10::elementSize(sum.compute));
}

// In order of preference; before them the one that the user forces, of either kind of device.
constexpr const Whole* kWholeOnCpu[] = {
    &depthwise_lanes, &depthwise_transposed, &depthwise_planes, &product, &winograd, &side_by_side};
constexpr const Whole* kWholeOnGpu[] = {&depthwise_direct, &product};
constexpr const Whole* kWhole[] = {
    &depthwise_lanes, &depthwise_transposed, &depthwise_planes, &depthwise_direct, &product,
    &winograd,        &side_by_side};
constexpr const Sum* kSumOnCpu[] = {&narrow_groups, &narrow_positions, &narrow_k, &im2col, &packed};
constexpr const Sum* kSumOnGpu[] = {&few_columns, &direct, &tiled, &packed};
constexpr const Sum* kSums[] = {&narrow_groups, &narrow_positions, &narrow_k, &im2col,
                                &few_columns,   &direct,           &tiled,    &packed};

Engine engine{"conv", kWhole, kSums};

std::string describe_sizes(const Operand& operand) {
  std::string text;
  for (const int64_t size : operand.size) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

std::string describe(const Plan& plan) {
  constexpr const char* kNames[] = {"forward", "input gradient", "weight gradient"};
  return std::string("conv ") + kNames[static_cast<size_t>(plan.pass)] + " " +
         describe_sizes(plan.in) + " with " + describe_sizes(plan.weight) + " " +
         tag(plan.in.dtype);
}

std::string describe_sum(const Contraction& c) {
  return "conv sum " + std::to_string(c.groups) + "x" + std::to_string(c.rows.elements()) + "x" +
         std::to_string(c.columns) + "x" + std::to_string(c.k.elements()) + " " + tag(c.dtype);
}

Plan plan_of(Pass pass, const Operand& in, const Operand& out, const Operand& weight,
             const void* bias, const Window& window) {
  Queue& queue = current_queue(current_device());
  return {queue.device(), queue, pass, in, out, weight, bias, window};
}

/// Runs an implementation for whole convolutions. False if none takes the plan, or the user forces
/// one for sums.
bool run_whole(const Plan& plan) {
  if (forced_among(engine, kSums) != nullptr) return false;
  return plan.device.is_cpu() ? run_first(engine, kWhole, kWholeOnCpu, plan, describe)
                              : run_first(engine, kWhole, kWholeOnGpu, plan, describe);
}

void run(const Contraction& contraction) {
  if (contraction.device.is_cpu()) {
    run_first(engine, kSums, kSumOnCpu, contraction, describe_sum);
  } else {
    run_first(engine, kSums, kSumOnGpu, contraction, describe_sum);
  }
}

Contraction make_contraction(const Plan& plan) {
  Contraction contraction{plan.device, plan.queue};
  contraction.dtype = contraction.b_dtype = plan.in.dtype;
  contraction.compute = computed_in(plan.in.dtype);
  contraction.groups = plan.window.groups;
  return contraction;
}

/// Whether vectors are to run along positions, which few columns per group leave registers for.
bool takes_planes(const Contraction& sum, int64_t columns, int64_t line, int64_t stride) {
  return sum.device.is_cpu() && columns > 1 && columns <= kPlaneColumns && line >= kPlaneLength &&
         stride <= 2;
}

bool is_depthwise(const Operand& tensor, const Operand& weight, int64_t groups) {
  return groups > 1 && weight.size[0] == groups && weight.size[1] == 1 && tensor.stride[1] == 1;
}

}  // namespace

Operand::Operand(const at::Tensor& tensor, int axes)
    : data(static_cast<char*>(tensor.data_ptr())), dtype(tensor.scalar_type()) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const int64_t to = d < 2 ? d : d + (kAxes - axes);
    size[static_cast<size_t>(to)] = tensor.size(d);
    stride[static_cast<size_t>(to)] = tensor.stride(d);
  }
}

void forward(const Operand& out, const Operand& in, const Operand& given_weight, const void* bias,
             const Window& w, const Results* results) {
  const bool last = results != nullptr && results->channels_last;
  const int64_t plane = out.size[2] * out.size[3] * out.size[4];
  bool handed_over = false;
  /// Of images [first, first + count), whose kernel had no place for a text.
  const auto finish = [&](int64_t first, int64_t count) {
    if (results == nullptr || handed_over) return;
    const int64_t rows = last ? plane : out.size[1];
    hand_over(*results, advance(out.data, out.dtype, first * out.stride[0]), out.dtype,
              first * rows, count * rows, last ? out.size[1] : plane);
  };
  Plan whole = plan_of(Pass::forward, in, out, given_weight, bias, w);
  whole.results = results;
  whole.handed_over = &handed_over;
  if (run_whole(whole)) {
    finish(0, in.size[0]);
    return;
  }
  const Reach reach = reach_of_windows(out, w);
  Contraction sum = make_contraction(whole);
  c10::DataPtr weight_copy;
  const Operand weight = sum.device.is_cpu() && is_depthwise(in, given_weight, w.groups)
                             ? weight_channels_last(given_weight, weight_copy)
                             : given_weight;
  sum.b_dtype = weight.dtype;
  const bool planes =
      takes_planes(sum, weight.size[0] / w.groups, out.size[2 + kAxes - 1], w.stride[kAxes - 1]);
  const int64_t step = images_at_a_time(sum.device, in.size[0], copy_bytes(in, reach));
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(in, image, images, reach, planes);
    const auto& a = source.stride;
    const int64_t channels = weight.size[1];
    sum.rows = sum.k = {};
    sum.rows.add(images, a[0], out.stride[0]);
    for (int i = 0; i < kAxes; ++i) {
      sum.rows.add(out.size[2 + i], w.stride[i] * a[2 + i], out.stride[2 + i]);
    }
    add_in_order(
        source, [&] { sum.k.add(channels, a[1], weight.stride[1]); },
        [&](int i) { sum.k.add(w.kernel[i], w.dilation[i] * a[2 + i], weight.stride[2 + i]); });
    sum.columns = weight.size[0] / w.groups;
    sum.column_b = weight.stride[0];
    sum.column_out = out.stride[1];
    sum.a_group = channels * a[1];
    sum.b_group = sum.columns * weight.stride[0];
    sum.out_group = sum.columns * out.stride[1];
    set_origin(sum, source, reach);
    sum.b = weight.data;
    sum.bias = static_cast<const char*>(bias);
    sum.out = advance(out.data, out.dtype, image * out.stride[0]);
    // Of planes of one element channels would be innermost, too.
    sum.results = last || plane > 1 ? results : nullptr;
    sum.handed_over = &handed_over;
    sum.position0 = image * plane;
    sum.plane = last ? 0 : plane;
    sum.all = out.size[1];
    handed_over = false;
    run(sum);
    finish(image, images);
  }
}

void input_gradient(const Operand& in, const Operand& out, const Operand& given_weight,
                    const void* bias, const Window& w) {
  const Plan whole = plan_of(Pass::input_gradient, in, out, given_weight, bias, w);
  if (run_whole(whole)) return;
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
  Contraction sum = make_contraction(whole);
  c10::DataPtr weight_copy;
  const Operand weight = sum.device.is_cpu() && is_depthwise(out, given_weight, w.groups)
                             ? weight_channels_last(given_weight, weight_copy)
                             : given_weight;
  sum.b_dtype = weight.dtype;
  const bool planes = takes_planes(sum, weight.size[1], in.size[2 + kAxes - 1], 1);
  const int64_t step = images_at_a_time(sum.device, in.size[0], copy_bytes(out, reach));
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(out, image, images, reach, planes);
    const auto& a = source.stride;
    const int64_t channels = weight.size[0] / w.groups;
    sum.columns = weight.size[1];
    sum.column_b = weight.stride[1];
    sum.column_out = in.stride[1];
    sum.a_group = channels * a[1];
    sum.b_group = channels * weight.stride[0];
    sum.out_group = sum.columns * in.stride[1];
    sum.bias = static_cast<const char*>(bias);
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
      sum.rows = sum.k = {};
      sum.rows.add(images, a[0], in.stride[0]);
      int64_t a_first = 0, b_first = 0, out_first = image * in.stride[0], taps = 1;
      for (int i = 0; i < kAxes; ++i) {
        sum.rows.add(of(i).elements, a[2 + i], w.stride[i] * in.stride[2 + i]);
        a_first += of(i).origin * a[2 + i];
        b_first += of(i).first * weight.stride[2 + i];
        out_first += phase[i] * in.stride[2 + i];
        taps *= of(i).count;
      }
      if (taps == 0) continue;
      add_in_order(
          source, [&] { sum.k.add(channels, a[1], weight.stride[0]); },
          [&](int i) {
            sum.k.add(of(i).count, -of(i).back * a[2 + i], of(i).step * weight.stride[2 + i]);
          });
      sum.a = source.data + a_first * static_cast<int64_t>(c10::elementSize(sum.compute));
      sum.b = advance(weight.data, weight.dtype, b_first);
      sum.out = advance(in.data, in.dtype, out_first);
      run(sum);
    }
  }
}

bool covers_all(const Window& w) {
  for (int axis = 0; axis < kAxes; ++axis) {
    for (int64_t phase = 0; phase < w.stride[axis]; ++phase) {
      if (phase_of(w, axis, phase, phase + 1).count == 0) return false;
    }
  }
  return true;
}

void weight_gradient(const Operand& weight, const Operand& in, const Operand& out,
                     const Window& w) {
  const Plan whole = plan_of(Pass::weight_gradient, in, out, weight, nullptr, w);
  if (run_whole(whole)) return;
  const Reach reach = reach_of_windows(out, w);
  Contraction sum = make_contraction(whole);
  const int64_t packed = out.size[1] * out.size[2] * out.size[3] * out.size[4] *
                         static_cast<int64_t>(c10::elementSize(sum.compute));
  // What takes few columns can't go on with a sum.
  const bool narrow = sum.device.is_cpu() && weight.size[0] / w.groups <= kNarrowColumns;
  const int64_t step =
      narrow ? in.size[0]
             : images_at_a_time(sum.device, in.size[0], copy_bytes(in, reach) + packed);
  Accumulator accumulator;
  sum.accumulator = &accumulator;
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(in, image, images, reach);
    const auto& a = source.stride;
    const int64_t channels = weight.size[1];
    sum.rows = sum.k = {};
    add_in_order(
        source, [&] { sum.rows.add(channels, a[1], weight.stride[1]); },
        [&](int i) { sum.rows.add(w.kernel[i], w.dilation[i] * a[2 + i], weight.stride[2 + i]); });
    sum.k.add(images, a[0], out.stride[0]);
    for (int i = 0; i < kAxes; ++i) {
      sum.k.add(out.size[2 + i], w.stride[i] * a[2 + i], out.stride[2 + i]);
    }
    sum.columns = weight.size[0] / w.groups;
    sum.column_b = out.stride[1];
    sum.column_out = weight.stride[0];
    sum.a_group = channels * a[1];
    sum.b_group = sum.columns * out.stride[1];
    sum.out_group = sum.columns * weight.stride[0];
    set_origin(sum, source, reach);
    sum.b = advance(out.data, out.dtype, image * out.stride[0]);
    sum.out = weight.data;
    accumulator.first = image == 0;
    accumulator.last = image + images == in.size[0];
    run(sum);
  }
}

bool weight_gradient_wants_channels_last(const Operand& weight, const Operand& in,
                                         const Operand& out, const Window& w) {
  if (w.groups == 1 || weight.size[0] != w.groups) return false;
  if (in.stride[1] != 1 || out.stride[1] != 1) return false;
  const Plan plan = plan_of(Pass::weight_gradient, in, out, weight, nullptr, w);
  const auto takes = [&](const Whole* whole) { return whole->refuse(plan) == nullptr; };
  return plan.device.is_cpu() ? std::ranges::none_of(kWholeOnCpu, takes)
                              : std::ranges::none_of(kWholeOnGpu, takes);
}

}  // namespace ocl::conv
