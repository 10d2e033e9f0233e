// The input's copy with zeros around it, in the dtype computed with (kernels/conv/pad.cl).
#include <algorithm>
#include <bit>

#include "engine/conv/source.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/lanes.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::conv {

namespace {

using namespace kernel_types;
#include "conv/pad_arguments.clh"

/// Elements of a copy that are worth a CPU's work-item: twice those of arithmetic.
int64_t item_elements(const Device& device) { return 2 * device_row(device).item_elements; }

/// A copy of channels last whose positions are side by side.
void run_transposed_copy(Device& device, Queue& queue, const PaddedCopy& copy,
                         PadArguments& arguments) {
  static const KernelFamily family{"conv/pad.cl", "conv_pad_transposed"};
  const int64_t lines = copy.size[0] * copy.size[2] * copy.size[3];
  const auto lanes = static_cast<int64_t>(longest_lanes(copy.dtype));
  const int64_t per_item =
      std::max<int64_t>(item_elements(device) / (copy.size[1] * copy.size[4]), 1);
  arguments.rows = static_cast<uint32_t>(lines);
  arguments.rows_per_item = static_cast<uint32_t>(per_item);
  launch(family.get(device, {{"IN", tag(copy.in_dtype)},
                             {"C", sums_tag(copy.dtype)},
                             {"WIDTH", lanes},
                             {"SHARED_ROWS", false},
                             {"ONLY", 2}}),
         queue, NDRange::linear(static_cast<size_t>(ceil_div(lines, per_item)), 1),
         Pointer{copy.in}, Pointer{copy.copy}, arguments);
}

}  // namespace

void run_padded_copy(const PaddedCopy& copy) {
  static const KernelFamily family{"conv/pad.cl", "conv_pad"};
  Queue& queue = current_queue(current_device());
  Device& device = queue.device();
  PadArguments arguments{};
  int64_t rows = 1;
  for (size_t d = 0; d < 5; ++d) {
    arguments.stride[d] = copy.stride[d];
    arguments.size[d] = static_cast<uint32_t>(copy.size[d]);
    arguments.source[d] = static_cast<uint32_t>(copy.source[d]);
    arguments.before[d] = static_cast<int32_t>(copy.before[d]);
    if (d < 4) rows *= copy.size[d];
  }
  const bool cpu = device.is_cpu();
  const auto lanes = static_cast<int64_t>(longest_lanes(copy.dtype));
  if (cpu && copy.stride[1] == 1 && copy.stride[4] != 1 && copy.source[1] >= lanes &&
      copy.size[1] == copy.source[1] && copy.source[4] >= lanes) {
    run_transposed_copy(device, queue, copy, arguments);
    return;
  }
  if (copy.size[4] == copy.source[4] && copy.stride[4] == 1 && copy.stride[3] == copy.size[4]) {
    // Channels that lie innermost: longer rows, of all of a line's elements.
    for (size_t d = 4; d > 0; --d) {
      const bool joined = d == 4;
      arguments.stride[d] = joined ? 1 : copy.stride[d - 1];
      const auto channels = static_cast<uint32_t>(joined ? copy.size[4] : 1);
      arguments.size[d] = static_cast<uint32_t>(copy.size[d - 1]) * channels;
      arguments.source[d] = static_cast<uint32_t>(copy.source[d - 1]) * channels;
      arguments.before[d] =
          static_cast<int32_t>(copy.before[d - 1]) * static_cast<int32_t>(channels);
    }
    arguments.size[0] = arguments.source[0] = 1;
    arguments.before[0] = 0;
    rows /= copy.size[3];
  }
  const auto length = static_cast<size_t>(arguments.size[4]);
  arguments.rows = static_cast<uint32_t>(rows);
  const int width = cpu && copy.stride[4] == 1 ? static_cast<int>(longest_lanes(copy.dtype)) : 1;
  const int64_t per_item =
      cpu ? std::max<int64_t>(item_elements(device) / std::max<int64_t>(arguments.size[4], 1), 1)
          : std::clamp<int64_t>(
                rows * static_cast<int64_t>(length) / device_row(device).spread_copies, 1, 8);
  arguments.rows_per_item = static_cast<uint32_t>(per_item);
  const auto items = static_cast<size_t>(ceil_div(rows, per_item));
  // On a GPU neighbouring work-items share a row; a work-group takes several short ones.
  const size_t group = group_of_rows(device);
  const size_t across = std::min<size_t>(std::bit_ceil(std::max<size_t>(length, 1)), group);
  const NDRange range =
      cpu ? NDRange::grid(1, items, 1, 1)
          : NDRange::grid(std::min<size_t>(length, 512), items, across, group / across);
  launch(family.get(device, {{"IN", tag(copy.in_dtype)},
                             {"C", sums_tag(copy.dtype)},
                             {"WIDTH", width},
                             {"SHARED_ROWS", !cpu},
                             {"ONLY", 1}}),
         queue, range, Pointer{copy.in}, Pointer{copy.copy}, arguments);
}

}  // namespace ocl::conv
