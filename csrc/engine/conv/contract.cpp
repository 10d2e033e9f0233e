// Convolutions as contractions. Each one's kernel is chosen for itself.
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

void set_origin(Contraction& c, const Source& source, const Reach& reach) {
  int64_t at = 0;
  for (int axis = 0; axis < kAxes; ++axis) at += reach.low[axis] * source.stride[2 + axis];
  c.a = source.data + at * static_cast<int64_t>(c10::elementSize(c.compute));
}

Contraction make_contraction(const Description& description) {
  Contraction contraction{description.device, description.queue};
  contraction.dtype = contraction.b_dtype = description.in.dtype;
  contraction.compute = computed_in(description.in.dtype);
  contraction.groups = description.window.groups;
  return contraction;
}

/// Whether vectors are to run along positions, which few columns per group leave registers for.
bool takes_planes(const Contraction& c, int64_t columns, int64_t line, int64_t stride) {
  return c.device.is_cpu() && columns > 1 && columns <= kPlaneColumns && line >= kPlaneLength &&
         stride <= 2;
}

bool is_depthwise(const Operand& tensor, const Operand& weight, int64_t groups) {
  return groups > 1 && weight.size[0] == groups && weight.size[1] == 1 && tensor.stride[1] == 1;
}

/// The weight, which a depthwise convolution of `image` reads channels last on CPUs: of a copy
/// then.
Operand weight_of(Contraction& c, const Description& description, const Operand& image,
                  c10::DataPtr& copy) {
  const Operand& weight = description.weight;
  const bool copies = c.device.is_cpu() && is_depthwise(image, weight, description.window.groups);
  const Operand read = copies ? weight_channels_last(weight, copy) : weight;
  c.b_dtype = read.dtype;
  return read;
}

void contract_forward(Description& description) {
  const Operand &in = description.in, &out = description.out;
  const Window& w = description.window;
  const MatrixEpilogue* const epilogue = std::exchange(description.epilogue, nullptr);
  const bool last = epilogue != nullptr && epilogue->channels_last;
  const int64_t plane = out.size[2] * out.size[3] * out.size[4];
  // Channels would be innermost in planes of one element, too.
  const bool offered = epilogue != nullptr && (last || plane > 1);
  const Reach reach = reach_of_windows(out, w);
  Contraction c = make_contraction(description);
  c10::DataPtr weight_copy;
  const Operand weight = weight_of(c, description, in, weight_copy);
  const bool planes =
      takes_planes(c, weight.size[0] / w.groups, out.size[2 + kAxes - 1], w.stride[kAxes - 1]);
  const int64_t step = images_at_a_time(c.device, in.size[0], copy_bytes(in, reach));
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(in, image, images, reach, planes);
    const auto& a = source.stride;
    const int64_t channels = weight.size[1];
    c.rows = c.k = {};
    c.rows.add(images, a[0], out.stride[0]);
    for (int i = 0; i < kAxes; ++i) {
      c.rows.add(out.size[2 + i], w.stride[i] * a[2 + i], out.stride[2 + i]);
    }
    add_in_order(
        source, [&] { c.k.add(channels, a[1], weight.stride[1]); },
        [&](int i) { c.k.add(w.kernel[i], w.dilation[i] * a[2 + i], weight.stride[2 + i]); });
    c.columns = weight.size[0] / w.groups;
    c.column_b = weight.stride[0];
    c.column_out = out.stride[1];
    c.a_group = channels * a[1];
    c.b_group = c.columns * weight.stride[0];
    c.out_group = c.columns * out.stride[1];
    set_origin(c, source, reach);
    c.b = weight.data;
    c.bias = static_cast<const char*>(description.bias_data());
    c.out = advance(out.data, out.dtype, image * out.stride[0]);
    c.epilogue = offered ? epilogue : nullptr;
    c.position0 = image * plane;
    c.plane = last ? 0 : plane;
    c.all = out.size[1];
    run_contraction(c);
    const bool taken = offered && c.epilogue == nullptr;
    if (epilogue == nullptr || taken) continue;
    const int64_t rows = last ? plane : out.size[1];
    apply(*epilogue, c.out, out.dtype, image * rows, images * rows, last ? out.size[1] : plane);
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

void contract_input_gradient(const Description& description) {
  const Operand &in = description.in, &out = description.out;
  const Window& w = description.window;
  const Reach reach = reach_of_phases(in, w);
  Contraction c = make_contraction(description);
  c10::DataPtr weight_copy;
  const Operand weight = weight_of(c, description, out, weight_copy);
  const bool planes = takes_planes(c, weight.size[1], in.size[2 + kAxes - 1], 1);
  const int64_t step = images_at_a_time(c.device, in.size[0], copy_bytes(out, reach));
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(out, image, images, reach, planes);
    const auto& a = source.stride;
    const int64_t channels = weight.size[0] / w.groups;
    c.columns = weight.size[1];
    c.column_b = weight.stride[1];
    c.column_out = in.stride[1];
    c.a_group = channels * a[1];
    c.b_group = channels * weight.stride[0];
    c.out_group = c.columns * in.stride[1];
    c.bias = static_cast<const char*>(description.bias_data());
    for_each_phase(w, in, [&](const PhasePlace& at) {
      c.rows = c.k = {};
      c.rows.add(images, a[0], in.stride[0]);
      int64_t a_first = 0, b_first = 0, out_first = image * in.stride[0];
      for (int i = 0; i < kAxes; ++i) {
        const Phase& phase = at.along[i];
        c.rows.add(phase.elements, a[2 + i], w.stride[i] * in.stride[2 + i]);
        a_first += phase.origin * a[2 + i];
        b_first += phase.first * weight.stride[2 + i];
        out_first += at.place[i] * in.stride[2 + i];
      }
      add_in_order(
          source, [&] { c.k.add(channels, a[1], weight.stride[0]); },
          [&](int i) {
            const Phase& phase = at.along[i];
            c.k.add(phase.count, -phase.back * a[2 + i], phase.step * weight.stride[2 + i]);
          });
      c.a = source.data + a_first * static_cast<int64_t>(c10::elementSize(c.compute));
      c.b = advance(weight.data, weight.dtype, b_first);
      c.out = advance(in.data, in.dtype, out_first);
      run_contraction(c);
    });
  }
}

void contract_weight_gradient(const Description& description, const Operand& weight) {
  const Operand &in = description.in, &out = description.out;
  const Window& w = description.window;
  const Reach reach = reach_of_windows(out, w);
  Contraction c = make_contraction(description);
  const int64_t packed = out.size[1] * out.size[2] * out.size[3] * out.size[4] *
                         static_cast<int64_t>(c10::elementSize(c.compute));
  // Kernels for few columns can't go on with a sum.
  const bool narrow = c.device.is_cpu() && weight.size[0] / w.groups <= kNarrowColumns;
  const int64_t step =
      narrow ? in.size[0] : images_at_a_time(c.device, in.size[0], copy_bytes(in, reach) + packed);
  Accumulator accumulator;
  c.accumulator = &accumulator;
  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(in, image, images, reach);
    const auto& a = source.stride;
    const int64_t channels = weight.size[1];
    c.rows = c.k = {};
    add_in_order(
        source, [&] { c.rows.add(channels, a[1], weight.stride[1]); },
        [&](int i) { c.rows.add(w.kernel[i], w.dilation[i] * a[2 + i], weight.stride[2 + i]); });
    c.k.add(images, a[0], out.stride[0]);
    for (int i = 0; i < kAxes; ++i) {
      c.k.add(out.size[2 + i], w.stride[i] * a[2 + i], out.stride[2 + i]);
    }
    c.columns = weight.size[0] / w.groups;
    c.column_b = out.stride[1];
    c.column_out = weight.stride[0];
    c.a_group = channels * a[1];
    c.b_group = c.columns * out.stride[1];
    c.out_group = c.columns * weight.stride[0];
    set_origin(c, source, reach);
    c.b = advance(out.data, out.dtype, image * out.stride[0]);
    c.out = weight.data;
    accumulator.first = image == 0;
    accumulator.last = image + images == in.size[0];
    run_contraction(c);
  }
}

void contract_weight_gradient(const Description& description) {
  const Operand& weight = description.weight;
  // Where channels are groups and lie innermost, vectors run along them, if they do in the weight.
  if (description.window.groups == 1 || weight.size[0] != description.window.groups ||
      description.in.stride[1] != 1 || description.out.stride[1] != 1) {
    contract_weight_gradient(description, weight);
    return;
  }
  const at::Tensor channels_last = at::empty_like(weight.tensor.movedim(0, -1)).movedim(-1, 0);
  contract_weight_gradient(description, Operand(channels_last));
  weight.tensor.copy_(channels_last);
}

}  // namespace

const Implementation contract{"contract", [](const Description&) -> const char* { return nullptr; },
                              [](Description& description) {
                                if (description.pass == Pass::forward)
                                  return contract_forward(description);
                                if (description.pass == Pass::input_gradient)
                                  return contract_input_gradient(description);
                                contract_weight_gradient(description);
                              }};

}  // namespace ocl::conv
