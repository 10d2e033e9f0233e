// Depthwise convolutions on CPUs (kernels/conv/depthwise_planes.cl, depthwise_lanes.cl,
// depthwise_transposed.cl).
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/depthwise.h"

#include <algorithm>
#include <optional>

#include "engine/conv/description.h"
#include "engine/conv/source.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"

namespace ocl::conv {

namespace {

constexpr int64_t kLargestWindow = 7, kMostWeightTaps = 25;
constexpr int64_t kOutputsPerItem = 8192;  // fewer are not worth a work-item

/// The kernels are compiled for this, and get it.
struct Depthwise : DepthwiseCall {
  int64_t kernel_h = 1, kernel_w = 1, stride = 1, upsampling = 1;
  int width = 1, tile_y = 1, tile_x = 1;

  Kernel& kernel(const KernelFamily& given, const Epilogue* epilogue = nullptr) const {
    const KernelFamily& family = family_with(epilogue, given);
    return family.get(device, {{"C", tag(compute)},
                               {"IN", tag(in)},
                               {"OUT", tag(out)},
                               {"W", tag(weight)},
                               {"WIDTH", width},
                               {"KH", kernel_h},
                               {"KW", kernel_w},
                               {"STRIDE", stride},
                               {"UP", upsampling},
                               {"TY", tile_y},
                               {"TX", tile_x}});
  }
  int64_t element_size() const { return static_cast<int64_t>(c10::elementSize(compute)); }
  int64_t cores() const { return device.properties().compute_units; }
  /// How many of `count` pieces of `outputs` results each a work-item takes.
  uint32_t per_item(int64_t count, int64_t outputs) const {
    const int64_t least = std::max<int64_t>(kOutputsPerItem / std::max<int64_t>(outputs, 1), 1);
    return static_cast<uint32_t>(std::clamp<int64_t>(count / items_of_cores(device, 2), 1, least));
  }
};

/// The stride of both axes, if windows are such as the kernels take.
std::optional<int64_t> common_stride(const Operand& in, const Operand& out, const Window& w) {
  if (w.kernel[0] != 1 || w.pad[0] != 0 || in.size[2] != 1 || out.size[2] != 1) return {};
  for (const int axis : {1, 2}) {
    if (w.kernel[axis] > kLargestWindow || (w.kernel[axis] > 1 && w.dilation[axis] > 1)) return {};
  }
  const bool line = in.size[3] == 1 && out.size[3] == 1 && w.kernel[1] == 1 && w.pad[1] == 0;
  if (w.stride[2] > 2 || (w.stride[1] != w.stride[2] && !line)) return {};
  return w.stride[2];
}

const char* refuse_shape(const Description& description) {
  const Window& w = description.window;
  if (w.groups < 2 || description.weight.size[1] != 1) return "groups have several channels";
  if (!c10::isFloatingType(description.in.dtype)) return "the dtype is no floating one";
  if (!common_stride(description.in, description.out, w))
    return "the windows, strides or dilations are others";
  const int64_t multiplier = description.weight.size[0] / w.groups;
  if (multiplier > (description.transposed() ? 1 : kNarrowColumns))
    return "a channel has many results";
  if (description.pass == Pass::weight_gradient && w.kernel[1] * w.kernel[2] > kMostWeightTaps) {
    return "windows are large";
  }
  return nullptr;
}

/// A description that refuse_shape() lets pass, as the kernels see it: with `multiplier` channels
/// of the result for each of the input's.
Depthwise prepare(const Description& description) {
  const Operand& weight = description.weight;
  const Window& w = description.window;
  const int64_t multiplier = weight.size[0] / w.groups;
  Depthwise d{DepthwiseCall(description)};
  d.kernel_h = w.kernel[1];
  d.kernel_w = w.kernel[2];
  d.stride = *common_stride(description.in, description.out, w);
  DepthwiseArguments& a = d.arguments;
  a.multiplier = static_cast<uint32_t>(multiplier);
  if (description.transposed()) {
    d.upsampling = d.stride;
    d.stride = 1;
    a.pad_y = static_cast<int32_t>(w.kernel[1] - 1 - w.pad[1]);
    a.pad_x = static_cast<int32_t>(w.kernel[2] - 1 - w.pad[2]);
  }
  if (description.pass == Pass::weight_gradient) {
    a.weight_c = weight.stride[0];
    a.weight_y = weight.stride[3];
    a.weight_x = weight.stride[4];
  }
  return d;
}

bool along_channels(const Operand& in, const Operand& out, const Depthwise& d) {
  return d.arguments.multiplier == 1 && in.size[1] >= 4 && in.stride[1] == 1 && out.stride[1] == 1;
}
bool along_lines(const Operand& tensor) { return tensor.stride[4] == 1 || tensor.size[4] == 1; }

int full_width(const Depthwise& d) { return static_cast<int>(64 / d.element_size()); }
/// Lanes along `channels` of them.
int width_for(const Depthwise& d, int64_t channels) {
  int width = full_width(d);
  while (width > channels) width /= 2;
  return width;
}

/// Chooses the vectors, tiles and blocks for planes. For the weight's gradient the result is staged
/// too, in whole vectors. Returns the bytes of both.
std::array<size_t, 2> stage_planes(Depthwise& d, bool with_result) {
  DepthwiseArguments& a = d.arguments;
  const int64_t h = a.out_h, w = a.out_w, element = d.element_size();
  d.width = full_width(d);
  while (d.width > 4 && d.width / 2 >= w) d.width /= 2;
  d.tile_y = h >= 4 ? 4 : h >= 2 ? 2 : 1;
  const auto pitch_of = [&](int64_t columns) {
    return round_up((round_up(columns, d.width) - 1) * d.stride + d.kernel_w, d.width);
  };
  const auto lines_of = [&](int64_t rows) { return (rows - 1) * d.stride + d.kernel_h; };
  const auto bytes_of = [&](int64_t rows, int64_t columns) {
    return (lines_of(rows) * pitch_of(columns) + (with_result ? rows * columns : 0)) * element;
  };
  const int64_t most = device_row(d.device).staged_bytes;
  int64_t columns = round_up(w, d.width), rows = round_up(h, d.tile_y);
  for (int64_t parts = 2; bytes_of(d.tile_y, columns) > most && columns > d.width; ++parts) {
    columns = round_up(ceil_div(w, parts), d.width);
  }
  for (int64_t parts = 2; bytes_of(rows, columns) > most && rows > d.tile_y; ++parts) {
    rows = round_up(ceil_div(h, parts), d.tile_y);
  }
  a.rows = static_cast<uint32_t>(rows);
  a.columns = static_cast<uint32_t>(columns);
  a.pitch = static_cast<uint32_t>(pitch_of(columns));
  // The last line's last vector may be stored one element further.
  return {static_cast<size_t>((lines_of(rows) * a.pitch + d.width) * element),
          static_cast<size_t>(rows * columns * element)};
}

/// Sets the weight's strides, walked backwards for gradients, and the bias. Returns the taps.
const char* set_weight(Depthwise& d, const Description& description, const Operand& weight) {
  DepthwiseArguments& a = d.arguments;
  d.weight = weight.dtype;
  a.weight_c = weight.stride[0];
  a.weight_y = weight.stride[3];
  a.weight_x = weight.stride[4];
  a.biased = description.bias_data() != nullptr;
  if (!description.transposed()) return weight.data;
  const char* const last = advance(weight.data, weight.dtype,
                                   (d.kernel_h - 1) * a.weight_y + (d.kernel_w - 1) * a.weight_x);
  a.weight_y = -a.weight_y;
  a.weight_x = -a.weight_x;
  return last;
}

/// Without a bias the kernels read none, but get a buffer.
Pointer bias_of(const Description& description) {
  return {description.bias_data() != nullptr ? description.bias_data() : description.result().data};
}

void run_planes(Description& description) {
  static const KernelFamily family{"conv/depthwise_planes.cl", "depthwise_planes"};
  Depthwise d = prepare(description);
  DepthwiseArguments& a = d.arguments;
  const char* const taps = set_weight(d, description, description.weight);
  const size_t bytes = stage_planes(d, false)[0];
  const int64_t planes = int64_t{a.images} * a.channels;
  a.block = d.per_item(planes, int64_t{a.rows} * a.columns);
  const NDRange range = NDRange::grid(
      static_cast<size_t>(ceil_div(planes, a.block)),
      static_cast<size_t>(ceil_div(a.out_h, a.rows) * ceil_div(a.out_w, a.columns)), 1, 1);
  const Epilogue* const epilogue = description.take_epilogue(false);
  launch_with(epilogue, d.kernel(family, epilogue), d.queue, range,
              Pointer{description.source().data}, Pointer{taps}, bias_of(description),
              Pointer{description.result().data}, LocalMemory{bytes}, a);
}

void run_lanes(Description& description) {
  static const KernelFamily family{"conv/depthwise_lanes.cl", "depthwise_lanes"};
  Depthwise d = prepare(description);
  DepthwiseArguments& a = d.arguments;
  c10::DataPtr copy;
  const char* const taps =
      set_weight(d, description, weight_channels_last(description.weight, copy));
  d.width = width_for(d, a.channels);
  d.tile_y = a.out_h > 1 || d.upsampling > 1 ? 2 : 1;
  d.tile_x = 4;
  if (d.upsampling > 1) {
    a.skip_y = static_cast<uint32_t>(a.pad_y & 1);
    a.skip_x = static_cast<uint32_t>(a.pad_x & 1);
  }
  const int64_t tiles = ceil_div(a.out_h + a.skip_y, d.tile_y);
  a.block = d.per_item(tiles * a.images, int64_t{d.tile_y} * a.out_w * a.channels);
  const NDRange range =
      NDRange::grid(static_cast<size_t>(ceil_div(tiles, a.block)), a.images, 1, 1);
  const Epilogue* const epilogue = description.take_epilogue(true);
  launch_with(epilogue, d.kernel(family, epilogue), d.queue, range,
              Pointer{description.source().data}, Pointer{taps}, bias_of(description),
              Pointer{description.result().data}, a);
}

bool contiguous_planes(const Operand& tensor) {
  return tensor.stride[4] == 1 && tensor.stride[3] == tensor.size[4];
}

/// Whether blocks of planes are transposed: lines would use less than half of a vector. Chooses
/// what is staged then; `elements` gets the input's and the result's.
bool transposes(Depthwise& d, const Operand& in, const Operand& out,
                std::array<size_t, 2>& elements) {
  DepthwiseArguments& a = d.arguments;
  const int64_t width = full_width(d), count = int64_t{a.out_h} * a.out_w;
  if (2 * int64_t{a.out_w} > width || count < width || int64_t{a.in_h} * a.in_w < width ||
      a.channels < width || a.multiplier != 1 || d.upsampling != 1 || a.pad_y < 0 || a.pad_x < 0 ||
      !contiguous_planes(in) || !contiguous_planes(out)) {
    return false;
  }
  const auto side = [&](int64_t size, int64_t pad, int64_t outputs, int64_t window) {
    return std::max(size + pad, (outputs - 1) * d.stride + window);
  };
  a.rows = static_cast<uint32_t>(side(a.in_h, a.pad_y, a.out_h, d.kernel_h));
  a.columns = static_cast<uint32_t>(side(a.in_w, a.pad_x, a.out_w, d.kernel_w));
  d.width = static_cast<int>(width);
  elements = {static_cast<size_t>(int64_t{a.rows} * a.columns * width),
              static_cast<size_t>(count * width)};
  return static_cast<int64_t>(elements[0] + elements[1]) * d.element_size() <=
         2 * device_row(d.device).staged_bytes;
}

void run_transposed(Description& description) {
  static const KernelFamily family{"conv/depthwise_transposed.cl", "depthwise_transposed"};
  Depthwise d = prepare(description);
  DepthwiseArguments& a = d.arguments;
  std::array<size_t, 2> elements{};
  transposes(d, description.source(), description.result(), elements);
  const char* const taps = set_weight(d, description, description.weight);
  const int64_t vectors = ceil_div(a.channels, d.width);
  a.block = static_cast<uint32_t>(
      std::clamp<int64_t>(int64_t{a.images} * vectors / items_of_cores(d.device, 2), 1, a.images));
  const auto size = static_cast<size_t>(d.element_size());
  const Epilogue* const epilogue = description.take_epilogue(false);
  launch_with(epilogue, d.kernel(family, epilogue), d.queue,
              NDRange::grid(static_cast<size_t>(vectors),
                            static_cast<size_t>(ceil_div(a.images, a.block)), 1, 1),
              Pointer{description.source().data}, Pointer{taps}, bias_of(description),
              Pointer{description.result().data}, LocalMemory{elements[0] * size},
              LocalMemory{elements[1] * size}, a);
}

/// The weight's gradient: a work-item sums a channel's whole one.
void launch_weight(Description& description, const KernelFamily& family, Depthwise& d,
                   int64_t items, const std::array<size_t, 2>& bytes) {
  launch(d.kernel(family), d.queue, NDRange::linear(static_cast<size_t>(items), 1),
         Pointer{description.in.data}, Pointer{description.weight.data},
         Pointer{description.out.data}, LocalMemory{bytes[0]}, LocalMemory{bytes[1]}, d.arguments);
}

void weight_transposed(Description& description) {
  static const KernelFamily family{"conv/depthwise_transposed.cl", "depthwise_transposed_weight"};
  Depthwise d = prepare(description);
  std::array<size_t, 2> bytes{};
  transposes(d, description.in, description.out, bytes);
  for (size_t& each : bytes) each *= static_cast<size_t>(d.element_size());
  launch_weight(description, family, d, ceil_div(d.arguments.channels, d.width), bytes);
}

void weight_planes(Description& description) {
  static const KernelFamily family{"conv/depthwise_planes.cl", "depthwise_planes_weight"};
  Depthwise d = prepare(description);
  DepthwiseArguments& a = d.arguments;
  const std::array<size_t, 2> bytes = stage_planes(d, true);
  a.block = d.per_item(a.channels, int64_t{a.images} * a.out_h * a.out_w);
  launch_weight(description, family, d, ceil_div(a.channels, a.block), bytes);
}

void weight_lanes(Description& description) {
  static const KernelFamily family{"conv/depthwise_lanes.cl", "depthwise_lanes_weight"};
  static const KernelFamily finish{"conv/depthwise_lanes.cl", "depthwise_lanes_finish"};
  Depthwise d = prepare(description);
  DepthwiseArguments& a = d.arguments;
  d.width = width_for(d, a.channels);
  const int64_t taps = d.kernel_h * d.kernel_w, lines = int64_t{a.images} * a.out_h;
  // As many positions as leave registers for the sums.
  d.tile_x = taps > 9 ? 4 : a.out_w % 7 == 0 ? 7 : 8;
  const int64_t most = items_of_cores(d.device, 2);
  a.block = static_cast<uint32_t>(
      std::max(ceil_div(lines, most), ceil_div(kOutputsPerItem, int64_t{a.out_w} * a.channels)));
  const int64_t parts = ceil_div(lines, a.block);
  const int64_t part = ceil_div(a.channels, d.width) * d.width * taps * d.element_size();
  const c10::DataPtr partial = allocator()->allocate(static_cast<size_t>(parts * part));
  launch(d.kernel(family), d.queue, NDRange::linear(static_cast<size_t>(parts), 1),
         Pointer{description.in.data}, Pointer{partial.get()}, Pointer{description.out.data}, a);
  a.block = static_cast<uint32_t>(parts);
  launch(d.kernel(finish), d.queue,
         NDRange::grid(static_cast<size_t>(ceil_div(a.channels, d.width)),
                       static_cast<size_t>(d.kernel_h), 1, 1),
         Pointer{partial.get()}, Pointer{description.weight.data}, a);
}

bool weight(const Description& description) { return description.pass == Pass::weight_gradient; }

const char* refuse_lanes(const Description& description) {
  if (const char* reason = refuse_shape(description)) return reason;
  return along_channels(description.source(), description.result(), prepare(description))
             ? nullptr
             : "channels aren't last";
}

/// Both kernels of planes ask for this.
const char* refuse_lines(const Description& description) {
  if (const char* reason = refuse_shape(description)) return reason;
  if (!along_lines(description.in) || !along_lines(description.out))
    return "a line's elements lie apart";
  return nullptr;
}

const char* refuse_transposed(const Description& description) {
  if (const char* reason = refuse_lines(description)) return reason;
  Depthwise d = prepare(description);
  if (weight(description) && d.arguments.channels < d.cores() * 2 * full_width(d)) {
    return "there are fewer channels than vectors for all cores";
  }
  std::array<size_t, 2> elements{};
  return transposes(d, description.source(), description.result(), elements)
             ? nullptr
             : "planes aren't contiguous ones of short lines";
}

const char* refuse_planes(const Description& description) {
  if (const char* reason = refuse_lines(description)) return reason;
  if (weight(description) &&
      description.out.size[1] < 2 * description.device.properties().compute_units) {
    return "there are fewer channels than cores want";
  }
  return nullptr;
}

}  // namespace

const Implementation depthwise_lanes{
    "depthwise_lanes", refuse_lanes, [](Description& description) {
      (weight(description) ? weight_lanes : run_lanes)(description);
    }};
const Implementation depthwise_transposed{
    "depthwise_transposed", refuse_transposed, [](Description& description) {
      (weight(description) ? weight_transposed : run_transposed)(description);
    }};
const Implementation depthwise_planes{
    "depthwise_planes", refuse_planes, [](Description& description) {
      (weight(description) ? weight_planes : run_planes)(description);
    }};

}  // namespace ocl::conv
