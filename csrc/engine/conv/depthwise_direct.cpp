// Depthwise convolutions and their gradients on GPUs (kernels/conv/depthwise_direct.cl).
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <algorithm>
#include <bit>

#include "engine/conv/depthwise.h"
#include "engine/conv/description.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"

namespace ocl::conv {

namespace {

constexpr int64_t kMostTaps = 49, kMostLines = 64, kMostPlaces = int64_t{1} << 31;
constexpr int64_t kMostLanes = 32;                // work-items along channels
constexpr int64_t kMostBytes = int64_t{1} << 31;  // of an image
constexpr int64_t kLeastPlaces = 1024;  // of a part of a weight's gradient, for a channel at a time
constexpr int64_t kLeastShare = 16;     // of a work-item, for several
constexpr int64_t kMostParts = 128, kMostItems = 1024;

/// The kernels are compiled for this, and get it.
struct Direct : DepthwiseCall {
  Window window{};
  std::array<int64_t, 2> stride{1, 1}, upsampling{1, 1};
  int64_t tile = 1, width = 1, lanes = 1;
  bool last = false;

  Kernel& kernel(const KernelFamily& given, const Epilogue* epilogue = nullptr) const {
    const KernelFamily& family = family_with(epilogue, given);
    return family.get(device, {{"C", tag(compute)},
                               {"IN", tag(in)},
                               {"OUT", tag(out)},
                               {"W", tag(weight)},
                               {"KH", window.kernel[1]},
                               {"KW", window.kernel[2]},
                               {"SY", stride[0]},
                               {"SX", stride[1]},
                               {"DY", window.dilation[1]},
                               {"DX", window.dilation[2]},
                               {"UY", upsampling[0]},
                               {"UX", upsampling[1]},
                               {"TY", tile},
                               {"LAST", last},
                               {"WIDTH", width},
                               {"LC", lanes},
                               {"LP", group() / lanes}});
  }
  int64_t group() const { return device_row(device).depthwise_group; }  // work-items
  int64_t taps() const { return window.kernel[1] * window.kernel[2]; }
  /// With channels innermost: vectors of at most `most` channels, and fewer of few.
  void set_width(int64_t most) {
    if (!last) return;
    width = std::min(most, widest);
    lanes = std::min(
        kMostLanes,
        static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(arguments.channels / width))));
  }
  int64_t channel_blocks() const { return last ? ceil_div(arguments.channels, lanes * width) : 1; }
  int64_t widest = 1;  // that the tensors' alignment allows
};

/// Whether vectors of that many channels are aligned.
bool takes_width(const Operand& tensor, int64_t width) {
  const int64_t bytes = width * static_cast<int64_t>(c10::elementSize(tensor.dtype));
  bool takes = reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes) == 0;
  for (const int d : {0, 3, 4})
    takes = takes && (tensor.size[d] == 1 || tensor.stride[d] % width == 0);
  return takes && tensor.size[1] % width == 0 && tensor.stride[1] == 1;
}

bool is_small(const Operand& tensor) {
  const int64_t span =
      tensor.size[3] * std::abs(tensor.stride[3]) + tensor.size[4] * std::abs(tensor.stride[4]);
  return span * 2 * static_cast<int64_t>(c10::elementSize(tensor.dtype)) < kMostBytes;
}

/// Results below each other that a work-item computes, so that it reads few lines; 0: none.
int64_t tile_of(int64_t height, int64_t stride, int64_t window, int64_t dilation) {
  int64_t tile = std::min<int64_t>(
      4, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, height)))));
  const auto lines = [&] { return (tile - 1) * stride + (window - 1) * dilation + 1; };
  while (tile > 1 && lines() > kMostLines) tile /= 2;
  return lines() > kMostLines ? 0 : tile;
}

/// Lines from one result to the next below it.
int64_t line_stride(const Description& description) {
  return description.transposed() ? 1 : description.window.stride[1];
}
/// A window of one line has no distance between lines.
int64_t line_dilation(const Window& w) { return w.kernel[1] == 1 ? 1 : w.dilation[1]; }

const char* refuse(const Description& description) {
  const Window& w = description.window;
  const Operand &in = description.source(), &out = description.result();
  if (w.groups < 2 || description.weight.size[1] != 1) return "groups have several channels";
  if (w.kernel[0] != 1 || w.pad[0] != 0 || in.size[2] != 1 || out.size[2] != 1)
    return "there are volumes";
  if (w.kernel[1] * w.kernel[2] > kMostTaps) return "windows are large";
  if (!c10::isFloatingType(in.dtype)) return "the dtype is no floating one";
  if (description.transposed() && in.size[1] != out.size[1]) return "a channel has several results";
  if (out.size[0] * out.size[1] * out.size[3] * out.size[4] >= kMostPlaces || !is_small(in)) {
    return "offsets past 2^31";
  }
  if (description.device.properties().max_work_group_size <
      static_cast<size_t>(device_row(description.device).depthwise_group)) {
    return "work-groups are too small";
  }
  if (description.pass != Pass::weight_gradient &&
      tile_of(out.size[3], line_stride(description), w.kernel[1], line_dilation(w)) == 0) {
    return "windows reach over many lines";
  }
  return nullptr;
}

/// A description that refuse() lets pass.
Direct prepare(const Description& description) {
  const Operand &in = description.source(), &out = description.result(),
                &weight = description.weight;
  const Window& w = description.window;
  Direct d{DepthwiseCall(description)};
  d.window = w;
  // A window of one line has no distance between lines.
  for (const int axis : {1, 2}) {
    if (w.kernel[axis] == 1) d.window.dilation[axis] = 1;
  }
  d.stride = {w.stride[1], w.stride[2]};
  DepthwiseArguments& a = d.arguments;
  a.weight_c = weight.stride[0], a.weight_y = weight.stride[3], a.weight_x = weight.stride[4];
  a.multiplier = static_cast<uint32_t>(out.size[1] / in.size[1]);
  d.last = out.stride[1] == 1 && out.size[1] >= 4 && out.stride[4] != 1;
  if (d.last && a.multiplier == 1) {
    while (d.widest < 4 && takes_width(in, 2 * d.widest) && takes_width(out, 2 * d.widest)) {
      d.widest *= 2;
    }
  }
  return d;
}

void run_images(Description& description) {
  static const KernelFamily family{"conv/depthwise_direct.cl", "depthwise_direct"};
  Direct d = prepare(description);
  DepthwiseArguments& a = d.arguments;
  const Window& w = description.window;
  const char* taps = description.weight.data;
  if (description.transposed()) {
    d.upsampling = d.stride;
    d.stride = {1, 1};
    a.pad_y = static_cast<int32_t>((w.kernel[1] - 1) * d.window.dilation[1] - w.pad[1]);
    a.pad_x = static_cast<int32_t>((w.kernel[2] - 1) * d.window.dilation[2] - w.pad[2]);
    // The taps backwards.
    taps = advance(description.weight.data, description.weight.dtype,
                   (w.kernel[1] - 1) * a.weight_y + (w.kernel[2] - 1) * a.weight_x);
    a.weight_y = -a.weight_y;
    a.weight_x = -a.weight_x;
  }
  d.tile = tile_of(a.out_h, d.stride[0], w.kernel[1], d.window.dilation[1]);
  const void* const bias = description.bias_data();
  a.biased = bias != nullptr;
  const int64_t places =
      int64_t{a.images} * ceil_div(a.out_h, d.tile) * a.out_w * (d.last ? 1 : a.channels);
  // Wide vectors where work-items are many.
  const int64_t items = places * a.channels / (d.device.properties().compute_units * kMostItems);
  d.set_width(reinterpret_cast<uintptr_t>(bias) % 16 != 0 ? 1 : items >= 4 ? 4 : 2);
  const int64_t groups = ceil_div(places, d.group() / d.lanes) * d.channel_blocks();
  const Epilogue* const epilogue = description.take_epilogue(d.last);
  launch_with(epilogue, d.kernel(family, epilogue), d.queue,
              NDRange::linear(static_cast<size_t>(groups * d.group()), d.group()),
              Pointer{description.source().data}, Pointer{taps},
              Pointer{bias != nullptr ? bias : description.result().data},
              Pointer{description.result().data}, a);
}

void run_weight(Description& description) {
  static const KernelFamily family{"conv/depthwise_direct.cl", "depthwise_direct_weight"};
  static const KernelFamily finish{"conv/depthwise_direct.cl", "depthwise_direct_finish"};
  Direct d = prepare(description);
  DepthwiseArguments& a = d.arguments;
  const int64_t places = int64_t{a.images} * a.out_h * a.out_w;
  d.set_width(d.taps() <= 25 ? 2 : 1);
  const int64_t groups = d.last ? d.channel_blocks() : a.channels;
  const int64_t wanted = groups_of_units(d.device);
  const int64_t least = d.last ? kLeastShare * d.group() / d.lanes : kLeastPlaces;
  const int64_t parts =
      std::clamp<int64_t>(wanted / groups, 1, std::clamp<int64_t>(places / least, 1, kMostParts));
  a.part = static_cast<uint32_t>(ceil_div(places, parts));
  a.parts = static_cast<uint32_t>(ceil_div(places, std::max(a.part, 1U)));
  const c10::DataPtr partial = allocator()->allocate(
      static_cast<size_t>(a.parts * d.taps() * a.channels) * c10::elementSize(d.compute));
  launch(d.kernel(family), d.queue,
         NDRange::linear(static_cast<size_t>(groups * a.parts * d.group()), d.group()),
         Pointer{description.in.data}, Pointer{partial.get()}, Pointer{description.out.data}, a);
  launch(d.kernel(finish), d.queue, NDRange::grid(a.channels, static_cast<size_t>(d.taps()), 32, 1),
         Pointer{partial.get()}, Pointer{description.weight.data}, a);
}

}  // namespace

const Implementation depthwise_direct{
    "depthwise_direct", refuse, [](Description& description) {
      (description.pass == Pass::weight_gradient ? run_weight : run_images)(description);
    }};

}  // namespace ocl::conv
