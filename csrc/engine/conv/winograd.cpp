// Convolutions with windows of 3 x 3 on CPUs by transformed tiles (kernels/conv/winograd.cl).
#include <algorithm>
#include <array>
#include <bit>

#include "engine/conv/contraction.h"
#include "engine/conv/description.h"
#include "engine/conv/source.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/gemm/parameters.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"

namespace ocl::conv {

namespace {

#include "conv/winograd_arguments.clh"

/// Fewer channels or columns leave too little between the transforms, fewer tiles too little to pay
/// for the windows'.
constexpr int64_t kLeastChannels = 16, kLeastTiles = 64;
constexpr int64_t kLeastLanes = 4;

/// Tiles of a strip: as many as waste the least of a line. Two vectors of columns and their
/// loads take as long as 2 * tiles + 3 sums.
int64_t tiles_of_strip(int64_t tiles) {
  int64_t best = 8;
  const auto time = [tiles](int64_t count) { return ceil_div(tiles, count) * (2 * count + 3); };
  for (const int64_t count : {7, 6, 5, 4}) {
    if (time(count) < time(best)) best = count;
  }
  return best;
}

/// How lines are cut into strips of tiles, and what they read.
struct Geometry {
  std::array<int64_t, 2> pad;
  int64_t image_lines, tiles, strip, strips, line_tiles;
  Reach reach;
};

Geometry geometry_of(const Description& description) {
  Geometry g{};
  // A convolution's gradient by its input is the convolution with the windows reversed.
  g.pad = {description.window.pad[1], description.window.pad[2]};
  if (description.transposed()) g.pad = {2 - g.pad[0], 2 - g.pad[1]};
  g.image_lines = ceil_div(description.result().size[3], 2);
  g.tiles = ceil_div(description.result().size[4], 2);
  g.strip = tiles_of_strip(g.tiles);
  g.strips = ceil_div(g.tiles, g.strip);
  g.line_tiles = g.strips * g.strip;
  g.reach.low = {0, -g.pad[0], -g.pad[1]};
  g.reach.high = {0, 2 * g.image_lines + 1 - g.pad[0], 2 * g.line_tiles + 1 - g.pad[1]};
  return g;
}

const char* refuse(const Description& description) {
  if (description.pass == Pass::weight_gradient) return "it doesn't serve gradients of weights";
  const Window& w = description.window;
  const std::array<int64_t, 3> window{1, 3, 3}, one{1, 1, 1};
  if (w.kernel != window || w.pad[0] != 0 || description.in.size[2] != 1)
    return "windows aren't 3 x 3";
  if (w.stride != one || w.dilation != one) return "there is a stride or a dilation";
  const Operand &in = description.source(), &out = description.result();
  if (computed_in(in.dtype) != c10::ScalarType::Float) return "sums aren't of floats";
  if (std::min(in.size[1], out.size[1]) / w.groups < kLeastChannels) return "channels are few";
  const gemm::PackedParameters parameters =
      gemm::parameters_of(description.device, sizeof(float), false).packed;
  if (parameters.width < kLeastLanes || in.size[1] < parameters.width) return "vectors are narrow";
  const Geometry g = geometry_of(description);
  if (std::min(g.pad[0], g.pad[1]) < 0) return "the padding exceeds the windows";
  if (g.tiles < kLeastLanes || in.size[0] * g.image_lines * g.tiles < kLeastTiles) {
    return "images are small";
  }
  const bool last = in.size[1] > 1 && in.stride[1] == 1;
  if (!needs_copy(in, g.reach) && !last && in.stride[4] != 1) return "a line's elements lie apart";
  return nullptr;
}

const KernelFamily weight_family{"conv/winograd.cl", "winograd_weight"};
const KernelFamily input_family{"conv/winograd.cl", "winograd_input"};
const KernelFamily sums_family{"conv/winograd.cl", "winograd_sums"};

/// The sizes and strides but for those of a few images, which may lie in a copy.
WinogradArguments arguments_of(const Description& description, const Geometry& g) {
  const Operand &in = description.source(), &out = description.result(),
                &weight = description.weight;
  const Window& w = description.window;
  const bool transposed = description.transposed();
  const int64_t channels = in.size[1] / w.groups, columns = out.size[1] / w.groups;
  WinogradArguments p{};
  p.channels = static_cast<uint32_t>(channels);
  p.columns = static_cast<uint32_t>(columns);
  p.groups = static_cast<uint32_t>(w.groups);
  p.height = static_cast<uint32_t>(out.size[3]);
  p.width = static_cast<uint32_t>(out.size[4]);
  p.image_lines = static_cast<uint32_t>(g.image_lines);
  p.line_tiles = static_cast<uint32_t>(g.line_tiles);
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
  p.flags = description.bias_data() != nullptr ? kConvBias : 0;
  p.all = static_cast<uint32_t>(out.size[1]);
  return p;
}

/// The weight's element that windows begin with, which is their last one where they are reversed.
const char* first_of_window(const Description& description) {
  const Operand& weight = description.weight;
  if (!description.transposed()) return weight.data;
  return advance(weight.data, weight.dtype, 2 * (weight.stride[3] + weight.stride[4]));
}

NDRange items(int64_t x, int64_t y, int64_t z) {
  return NDRange::volume({static_cast<size_t>(x), static_cast<size_t>(y), static_cast<size_t>(z)},
                         {1, 1, 1});
}

void run(Description& description) {
  Device& device = description.device;
  Queue& queue = description.queue;
  const Operand &in = description.source(), &out = description.result(),
                &weight = description.weight;
  const Window& w = description.window;
  const void* const bias = description.bias_data();
  const int64_t channels = in.size[1] / w.groups, columns = out.size[1] / w.groups;
  const int64_t positions = out.size[3] * out.size[4];
  const gemm::PackedParameters parameters =
      gemm::parameters_of(device, sizeof(float), false).packed;
  const Geometry g = geometry_of(description);

  WinogradArguments p = arguments_of(description, g);
  const char* const window = first_of_window(description);
  const bool last = description.epilogue != nullptr && description.epilogue->channels_last;
  const Epilogue* const epilogue = description.take_epilogue(last);
  p.plane = static_cast<uint32_t>(last ? 0 : positions);

  const int vectors = columns > parameters.width ? 2 : 1;
  const int64_t panel_columns = int64_t{parameters.width} * vectors;
  const int64_t panels = ceil_div(columns, panel_columns);
  const int64_t panel_bytes = kPoints * channels * panel_columns * int64_t{sizeof(float)};
  // A large panel is not read again for every strip.
  const int64_t shared = panel_bytes > device_row(device).reread_bytes ? kMostStrips : 1;
  p.strips = static_cast<uint32_t>(shared);
  const int64_t lanes =
      std::min<int64_t>(parameters.width, std::bit_floor(static_cast<uint64_t>(g.line_tiles)));
  const int64_t wanted_items = items_of_cores(device, 2);

  const int64_t step = images_at_a_time(device, in.size[0], copy_bytes(in, g.reach));
  const int64_t line_bytes = kPoints * g.line_tiles * in.size[1] * int64_t{sizeof(float)};
  const int64_t lines_at_once = images_at_a_time(device, step * g.image_lines, line_bytes);
  const int64_t panels_bytes = w.groups * panels * panel_bytes;
  const c10::DataPtr memory =
      allocator()->allocate(static_cast<size_t>(panels_bytes + lines_at_once * line_bytes));
  const auto* const panels_at = static_cast<const char*>(memory.get());
  const char* const tiles_at = panels_at + panels_bytes;

  for (int64_t image = 0; image < in.size[0]; image += step) {
    const int64_t images = std::min(step, in.size[0] - image);
    const Source source = source_of(in, image, images, g.reach);
    p.in_image = source.stride[0];
    p.in_channel = source.stride[1];
    p.in_row = source.stride[3];
    p.in_column = source.stride[4];
    const char* origin =
        source.data - (g.pad[0] * p.in_row + g.pad[1] * p.in_column) * int64_t{sizeof(float)};
    const char* const result = advance(out.data, out.dtype, image * out.stride[0]);
    const Pointer addend{bias != nullptr ? bias : result};
    // Each kernel has a program of its own, for they depend on different parameters.
    const int64_t run_of_tiles = source.channels_last ? parameters.width : lanes;
    const std::array<Define, 5> of_weight{{{"C", "f32"},
                                           {"IN", tag(weight.dtype)},
                                           {"WIDTH", parameters.width},
                                           {"NV", vectors},
                                           {"ONLY", 1}}};
    const std::array<Define, 4> of_input{{{"C", "f32"},
                                          {"LANES", run_of_tiles},
                                          {"CHANNELS_LAST", source.channels_last},
                                          {"ONLY", 2}}};
    const std::array<Define, 9> of_sums{{{"C", "f32"},
                                         {"IN", tag(weight.dtype)},
                                         {"OUT", tag(out.dtype)},
                                         {"WIDTH", parameters.width},
                                         {"MR", g.strip},
                                         {"NV", vectors},
                                         {"CHANNELS_LAST", source.channels_last},
                                         {"RESULT_LAST", out.stride[1] == 1},
                                         {"ONLY", 3}}};
    if (image == 0) {
      p.block = static_cast<uint32_t>(
          std::clamp<int64_t>(w.groups * panels * channels / wanted_items, 1, channels));
      launch(weight_family.get(device, of_weight), queue,
             items(ceil_div(channels, p.block), panels, w.groups), Pointer{window},
             Pointer{panels_at}, p);
    }
    for (int64_t line = 0; line < images * g.image_lines; line += lines_at_once) {
      const int64_t lines = std::min(lines_at_once, images * g.image_lines - line);
      p.first_line = static_cast<uint32_t>(line);
      p.lines = static_cast<uint32_t>(lines);
      const int64_t parts = source.channels_last ? g.line_tiles : in.size[1];
      p.block = static_cast<uint32_t>(std::clamp<int64_t>(lines * parts / wanted_items, 1, parts));
      launch(input_family.get(device, of_input), queue, items(ceil_div(parts, p.block), lines, 1),
             Pointer{origin}, Pointer{tiles_at}, p);
      const int64_t all = ceil_div(lines * g.strips, shared);
      p.block = static_cast<uint32_t>(
          std::clamp<int64_t>(all * panels * w.groups / wanted_items, 1, 64 / shared) * shared);
      p.position0 = static_cast<uint64_t>(image * positions);
      launch_with(epilogue, family_with(epilogue, sums_family).get(device, of_sums), queue,
                  items(panels, ceil_div(lines * g.strips, p.block), w.groups), Pointer{origin},
                  Pointer{window}, Pointer{panels_at}, Pointer{tiles_at}, addend, Pointer{result},
                  p);
    }
  }
}

}  // namespace

const Implementation winograd{"winograd", refuse, run};

}  // namespace ocl::conv
