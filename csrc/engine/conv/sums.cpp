// Convolutions as sums of products with affine indices. Each sum's kernel is chosen for itself.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/conv/contraction.h"
#include "engine/conv/description.h"
#include "engine/conv/phase.h"
#include "engine/conv/source.h"
#include "engine/dtype.h"

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

std::string describe_sum(const Contraction& c) {
  return "convolution sum " + std::to_string(c.groups) + "x" + std::to_string(c.rows.elements()) +
         "x" + std::to_string(c.columns) + "x" + std::to_string(c.k.elements()) + " " +
         tag(c.dtype);
}

void run_sum(Contraction& sum) {
  const DispatchBlock block(engine);
  run_first(engine, all_sums(), sums_of(sum.device), sum, describe_sum);
}

Contraction make_contraction(const Description& description) {
  Contraction contraction{description.device, description.queue};
  contraction.dtype = contraction.b_dtype = description.in.dtype;
  contraction.compute = computed_in(description.in.dtype);
  contraction.groups = description.window.groups;
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

void sum_forward(Description& description) {
  const Operand &in = description.in, &out = description.out;
  const Window& w = description.window;
  const MatrixEpilogue* const epilogue = std::exchange(description.epilogue, nullptr);
  const bool last = epilogue != nullptr && epilogue->channels_last;
  const int64_t plane = out.size[2] * out.size[3] * out.size[4];
  // Channels would be innermost in planes of one element, too.
  const bool offered = epilogue != nullptr && (last || plane > 1);
  const Reach reach = reach_of_windows(out, w);
  Contraction sum = make_contraction(description);
  c10::DataPtr weight_copy;
  const Operand weight = sum.device.is_cpu() && is_depthwise(in, description.weight, w.groups)
                             ? weight_channels_last(description.weight, weight_copy)
                             : description.weight;
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
    sum.bias = static_cast<const char*>(description.bias_data());
    sum.out = advance(out.data, out.dtype, image * out.stride[0]);
    sum.epilogue = offered ? epilogue : nullptr;
    sum.position0 = image * plane;
    sum.plane = last ? 0 : plane;
    sum.all = out.size[1];
    run_sum(sum);
    const bool taken = offered && sum.epilogue == nullptr;
    if (epilogue == nullptr || taken) continue;
    const int64_t rows = last ? plane : out.size[1];
    apply(*epilogue, sum.out, out.dtype, image * rows, images * rows, last ? out.size[1] : plane);
  }
}

/// The coordinates of the output that the gradient of its input touches.
Reach reach_of_phases(const Operand& in, const Window& w) {
  Reach reach;
  for_each_phase(w, in, [&](const PhasePlace& at) {
    for (size_t axis = 0; axis < kAxes; ++axis) {
      const Phase& p = at.along[axis];
      reach.low[axis] = std::min(reach.low[axis], p.origin - (p.count - 1) * p.back);
      reach.high[axis] = std::max(reach.high[axis], p.origin + p.elements - 1);
    }
  });
  return reach;
}

void sum_input_gradient(const Description& description) {
  const Operand &in = description.in, &out = description.out;
  const Window& w = description.window;
  const Reach reach = reach_of_phases(in, w);
  Contraction sum = make_contraction(description);
  c10::DataPtr weight_copy;
  const Operand weight = sum.device.is_cpu() && is_depthwise(out, description.weight, w.groups)
                             ? weight_channels_last(description.weight, weight_copy)
                             : description.weight;
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
    sum.bias = static_cast<const char*>(description.bias_data());
    for_each_phase(w, in, [&](const PhasePlace& at) {
      sum.rows = sum.k = {};
      sum.rows.add(images, a[0], in.stride[0]);
      int64_t a_first = 0, b_first = 0, out_first = image * in.stride[0];
      for (int i = 0; i < kAxes; ++i) {
        const Phase& phase = at.along[i];
        sum.rows.add(phase.elements, a[2 + i], w.stride[i] * in.stride[2 + i]);
        a_first += phase.origin * a[2 + i];
        b_first += phase.first * weight.stride[2 + i];
        out_first += at.place[i] * in.stride[2 + i];
      }
      add_in_order(
          source, [&] { sum.k.add(channels, a[1], weight.stride[0]); },
          [&](int i) {
            const Phase& phase = at.along[i];
            sum.k.add(phase.count, -phase.back * a[2 + i], phase.step * weight.stride[2 + i]);
          });
      sum.a = source.data + a_first * static_cast<int64_t>(c10::elementSize(sum.compute));
      sum.b = advance(weight.data, weight.dtype, b_first);
      sum.out = advance(in.data, in.dtype, out_first);
      run_sum(sum);
    });
  }
}

void sum_weight_gradient(const Description& description, const Operand& weight) {
  const Operand &in = description.in, &out = description.out;
  const Window& w = description.window;
  const Reach reach = reach_of_windows(out, w);
  Contraction sum = make_contraction(description);
  const int64_t packed = out.size[1] * out.size[2] * out.size[3] * out.size[4] *
                         static_cast<int64_t>(c10::elementSize(sum.compute));
  // Kernels for few columns can't go on with a sum.
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
    run_sum(sum);
  }
}

void sum_weight_gradient(const Description& description) {
  const Operand& weight = description.weight;
  // Where channels are groups and lie innermost, vectors run along them, if they do in the weight.
  if (description.window.groups == 1 || weight.size[0] != description.window.groups ||
      description.in.stride[1] != 1 || description.out.stride[1] != 1) {
    sum_weight_gradient(description, weight);
    return;
  }
  const at::Tensor channels_last = at::empty_like(weight.tensor.movedim(0, -1)).movedim(-1, 0);
  sum_weight_gradient(description, Operand(channels_last));
  weight.tensor.copy_(channels_last);
}

}  // namespace

const Implementation sums{"sums", [](const Description&) -> const char* { return nullptr; },
                          [](Description& description) {
                            if (description.pass == Pass::forward) return sum_forward(description);
                            if (description.pass == Pass::input_gradient)
                              return sum_input_gradient(description);
                            sum_weight_gradient(description);
                          }};

}  // namespace ocl::conv
