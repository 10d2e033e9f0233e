// Convolutions with windows of 3 x 3 on CPUs by transformed tiles (kernels/conv/winograd.cl).
#include <algorithm>
#include <array>
#include <bit>

#include "engine/conv/plan.h"
#include "engine/conv/source.h"
#include "engine/dtype.h"
#include "engine/gemm/gemm.h"
#include "opencl/environment.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl {

namespace {

/// The layout of Winograd in kernels/conv/winograd.cl.
struct WinogradArguments {
  uint64_t in_offset, weight_offset, bias_offset, out_offset, panels_offset, tiles_offset;
  int64_t in_image, in_channel, in_row, in_column;
  int64_t out_image, out_channel, out_row, out_column;
  int64_t weight_group, weight_column, weight_channel, weight_row, weight_across;
  uint32_t channels, columns, groups, height, width, image_lines, line_tiles;
  uint32_t first_line, lines, block, flags, unused;
};
static_assert(sizeof(WinogradArguments) == 6 * 8 + 13 * 8 + 12 * 4);

constexpr int64_t kPoints = 16;
/// Fewer channels or columns leave too little between the transforms, fewer tiles too little to pay
/// for the windows'.
constexpr int64_t kLeastChannels = 16, kLeastTiles = 64;
constexpr int64_t kLeastLanes = 4;
/// A panel of more bytes is not read again for every strip.
constexpr int64_t kSecondCache = 256 << 10;
constexpr int64_t kStrips = 4;
constexpr int64_t kItemsPerCore = 8;

int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

bool is_wanted() {
  static const bool wanted = switched_on("TORCH_OCL_WINOGRAD", true);
  return wanted;
}

/// Tiles of a strip: as many as waste the least of a line. Two vectors of columns and their
/// loads take as long as 2 * tiles + 3 sums.
int64_t tiles_of_strip(int64_t tiles) {
  int64_t best = 8;
  const auto time = [tiles](int64_t count) { return blocks(tiles, count) * (2 * count + 3); };
  for (const int64_t count : {7, 6, 5, 4}) {
    if (time(count) < time(best)) best = count;
  }
  return best;
}

bool takes(const ConvTensor& in, const ConvWindow& w, int64_t channels, int64_t columns) {
  const std::array<int64_t, 3> window{1, 3, 3}, one{1, 1, 1};
  return is_wanted() && w.kernel == window && w.stride == one && w.dilation == one &&
         w.pad[0] == 0 && in.size[2] == 1 && computed_in(in.dtype) == c10::ScalarType::Float &&
         std::min(channels, columns) >= kLeastChannels;
}

char* advance(char* data, c10::ScalarType dtype, int64_t elements) {
  return data + elements * static_cast<int64_t>(c10::elementSize(dtype));
}

}  // namespace

bool run_conv_winograd(const ConvTensor& out, const ConvTensor& in, const ConvTensor& weight,
                       const void* bias, const ConvWindow& w, bool transposed) {
  static const KernelFamily weight_family{"conv/winograd.cl", "winograd_weight"};
  static const KernelFamily input_family{"conv/winograd.cl", "winograd_input"};
  static const KernelFamily product_family{"conv/winograd.cl", "winograd_product"};
  Queue& queue = current_queue(current_device());
  Device& device = queue.device();
  if (!device.is_cpu()) return false;
  const int64_t channels = in.size[1] / w.groups, columns = out.size[1] / w.groups;
  if (!takes(in, w, channels, columns)) return false;
  const PackedParameters parameters = gemm_parameters(device, sizeof(float), false).packed;
  if (parameters.width < kLeastLanes || in.size[1] < parameters.width) return false;

  // A convolution's gradient by its input is the convolution with the windows turned around.
  std::array<int64_t, 2> pad{w.pad[1], w.pad[2]};
  if (transposed) pad = {2 - pad[0], 2 - pad[1]};
  const int64_t height = out.size[3], width = out.size[4];
  const int64_t image_lines = blocks(height, 2), tiles = blocks(width, 2);
  if (std::min(pad[0], pad[1]) < 0 || tiles < kLeastLanes ||
      in.size[0] * image_lines * tiles < kLeastTiles) {
    return false;
  }
  const int64_t strip = tiles_of_strip(tiles), strips = blocks(tiles, strip);
  const int64_t line_tiles = strips * strip;
  Reach reach;
  reach.low = {0, -pad[0], -pad[1]};
  reach.high = {0, 2 * image_lines + 1 - pad[0], 2 * line_tiles + 1 - pad[1]};
  const bool last = in.size[1] > 1 && in.stride[1] == 1;
  if (!needs_copy(in, reach) && !last && in.stride[4] != 1) return false;

  WinogradArguments p{};
  p.channels = static_cast<uint32_t>(channels);
  p.columns = static_cast<uint32_t>(columns);
  p.groups = static_cast<uint32_t>(w.groups);
  p.height = static_cast<uint32_t>(height);
  p.width = static_cast<uint32_t>(width);
  p.image_lines = static_cast<uint32_t>(image_lines);
  p.line_tiles = static_cast<uint32_t>(line_tiles);
  p.out_image = out.stride[0];
  p.out_channel = out.stride[1];
  p.out_row = out.stride[3];
  p.out_column = out.stride[4];
  const size_t of_column = transposed ? 1 : 0, of_channel = transposed ? 0 : 1;
  p.weight_column = weight.stride[of_column];
  p.weight_channel = weight.stride[of_channel];
  p.weight_group = (transposed ? channels : columns) * weight.stride[0];
  p.weight_row = transposed ? -weight.stride[3] : weight.stride[3];
  p.weight_across = transposed ? -weight.stride[4] : weight.stride[4];
  const char* window = weight.data;
  if (transposed) {
    window = advance(weight.data, weight.dtype, 2 * (weight.stride[3] + weight.stride[4]));
  }
  p.flags = bias != nullptr ? conv_flag::bias : 0;

  const int vectors = columns > parameters.width ? 2 : 1;
  const int64_t panel_columns = int64_t{parameters.width} * vectors;
  const int64_t panels = blocks(columns, panel_columns);
  const int64_t panel_bytes = kPoints * channels * panel_columns * int64_t{sizeof(float)};
  const int64_t shared = panel_bytes > kSecondCache ? kStrips : 1;
  const int64_t lanes =
      std::min<int64_t>(parameters.width, std::bit_floor(static_cast<uint64_t>(line_tiles)));
  const int64_t cores = device.properties().compute_units;

  const int64_t step = images_at_a_time(device, in.size[0], copy_bytes(in, reach));
  const int64_t line_bytes = kPoints * line_tiles * in.size[1] * int64_t{sizeof(float)};
  const int64_t lines_at_once = images_at_a_time(device, step * image_lines, line_bytes);
  const int64_t panels_bytes = w.groups * panels * panel_bytes;
  const c10::DataPtr memory =
      allocator()->allocate(static_cast<size_t>(panels_bytes + lines_at_once * line_bytes));
  const auto find = [&device](const void* address, uint64_t& offset) {
    const Location location = device.addresses().find(address);
    offset = location.offset;
    return location.mem;
  };
  const cl_mem workspace = find(memory.get(), p.panels_offset);
  p.tiles_offset = p.panels_offset + static_cast<uint64_t>(panels_bytes);
  const cl_mem windows = find(window, p.weight_offset);

  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(in, image, images, reach);
    p.in_image = source.stride[0];
    p.in_channel = source.stride[1];
    p.in_row = source.stride[3];
    p.in_column = source.stride[4];
    const char* origin =
        source.data - (pad[0] * p.in_row + pad[1] * p.in_column) * int64_t{sizeof(float)};
    const cl_mem input = find(origin, p.in_offset);
    const cl_mem result = find(advance(out.data, out.dtype, image * out.stride[0]), p.out_offset);
    const cl_mem addend = bias != nullptr ? find(bias, p.bias_offset) : result;
    const std::array<Define, 9> defines{{{"C", "f32"},
                                         {"IN", tag(weight.dtype)},
                                         {"OUT", tag(out.dtype)},
                                         {"WIDTH", parameters.width},
                                         {"MR", strip},
                                         {"NV", vectors},
                                         {"LANES", source.channels_last ? parameters.width : lanes},
                                         {"CHANNELS_LAST", source.channels_last},
                                         {"STRIPS", shared}}};
    const auto items = [](int64_t x, int64_t y, int64_t z) {
      return NDRange::volume(
          {static_cast<size_t>(x), static_cast<size_t>(y), static_cast<size_t>(z)}, {1, 1, 1});
    };
    if (image == 0) {
      p.block = static_cast<uint32_t>(
          std::clamp<int64_t>(w.groups * panels * channels / (cores * kItemsPerCore), 1, channels));
      launch(weight_family.get(device, defines), queue,
             items(blocks(channels, p.block), panels, w.groups), windows, workspace, p);
    }
    for (int64_t line = 0; line < images * image_lines; line += lines_at_once) {
      const int64_t lines = std::min(lines_at_once, images * image_lines - line);
      p.first_line = static_cast<uint32_t>(line);
      p.lines = static_cast<uint32_t>(lines);
      const int64_t parts = source.channels_last ? line_tiles : in.size[1];
      p.block = static_cast<uint32_t>(
          std::clamp<int64_t>(lines * parts / (cores * kItemsPerCore), 1, parts));
      launch(input_family.get(device, defines), queue, items(blocks(parts, p.block), lines, 1),
             input, workspace, p);
      const int64_t all = blocks(lines * strips, shared);
      p.block = static_cast<uint32_t>(
          std::clamp<int64_t>(all * panels * w.groups / (cores * kItemsPerCore), 1, 64 / shared) *
          shared);
      launch(product_family.get(device, defines), queue,
             items(panels, blocks(lines * strips, p.block), w.groups), input, windows, workspace,
             addend, result, p);
    }
  }
  return true;
}

}  // namespace ocl
