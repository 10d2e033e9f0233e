// Transposed convolutions on CPUs whose windows lie side by side (kernels/conv/packed.cl).
#include <algorithm>

#include "engine/conv/contraction.h"
#include "engine/conv/description.h"
#include "engine/conv/source.h"

namespace ocl::conv {

namespace {

/// The sum but for its rows, k and places.
Contraction contraction_of(const Description& description) {
  const Operand &in = description.in, &weight = description.weight;
  const int64_t channels = weight.size[1], taps = description.window.kernel[2];
  Contraction c{description.device, description.queue};
  c.dtype = c.b_dtype = description.out.dtype;
  c.compute = computed_in(description.out.dtype);
  c.columns = taps * channels;
  c.column_b = weight.stride[1];
  c.column_out = 1;
  // The lines of a window are groups that read the same.
  c.groups = description.window.kernel[1];
  c.b_group = weight.stride[3];
  c.out_group = in.stride[3];
  c.bias_channels = channels;
  c.bias = static_cast<const char*>(description.bias_data());
  return c;
}

const char* refuse(const Description& description) {
  if (description.pass != Pass::input_gradient) return "it serves gradients of inputs alone";
  const Operand &in = description.in, &weight = description.weight;
  const int64_t channels = weight.size[1];
  if (description.window.kernel[2] == 1) return "windows have one element across";
  if (!lie_side_by_side(description)) return "windows overlap or lie apart";
  // (element of a line, channel) is one dimension of both.
  if (in.stride[1] != 1 || in.stride[4] != channels) return "channels aren't last";
  if (weight.stride[4] != channels * weight.stride[1]) return "the weight's channels aren't last";
  if (channels % packed_panel_columns(contraction_of(description)) != 0) {
    return "a panel's bias would be in two parts";
  }
  return nullptr;
}

void run(Description& description) {
  const Operand &in = description.in, &out = description.out, &weight = description.weight;
  const Window& w = description.window;
  Contraction c = contraction_of(description);
  const Reach reach;  // what it reads is not padded
  const auto size = static_cast<int64_t>(c10::elementSize(out.dtype));
  const int64_t images = out.size[0];
  const int64_t step = images_at_a_time(description.device, images, copy_bytes(out, reach));
  for (int64_t image = 0; image < images; image += step) {
    const int64_t count = std::min(step, images - image);
    const Source source = source_of(out, image, count, reach);
    c.rows = c.k = {};
    c.rows.add(count, source.stride[0], in.stride[0]);
    for (size_t d = 2; d < 5; ++d) {
      c.rows.add(out.size[d], source.stride[d], w.stride[d - 2] * in.stride[d]);
    }
    c.k.add(out.size[1], source.stride[1], weight.stride[0]);
    c.a = source.data;
    for (int64_t plane = 0; plane < w.kernel[0]; ++plane) {
      c.b = weight.data + plane * weight.stride[2] * size;
      c.out = in.data + (image * in.stride[0] + plane * in.stride[2]) * size;
      run_packed(c);
    }
  }
}

}  // namespace

const Implementation side_by_side{"side_by_side", refuse, run};

}  // namespace ocl::conv
