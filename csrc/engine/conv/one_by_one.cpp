// Convolutions with windows of one element in planes, by x86's AVX-512
// (kernels/conv/one_by_one.cl).
#include <algorithm>

#include "engine/conv/description.h"
#include "engine/device_table.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::conv {

namespace {

using namespace kernel_types;
#include "conv/one_by_one_arguments.clh"

/// Tiles of a work-item at most: their positions of all planes stay in its second cache.
constexpr int64_t kMostTiles = 16;

const char* refuse(const Description& description) {
  const Operand &in = description.source(), &out = description.result();
  if (!description.device.properties().has_avx512 || !description.device.is_cpu()) {
    return "there is no AVX-512";
  }
  if (description.pass == Pass::weight_gradient) return "it doesn't serve gradients of weights";
  if (!description.window.has_single_elements())
    return "windows have several elements, or lie apart";
  for (const Operand* one : {&in, &out, &description.weight}) {
    if (one->dtype != c10::ScalarType::Float) return "not all is float32";
  }
  if (position_stride(in) != 1 || position_stride(out) != 1)
    return "positions don't lie side by side";
  if (in.size[2] * in.size[3] * in.size[4] < ONE_BY_ONE_COLUMNS) return "planes are small";
  if (out.size[1] < ONE_BY_ONE_ROWS || in.size[1] == 0) return "channels are few";
  return nullptr;
}

void run(Description& description) {
  static const KernelFamily family{"conv/one_by_one.cl", "one_by_one"};
  Device& device = description.device;
  const Operand &in = description.source(), &out = description.result(),
                &weight = description.weight;
  const bool transposed = description.transposed();
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  const int64_t images = in.size[0], channels = in.size[1], rows = out.size[1];
  const int64_t positions = in.size[2] * in.size[3] * in.size[4];
  const int64_t tiles = ceil_div(positions, ONE_BY_ONE_COLUMNS),
                panels = ceil_div(rows, ONE_BY_ONE_ROWS);
  OneByOneArguments p{};
  p.in_image = in.stride[0], p.in_channel = in.stride[1];
  p.out_image = out.stride[0], p.out_channel = out.stride[1];
  p.weight_row = weight.stride[transposed ? 1 : 0];
  p.weight_channel = weight.stride[transposed ? 0 : 1];
  p.channels = number(channels), p.rows = number(rows);
  p.positions = number(positions), p.tiles = number(tiles);
  p.has_bias = description.bias_data() != nullptr;
  // Work-items are as long as leaves every core some, for they share positions and rows.
  const int64_t wanted = items_of_cores(device, 2);
  p.block = number(std::clamp<int64_t>(images * tiles / wanted, 1, kMostTiles));
  const int64_t items = images * ceil_div(tiles, int64_t{p.block});
  p.panels = number(ceil_div(panels, std::clamp<int64_t>(ceil_div(wanted, items), 1, panels)));
  const auto range = [](int64_t x, int64_t y, int64_t z) {
    return NDRange::volume({static_cast<size_t>(x), static_cast<size_t>(y), static_cast<size_t>(z)},
                           {1, 1, 1});
  };
  const Epilogue* const epilogue = description.take_epilogue(false);
  const void* const bias = description.bias_data();
  launch_with(epilogue, family_with(epilogue, family).get(device, {}), description.queue,
              range(ceil_div(tiles, int64_t{p.block}), ceil_div(panels, int64_t{p.panels}), images),
              Pointer{in.data}, Pointer{weight.data}, Pointer{bias != nullptr ? bias : out.data},
              Pointer{out.data}, p);
}

}  // namespace

const Implementation one_by_one{"one_by_one", refuse, run};

}  // namespace ocl::conv
