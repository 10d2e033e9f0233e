// Depthwise convolutions on CPUs (kernels/conv/depthwise_planes.cl, depthwise_lanes.cl,
// depthwise_turned.cl), and the choice between devices.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/depthwise.h"

#include <algorithm>
#include <optional>

#include "engine/conv/plan.h"
#include "engine/dtype.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl {

namespace {

/// Depthwise of kernels/conv/depthwise.clh.
struct DepthwiseArguments {
  uint64_t in_offset, weight_offset, bias_offset, out_offset;
  int64_t in_n, in_c, in_y, in_x;
  int64_t out_n, out_c, out_y, out_x;
  int64_t weight_c, weight_y, weight_x;
  uint32_t images, channels;
  uint32_t in_h, in_w, out_h, out_w;
  int32_t pad_y, pad_x;
  uint32_t skip_y, skip_x;
  uint32_t multiplier, biased;
  uint32_t block, rows, columns, pitch;
};
static_assert(sizeof(DepthwiseArguments) == 184);

constexpr int64_t kLargestWindow = 7, kMostWeightTaps = 25;
constexpr int64_t kStagedBytes = 16 << 10;  // half of a first-level cache, or less
constexpr int64_t kOutputsPerItem = 8192;   // fewer are not worth a work-item
constexpr int64_t kItemsPerCore = 8;

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }
int64_t up(int64_t n, int64_t multiple) { return blocks(n, multiple) * multiple; }

/// What the kernels are compiled for and get.
struct Depthwise {
  Device& device;
  Queue& queue;
  DepthwiseArguments arguments{};
  c10::ScalarType in{}, out{}, weight{}, compute{};
  int64_t kernel_h = 1, kernel_w = 1, stride = 1, upsampling = 1;
  int width = 1, tile_y = 1, tile_x = 1;

  Kernel& kernel(const KernelFamily& family) const {
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
    return static_cast<uint32_t>(std::clamp<int64_t>(count / (cores() * kItemsPerCore), 1, least));
  }
};

/// The stride of both axes, if windows are such as the kernels take.
std::optional<int64_t> common_stride(const ConvTensor& in, const ConvTensor& out,
                                     const ConvWindow& w) {
  if (w.kernel[0] != 1 || w.pad[0] != 0 || in.size[2] != 1 || out.size[2] != 1) return {};
  for (const int axis : {1, 2}) {
    if (w.kernel[axis] > kLargestWindow || (w.kernel[axis] > 1 && w.dilation[axis] > 1)) return {};
  }
  const bool line = in.size[3] == 1 && out.size[3] == 1 && w.kernel[1] == 1 && w.pad[1] == 0;
  if (w.stride[2] > 2 || (w.stride[1] != w.stride[2] && !line)) return {};
  return w.stride[2];
}

/// A problem whose images are `in`, as the kernels see them, with `multiplier` channels of `out`
/// for each of its.
std::optional<Depthwise> prepare(const ConvTensor& in, const ConvTensor& out,
                                 const ConvTensor& weight, const ConvWindow& w) {
  Queue& queue = current_queue(current_device());
  if (w.groups < 2 || weight.size[1] != 1 || !c10::isFloatingType(in.dtype)) return {};
  const std::optional<int64_t> stride = common_stride(in, out, w);
  const int64_t multiplier = weight.size[0] / w.groups;
  if (!stride || multiplier > kNarrowColumns) return {};
  Depthwise d{queue.device(), queue};
  d.in = in.dtype;
  d.out = out.dtype;
  d.weight = weight.dtype;
  d.compute = compute_dtype(in.dtype);
  d.kernel_h = w.kernel[1];
  d.kernel_w = w.kernel[2];
  d.stride = *stride;
  DepthwiseArguments& a = d.arguments;
  a.in_n = in.stride[0], a.in_c = in.stride[1], a.in_y = in.stride[3], a.in_x = in.stride[4];
  a.out_n = out.stride[0], a.out_c = out.stride[1], a.out_y = out.stride[3];
  a.out_x = out.stride[4];
  a.images = static_cast<uint32_t>(out.size[0]);
  a.channels = static_cast<uint32_t>(out.size[1]);
  a.in_h = static_cast<uint32_t>(in.size[3]);
  a.in_w = static_cast<uint32_t>(in.size[4]);
  a.out_h = static_cast<uint32_t>(out.size[3]);
  a.out_w = static_cast<uint32_t>(out.size[4]);
  a.pad_y = static_cast<int32_t>(w.pad[1]);
  a.pad_x = static_cast<int32_t>(w.pad[2]);
  a.multiplier = static_cast<uint32_t>(multiplier);
  return d;
}

bool along_channels(const ConvTensor& in, const ConvTensor& out, const Depthwise& d) {
  return d.arguments.multiplier == 1 && in.size[1] >= 4 && in.stride[1] == 1 && out.stride[1] == 1;
}
bool along_lines(const ConvTensor& tensor) { return tensor.stride[4] == 1 || tensor.size[4] == 1; }

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
    return up((up(columns, d.width) - 1) * d.stride + d.kernel_w, d.width);
  };
  const auto lines_of = [&](int64_t rows) { return (rows - 1) * d.stride + d.kernel_h; };
  const auto bytes_of = [&](int64_t rows, int64_t columns) {
    return (lines_of(rows) * pitch_of(columns) + (with_result ? rows * columns : 0)) * element;
  };
  int64_t columns = up(w, d.width), rows = up(h, d.tile_y);
  for (int64_t parts = 2; bytes_of(d.tile_y, columns) > kStagedBytes && columns > d.width;
       ++parts) {
    columns = up(blocks(w, parts), d.width);
  }
  for (int64_t parts = 2; bytes_of(rows, columns) > kStagedBytes && rows > d.tile_y; ++parts) {
    rows = up(blocks(h, parts), d.tile_y);
  }
  a.rows = static_cast<uint32_t>(rows);
  a.columns = static_cast<uint32_t>(columns);
  a.pitch = static_cast<uint32_t>(pitch_of(columns));
  // The last line's last vector may be stored one element further.
  return {static_cast<size_t>((lines_of(rows) * a.pitch + d.width) * element),
          static_cast<size_t>(rows * columns * element)};
}

struct Operands {
  cl_mem in, weight, bias, out;
};

/// The buffers; sets their offsets.
Operands locate(Depthwise& d, const ConvTensor& in, const ConvTensor& out, const char* weight,
                const void* bias) {
  DepthwiseArguments& a = d.arguments;
  const AddressSpace& addresses = d.device.addresses();
  const Location from = addresses.find(in.data), to = addresses.find(out.data),
                 by = addresses.find(weight), addend = bias != nullptr ? addresses.find(bias) : to;
  a.in_offset = from.offset, a.out_offset = to.offset;
  a.weight_offset = by.offset, a.bias_offset = addend.offset;
  a.biased = bias != nullptr;
  return {from.mem, by.mem, addend.mem, to.mem};
}

void run_planes(Depthwise& d, const ConvTensor& in, const ConvTensor& out, const char* weight,
                const void* bias) {
  static const KernelFamily family{"conv/depthwise_planes.cl", "depthwise_planes"};
  DepthwiseArguments& a = d.arguments;
  const size_t bytes = stage_planes(d, false)[0];
  const int64_t planes = int64_t{a.images} * a.channels;
  a.block = d.per_item(planes, int64_t{a.rows} * a.columns);
  const Operands operands = locate(d, in, out, weight, bias);
  const NDRange range = NDRange::grid(
      static_cast<size_t>(blocks(planes, a.block)),
      static_cast<size_t>(blocks(a.out_h, a.rows) * blocks(a.out_w, a.columns)), 1, 1);
  launch(d.kernel(family), d.queue, range, operands.in, operands.weight, operands.bias,
         operands.out, LocalMemory{bytes}, a);
}

void run_lanes(Depthwise& d, const ConvTensor& in, const ConvTensor& out, const char* weight,
               const void* bias) {
  static const KernelFamily family{"conv/depthwise_lanes.cl", "depthwise_lanes"};
  DepthwiseArguments& a = d.arguments;
  d.width = width_for(d, a.channels);
  d.tile_y = a.out_h > 1 || d.upsampling > 1 ? 2 : 1;
  d.tile_x = 4;
  if (d.upsampling > 1) {
    a.skip_y = static_cast<uint32_t>(a.pad_y & 1);
    a.skip_x = static_cast<uint32_t>(a.pad_x & 1);
  }
  const int64_t tiles = blocks(a.out_h + a.skip_y, d.tile_y);
  a.block = d.per_item(tiles * a.images, int64_t{d.tile_y} * a.out_w * a.channels);
  const Operands operands = locate(d, in, out, weight, bias);
  const NDRange range = NDRange::grid(static_cast<size_t>(blocks(tiles, a.block)), a.images, 1, 1);
  launch(d.kernel(family), d.queue, range, operands.in, operands.weight, operands.bias,
         operands.out, a);
}

bool contiguous_planes(const ConvTensor& tensor) {
  return tensor.stride[4] == 1 && tensor.stride[3] == tensor.size[4];
}

/// Whether blocks of planes are turned: lines would use less than half of a vector. Chooses what is
/// staged then; `elements` gets the input's and the result's.
bool turns(Depthwise& d, const ConvTensor& in, const ConvTensor& out,
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
  return static_cast<int64_t>(elements[0] + elements[1]) * d.element_size() <= 2 * kStagedBytes;
}

void run_turned(Depthwise& d, const ConvTensor& in, const ConvTensor& out, const char* weight,
                const void* bias, const std::array<size_t, 2>& elements) {
  static const KernelFamily family{"conv/depthwise_turned.cl", "depthwise_turned"};
  DepthwiseArguments& a = d.arguments;
  const int64_t vectors = blocks(a.channels, d.width);
  a.block = static_cast<uint32_t>(
      std::clamp<int64_t>(int64_t{a.images} * vectors / (d.cores() * kItemsPerCore), 1, a.images));
  const Operands operands = locate(d, in, out, weight, bias);
  const auto size = static_cast<size_t>(d.element_size());
  launch(d.kernel(family), d.queue,
         NDRange::grid(static_cast<size_t>(vectors), static_cast<size_t>(blocks(a.images, a.block)),
                       1, 1),
         operands.in, operands.weight, operands.bias, operands.out, LocalMemory{elements[0] * size},
         LocalMemory{elements[1] * size}, a);
}

/// The convolution of `in` that d describes but for its weight, whose taps are walked backwards for
/// gradients.
bool run(Depthwise& d, const ConvTensor& in, const ConvTensor& out, const ConvTensor& given_weight,
         const void* bias, bool backwards) {
  const bool lanes = along_channels(in, out, d);
  if (!lanes && !(along_lines(in) && along_lines(out))) return false;
  c10::DataPtr copy;
  const ConvTensor weight = lanes ? weight_channels_last(given_weight, copy) : given_weight;
  d.weight = weight.dtype;
  DepthwiseArguments& a = d.arguments;
  a.weight_c = weight.stride[0];
  a.weight_y = weight.stride[3];
  a.weight_x = weight.stride[4];
  const char* taps = weight.data;
  if (backwards) {
    taps += ((d.kernel_h - 1) * a.weight_y + (d.kernel_w - 1) * a.weight_x) *
            static_cast<int64_t>(c10::elementSize(weight.dtype));
    a.weight_y = -a.weight_y;
    a.weight_x = -a.weight_x;
  }
  if (std::array<size_t, 2> staged{}; !lanes && turns(d, in, out, staged)) {
    run_turned(d, in, out, taps, bias, staged);
    return true;
  }
  (lanes ? run_lanes : run_planes)(d, in, out, taps, bias);
  return true;
}

void weight_planes(Depthwise& d, const ConvTensor& weight, const ConvTensor& in,
                   const ConvTensor& out) {
  static const KernelFamily planes{"conv/depthwise_planes.cl", "depthwise_planes_weight"};
  static const KernelFamily turned{"conv/depthwise_turned.cl", "depthwise_turned_weight"};
  DepthwiseArguments& a = d.arguments;
  std::array<size_t, 2> bytes{};
  const bool turning = a.channels >= d.cores() * 2 * full_width(d) && turns(d, in, out, bytes);
  if (turning) {
    for (size_t& each : bytes) each *= static_cast<size_t>(d.element_size());
  } else {
    bytes = stage_planes(d, true);
    a.block = d.per_item(a.channels, int64_t{a.images} * a.out_h * a.out_w);
  }
  const int64_t items = blocks(a.channels, turning ? d.width : a.block);
  const AddressSpace& addresses = d.device.addresses();
  const Location from = addresses.find(in.data), by = addresses.find(out.data),
                 to = addresses.find(weight.data);
  a.in_offset = from.offset, a.out_offset = by.offset, a.weight_offset = to.offset;
  launch(d.kernel(turning ? turned : planes), d.queue,
         NDRange::linear(static_cast<size_t>(items), 1), from.mem, to.mem, by.mem,
         LocalMemory{bytes[0]}, LocalMemory{bytes[1]}, a);
}

void weight_lanes(Depthwise& d, const ConvTensor& weight, const ConvTensor& in,
                  const ConvTensor& out) {
  static const KernelFamily family{"conv/depthwise_lanes.cl", "depthwise_lanes_weight"};
  static const KernelFamily finish{"conv/depthwise_lanes.cl", "depthwise_lanes_finish"};
  DepthwiseArguments& a = d.arguments;
  d.width = width_for(d, a.channels);
  const int64_t taps = d.kernel_h * d.kernel_w, lines = int64_t{a.images} * a.out_h;
  // As many positions as leave registers for the sums.
  d.tile_x = taps > 9 ? 4 : a.out_w % 7 == 0 ? 7 : 8;
  const int64_t most = d.cores() * kItemsPerCore;
  a.block = static_cast<uint32_t>(
      std::max(blocks(lines, most), blocks(kOutputsPerItem, int64_t{a.out_w} * a.channels)));
  const int64_t parts = blocks(lines, a.block);
  const int64_t part = blocks(a.channels, d.width) * d.width * taps * d.element_size();
  const c10::DataPtr partial = allocator()->allocate(static_cast<size_t>(parts * part));
  const AddressSpace& addresses = d.device.addresses();
  const Location from = addresses.find(in.data), by = addresses.find(out.data),
                 sums = addresses.find(partial.get()), to = addresses.find(weight.data);
  a.in_offset = from.offset, a.out_offset = by.offset, a.weight_offset = sums.offset;
  launch(d.kernel(family), d.queue, NDRange::linear(static_cast<size_t>(parts), 1), from.mem,
         sums.mem, by.mem, a);
  a.block = static_cast<uint32_t>(parts);
  launch(d.kernel(finish), d.queue,
         NDRange::grid(static_cast<size_t>(blocks(a.channels, d.width)),
                       static_cast<size_t>(d.kernel_h), 1, 1),
         sums.mem, to.mem, to.offset, a);
}

bool on_gpu() { return !current_queue(current_device()).device().is_cpu(); }

}  // namespace

bool depthwise_convolution(const ConvTensor& out, const ConvTensor& in, const ConvTensor& weight,
                           const void* bias, const ConvWindow& w) {
  if (on_gpu()) return direct_depthwise_convolution(out, in, weight, bias, w);
  std::optional<Depthwise> d = prepare(in, out, weight, w);
  return d && run(*d, in, out, weight, bias, false);
}

bool depthwise_input(const ConvTensor& in, const ConvTensor& out, const ConvTensor& weight,
                     const void* bias, const ConvWindow& w) {
  if (on_gpu()) return direct_depthwise_input(in, out, weight, bias, w);
  std::optional<Depthwise> d = prepare(out, in, weight, w);
  if (!d || d->arguments.multiplier != 1) return false;
  d->upsampling = d->stride;
  d->stride = 1;
  d->arguments.pad_y = static_cast<int32_t>(w.kernel[1] - 1 - w.pad[1]);
  d->arguments.pad_x = static_cast<int32_t>(w.kernel[2] - 1 - w.pad[2]);
  return run(*d, out, in, weight, bias, true);
}

bool depthwise_weight(const ConvTensor& weight, const ConvTensor& in, const ConvTensor& out,
                      const ConvWindow& w) {
  if (on_gpu()) return direct_depthwise_weight(weight, in, out, w);
  std::optional<Depthwise> d = prepare(in, out, weight, w);
  if (!d || d->kernel_h * d->kernel_w > kMostWeightTaps) return false;
  DepthwiseArguments& a = d->arguments;
  a.weight_c = weight.stride[0];
  a.weight_y = weight.stride[3];
  a.weight_x = weight.stride[4];
  if (along_channels(in, out, *d)) {
    weight_lanes(*d, weight, in, out);
    return true;
  }
  // A work-item sums a channel's whole gradient.
  if (!along_lines(in) || !along_lines(out) || a.channels < d->cores() * 2) return false;
  weight_planes(*d, weight, in, out);
  return true;
}

ConvTensor weight_channels_last(const ConvTensor& weight, c10::DataPtr& copy) {
  PaddedCopy padded;
  padded.in = weight.data;
  padded.in_dtype = weight.dtype;
  padded.dtype = compute_dtype(weight.dtype);
  padded.size = {1, weight.size[2], weight.size[3], weight.size[4], weight.size[0]};
  padded.source = padded.size;
  padded.stride = {0, weight.stride[2], weight.stride[3], weight.stride[4], weight.stride[0]};
  int64_t elements = 1;
  for (const int64_t size : padded.size) elements *= size;
  copy = allocator()->allocate(static_cast<size_t>(elements) * c10::elementSize(padded.dtype));
  padded.copy = static_cast<char*>(copy.get());
  run_padded_copy(padded);
  ConvTensor result = weight;
  result.data = padded.copy;
  result.dtype = padded.dtype;
  const int64_t c = weight.size[0], w = weight.size[4], h = weight.size[3];
  result.stride = {1, 1, c * w * h, c * w, c};
  return result;
}

}  // namespace ocl
