// Depthwise convolutions and their gradients on GPUs (kernels/conv/depthwise_direct.cl).
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <algorithm>
#include <bit>
#include <optional>

#include "engine/conv/depthwise.h"
#include "engine/conv/plan.h"
#include "engine/dtype.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl {

namespace {

/// Depthwise of kernels/conv/depthwise_direct.cl.
struct DirectArguments {
  uint64_t in_offset, weight_offset, bias_offset, out_offset;
  int64_t in_n, in_c, in_y, in_x;
  int64_t out_n, out_c, out_y, out_x;
  int64_t weight_c, weight_y, weight_x;
  uint32_t images, channels;
  uint32_t in_h, in_w, out_h, out_w;
  int32_t pad_y, pad_x;
  uint32_t multiplier, biased, parts, part;
};
static_assert(sizeof(DirectArguments) == 168);

constexpr int64_t kMostTaps = 49, kMostLines = 64, kMostPlaces = int64_t{1} << 31;
constexpr int64_t kGroup = 256, kMostLanes = 32;  // work-items, and those along channels
constexpr int64_t kMostBytes = int64_t{1} << 31;  // of an image
constexpr int64_t kLeastPlaces = 1024;  // of a part of a weight's gradient, for a channel at a time
constexpr int64_t kLeastShare = 16;     // of a work-item, for several
constexpr int64_t kGroupsPerUnit = 8, kMostParts = 128, kMostItems = 1024;

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

/// What the kernels are compiled for and get.
struct Direct {
  Device& device;
  Queue& queue;
  DirectArguments arguments{};
  c10::ScalarType in{}, out{}, weight{}, compute{};
  ConvWindow window{};
  std::array<int64_t, 2> stride{1, 1}, upsampling{1, 1};
  int64_t tile = 1, width = 1, lanes = 1;
  bool last = false;

  Kernel& kernel(const KernelFamily& family) const {
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
                               {"LP", kGroup / lanes}});
  }
  int64_t taps() const { return window.kernel[1] * window.kernel[2]; }
  /// With channels innermost: vectors of at most `most` channels, and fewer of few.
  void set_width(int64_t most) {
    if (!last) return;
    width = std::min(most, widest);
    lanes = std::min(
        kMostLanes,
        static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(arguments.channels / width))));
  }
  int64_t channel_blocks() const { return last ? blocks(arguments.channels, lanes * width) : 1; }
  int64_t widest = 1;  // that the tensors' alignment allows
};

/// Whether vectors of that many channels are aligned.
bool takes_width(const ConvTensor& tensor, int64_t width) {
  const int64_t bytes = width * static_cast<int64_t>(c10::elementSize(tensor.dtype));
  bool takes = reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes) == 0;
  for (const int d : {0, 3, 4})
    takes = takes && (tensor.size[d] == 1 || tensor.stride[d] % width == 0);
  return takes && tensor.size[1] % width == 0 && tensor.stride[1] == 1;
}

bool is_small(const ConvTensor& tensor) {
  const int64_t span =
      tensor.size[3] * std::abs(tensor.stride[3]) + tensor.size[4] * std::abs(tensor.stride[4]);
  return span * 2 * static_cast<int64_t>(c10::elementSize(tensor.dtype)) < kMostBytes;
}

/// A problem whose images are `in` and whose result has the shape of `out`; nothing where the
/// kernels don't take it.
std::optional<Direct> prepare(const ConvTensor& in, const ConvTensor& out, const ConvTensor& weight,
                              const ConvWindow& w) {
  Queue& queue = current_queue(current_device());
  const bool flat = w.kernel[0] == 1 && w.pad[0] == 0 && in.size[2] == 1 && out.size[2] == 1;
  if (!flat || w.groups < 2 || weight.size[1] != 1 || w.kernel[1] * w.kernel[2] > kMostTaps ||
      out.size[0] * out.size[1] * out.size[3] * out.size[4] >= kMostPlaces ||
      !c10::isFloatingType(in.dtype) || !is_small(in) ||
      queue.device().properties().max_work_group_size < static_cast<size_t>(kGroup)) {
    return {};
  }
  Direct d{queue.device(), queue};
  d.in = in.dtype;
  d.out = out.dtype;
  d.weight = weight.dtype;
  d.compute = compute_dtype(in.dtype);
  d.window = w;
  // A window of one line has no distance between lines.
  for (const int axis : {1, 2}) {
    if (w.kernel[axis] == 1) d.window.dilation[axis] = 1;
  }
  d.stride = {w.stride[1], w.stride[2]};
  DirectArguments& a = d.arguments;
  a.in_n = in.stride[0], a.in_c = in.stride[1], a.in_y = in.stride[3], a.in_x = in.stride[4];
  a.out_n = out.stride[0], a.out_c = out.stride[1], a.out_y = out.stride[3];
  a.out_x = out.stride[4];
  a.weight_c = weight.stride[0], a.weight_y = weight.stride[3], a.weight_x = weight.stride[4];
  a.images = static_cast<uint32_t>(out.size[0]);
  a.channels = static_cast<uint32_t>(out.size[1]);
  a.in_h = static_cast<uint32_t>(in.size[3]);
  a.in_w = static_cast<uint32_t>(in.size[4]);
  a.out_h = static_cast<uint32_t>(out.size[3]);
  a.out_w = static_cast<uint32_t>(out.size[4]);
  a.pad_y = static_cast<int32_t>(w.pad[1]);
  a.pad_x = static_cast<int32_t>(w.pad[2]);
  a.multiplier = static_cast<uint32_t>(out.size[1] / in.size[1]);
  d.last = out.stride[1] == 1 && out.size[1] >= 4 && out.stride[4] != 1;
  if (d.last && a.multiplier == 1) {
    while (d.widest < 4 && takes_width(in, 2 * d.widest) && takes_width(out, 2 * d.widest)) {
      d.widest *= 2;
    }
  }
  return d;
}

/// Enqueues the kernel depthwise_direct; false if it would be too long.
bool run(Direct& d, const ConvTensor& in, const ConvTensor& out, const char* weight,
         const void* bias) {
  static const KernelFamily family{"conv/depthwise_direct.cl", "depthwise_direct"};
  DirectArguments& a = d.arguments;
  const auto lines = [&] {
    return (d.tile - 1) * d.stride[0] + (d.window.kernel[1] - 1) * d.window.dilation[1] + 1;
  };
  d.tile = std::min<int64_t>(4, static_cast<int64_t>(std::bit_floor(std::max(1U, a.out_h))));
  while (d.tile > 1 && lines() > kMostLines) d.tile /= 2;
  if (lines() > kMostLines) return false;
  const AddressSpace& addresses = d.device.addresses();
  const Location from = addresses.find(in.data), to = addresses.find(out.data),
                 by = addresses.find(weight), addend = bias != nullptr ? addresses.find(bias) : to;
  a.in_offset = from.offset, a.out_offset = to.offset;
  a.weight_offset = by.offset, a.bias_offset = addend.offset;
  a.biased = bias != nullptr;
  const int64_t places =
      int64_t{a.images} * blocks(a.out_h, d.tile) * a.out_w * (d.last ? 1 : a.channels);
  // Wide vectors where work-items are many.
  const int64_t items = places * a.channels / (d.device.properties().compute_units * kMostItems);
  d.set_width(reinterpret_cast<uintptr_t>(bias) % 16 != 0 ? 1 : items >= 4 ? 4 : 2);
  const int64_t groups = blocks(places, kGroup / d.lanes) * d.channel_blocks();
  launch(d.kernel(family), d.queue, NDRange::linear(static_cast<size_t>(groups * kGroup), kGroup),
         from.mem, by.mem, addend.mem, to.mem, a);
  return true;
}

}  // namespace

bool direct_depthwise_convolution(const ConvTensor& out, const ConvTensor& in,
                                  const ConvTensor& weight, const void* bias, const ConvWindow& w) {
  std::optional<Direct> d = prepare(in, out, weight, w);
  return d && run(*d, in, out, weight.data, bias);
}

bool direct_depthwise_input(const ConvTensor& in, const ConvTensor& out, const ConvTensor& weight,
                            const void* bias, const ConvWindow& w) {
  std::optional<Direct> d = prepare(out, in, weight, w);
  if (!d || out.size[1] != in.size[1]) return false;
  DirectArguments& a = d->arguments;
  d->upsampling = d->stride;
  d->stride = {1, 1};
  a.pad_y = static_cast<int32_t>((w.kernel[1] - 1) * d->window.dilation[1] - w.pad[1]);
  a.pad_x = static_cast<int32_t>((w.kernel[2] - 1) * d->window.dilation[2] - w.pad[2]);
  // The taps backwards.
  const char* last =
      weight.data + ((w.kernel[1] - 1) * a.weight_y + (w.kernel[2] - 1) * a.weight_x) *
                        static_cast<int64_t>(c10::elementSize(weight.dtype));
  a.weight_y = -a.weight_y;
  a.weight_x = -a.weight_x;
  return run(*d, out, in, last, bias);
}

bool direct_depthwise_weight(const ConvTensor& weight, const ConvTensor& in, const ConvTensor& out,
                             const ConvWindow& w) {
  static const KernelFamily family{"conv/depthwise_direct.cl", "depthwise_direct_weight"};
  static const KernelFamily finish{"conv/depthwise_direct.cl", "depthwise_direct_finish"};
  std::optional<Direct> d = prepare(in, out, weight, w);
  if (!d) return false;
  DirectArguments& a = d->arguments;
  const int64_t places = int64_t{a.images} * a.out_h * a.out_w;
  d->set_width(d->taps() <= 25 ? 2 : 1);
  const int64_t groups = d->last ? d->channel_blocks() : a.channels;
  const int64_t wanted = d->device.properties().compute_units * kGroupsPerUnit;
  const int64_t least = d->last ? kLeastShare * kGroup / d->lanes : kLeastPlaces;
  const int64_t parts =
      std::clamp<int64_t>(wanted / groups, 1, std::clamp<int64_t>(places / least, 1, kMostParts));
  a.part = static_cast<uint32_t>(blocks(places, parts));
  a.parts = static_cast<uint32_t>(blocks(places, std::max(a.part, 1U)));
  const c10::DataPtr partial = allocator()->allocate(
      static_cast<size_t>(a.parts * d->taps() * a.channels) * c10::elementSize(d->compute));
  const AddressSpace& addresses = d->device.addresses();
  const Location from = addresses.find(in.data), by = addresses.find(out.data),
                 sums = addresses.find(partial.get()), to = addresses.find(weight.data);
  a.in_offset = from.offset, a.out_offset = by.offset, a.weight_offset = sums.offset;
  launch(d->kernel(family), d->queue,
         NDRange::linear(static_cast<size_t>(groups * a.parts * kGroup), kGroup), from.mem,
         sums.mem, by.mem, a);
  launch(d->kernel(finish), d->queue,
         NDRange::grid(a.channels, static_cast<size_t>(d->taps()), 32, 1), sums.mem, to.mem,
         to.offset, a);
  return true;
}

}  // namespace ocl
