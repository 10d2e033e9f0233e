#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/spatial/spatial.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::spatial {

namespace {

// On a CPU, large tensors have longer work-items, up to so many times what is worth one.
constexpr int64_t kLongest = 8;
constexpr int64_t kMaxElements = int64_t{1} << 32;
constexpr int64_t kMaxRows = int64_t{1} << 31;

/// Sets what a kernel multiplies by and shifts right by to divide numbers below 2^31 by `divisor`.
void set_divisor(Arguments& arguments, int i, uint32_t divisor) {
  const auto shift = static_cast<uint32_t>(std::bit_width(divisor - 1));
  const uint64_t one = 1;
  arguments.shift[i] = shift;
  arguments.magic[i] =
      static_cast<uint32_t>((one << 32) * ((one << shift) - divisor) / divisor + 1);
}

int64_t extent(const Operand& operand) {
  int64_t last = 0;
  for (int d = 0; d < 5; ++d) last += (operand.size[d] - 1) * operand.stride[d];
  return last + 1;
}

bool fits(std::span<const Operand> operands, bool cpu) {
  const auto& size = operands[0].size;
  const int64_t elements = size[0] * size[1] * size[2] * size[3] * size[4];
  // A GPU's work-items, one for each element, are counted in 31 bits (see DIVIDED in spatial.clh).
  if (!cpu && elements >= kMaxRows - (1 << 20)) return false;
  return size[0] * size[1] * size[2] * size[3] < kMaxRows && size[4] < kMaxRows &&
         std::ranges::all_of(
             operands, [](const Operand& each) { return extent(each) < kMaxElements; });
}

/// Elements [begin, begin + count) along one of the first two dimensions; operands that all share
/// have size 1 there.
Operand narrow(Operand operand, int dim, int64_t begin, int64_t count) {
  if (operand.size[dim] == 1) return operand;
  operand.data += begin * operand.stride[dim] * static_cast<int64_t>(operand.element_size);
  operand.size[dim] = count;
  return operand;
}

/// Whether the elements of operands[0] lie in memory with their channels innermost.
bool channels_inner(const Operand& out) {
  return out.size[1] > 1 && out.stride[1] == 1 && (out.size[4] == 1 || out.stride[4] > 1);
}

/// Adjacent channels that a work-item takes at a time, where the channels of operands[0] are
/// innermost. On a GPU it has four: whole vectors, aligned ones, of which there are enough.
uint32_t channel_lanes(const Device& device, std::span<const Operand> operands,
                       const Access& access) {
  if (!std::ranges::all_of(operands, [](const Operand& each) { return each.stride[1] == 1; })) {
    return 1;
  }
  const Operand& out = operands[0];
  if (device.is_cpu()) {
    uint32_t lanes = 1;
    while (2 * lanes <= static_cast<uint32_t>(access.channel_lanes) && 2 * lanes <= out.size[1]) {
      lanes *= 2;
    }
    return lanes;
  }
  constexpr int64_t kLanes = 4;
  const auto aligned = [](const Operand& each) {
    const auto vector = kLanes * static_cast<int64_t>(each.element_size);
    if (reinterpret_cast<intptr_t>(each.data) % vector != 0) return false;
    return each.stride[0] % kLanes == 0 && each.stride[2] % kLanes == 0 &&
           each.stride[3] % kLanes == 0 && each.stride[4] % kLanes == 0;
  };
  const int64_t elements = out.size[0] * out.size[1] * out.size[2] * out.size[3] * out.size[4];
  const bool enough = elements >= device_row(device).spread_elements;  // for all work-items
  return access.channel_lanes >= kLanes && enough && out.size[1] % kLanes == 0 &&
                 std::ranges::all_of(operands, aligned)
             ? kLanes
             : 1;
}

}  // namespace

Operand operand(const at::Tensor& tensor, int axes) {
  Operand result;
  result.data = static_cast<char*>(tensor.data_ptr());
  result.element_size = tensor.itemsize();
  const int64_t missing = tensor.dim() - axes == 1 ? 1 : 0;  // no batch
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const int64_t to = d + missing < 2 ? d + missing : d + missing + (3 - axes);
    result.size[to] = tensor.size(d);
    result.stride[to] = tensor.size(d) == 1 ? 0 : tensor.stride(d);
  }
  if (result.size[1] == 1) result.stride[1] = 1;
  return result;
}

bool sums_by_plane(const at::Tensor& out, int axes) {
  const Device& device = ocl::device(out.device().index());
  if (!device.is_cpu() || compute_dtype(out.scalar_type()) != out.scalar_type()) return false;
  const Operand planes = operand(out, axes);
  int64_t expected = 1;
  for (int d = 4; d >= 2; --d) {
    if (planes.size[d] != 1 && planes.stride[d] != expected) return false;
    expected *= planes.size[d];
  }
  return planes.size[0] * planes.size[1] >= 2 * int64_t{device.properties().compute_units};
}

bool sums_by_channels(const at::Tensor& out, int axes, int lanes) {
  const Device& device = ocl::device(out.device().index());
  if (!device.is_cpu() || compute_dtype(out.scalar_type()) != out.scalar_type()) return false;
  const Operand planes = operand(out, axes);
  if (!channels_inner(planes) || planes.size[1] < lanes) return false;
  int64_t expected = planes.stride[4];
  for (int d = 4; d >= 2; --d) {
    if (planes.size[d] != 1 && planes.stride[d] != expected) return false;
    expected *= planes.size[d];
  }
  const int64_t items = planes.size[0] * (planes.size[1] / lanes);
  return items >= 2 * int64_t{device.properties().compute_units};
}

Operand planes_of(const Operand& operand) {
  Operand planes = operand;
  planes.size = {operand.size[0], operand.size[1], 1, 1, 1};
  return planes;
}

void run(const KernelFamily& family, std::initializer_list<Define> defines,
         std::span<const Operand> operands, const Access& access, const void* parameters,
         size_t parameters_size) {
  const Operand& out = operands[0];
  if (std::ranges::find(out.size, 0) != out.size.end()) return;
  Queue& queue = current_queue(current_device());
  Device& device = queue.device();
  const bool cpu = device.is_cpu();
  if (!fits(operands, cpu)) {
    const int dim = out.size[0] > 1 ? 0 : 1;
    const int64_t count = out.size[dim], half = count / 2;
    TORCH_CHECK_NOT_IMPLEMENTED(count > 1, "ocl: ", family.name(),
                                " of channels past 2^32 elements");
    for (const int64_t begin : {int64_t{0}, half}) {
      std::vector<Operand> parts;
      for (const Operand& each : operands) {
        parts.push_back(narrow(each, dim, begin, begin == 0 ? half : count - half));
      }
      run(family, defines, parts, access, parameters, parameters_size);
    }
    return;
  }
  const bool inner = !access.along_width && channels_inner(out);
  const uint32_t width = inner ? channel_lanes(device, operands, access) : 1;

  Arguments arguments{};
  std::array<char*, kMaxOperands> data{};
  for (size_t k = 0; k < operands.size(); ++k) {
    data[k] = operands[k].data;
    for (int d = 0; d < 5; ++d) {
      arguments.stride[k][d] = static_cast<uint32_t>(operands[k].stride[d]);
    }
  }
  for (int axis = 0; axis < 3; ++axis) {
    arguments.size[axis] = static_cast<uint32_t>(out.size[2 + axis]);
    arguments.other[axis] = static_cast<uint32_t>(operands[1].size[2 + axis]);
  }
  arguments.channels = static_cast<uint32_t>(out.size[1]);
  const int64_t planes = out.size[0] * out.size[2] * out.size[3];
  arguments.rows = static_cast<uint32_t>(planes * out.size[inner ? 4 : 1]);
  arguments.inner =
      inner ? ceil_div(arguments.channels, width) : static_cast<uint32_t>(out.size[4]);
  arguments.span = 1;
  arguments.rows_per_item = 1;
  if (cpu) {
    const int64_t worthwhile = device_row(device).item_elements;
    const int64_t steps = int64_t{arguments.rows} * arguments.inner;
    const int64_t work = steps * width * access.cost / items_of_cores(device, 4);
    const int64_t copies = std::clamp(work, worthwhile, kLongest * worthwhile);
    const auto per_item = static_cast<uint32_t>(std::max<int64_t>(copies / access.cost / width, 1));
    const uint32_t longest = access.longest_span == 0 ? per_item : access.longest_span;
    arguments.span = std::min(arguments.inner, longest);
    arguments.rows_per_item = std::clamp(per_item / arguments.span, 1u, arguments.rows);
  } else {
    const int64_t elements = int64_t{arguments.rows} * arguments.inner;
    const DeviceRow& row = device_row(device);
    arguments.rows_per_item = static_cast<uint32_t>(
        std::clamp<int64_t>(elements / row.spread_elements, 1, row.most_spread));
  }
  arguments.chunks = ceil_div(arguments.inner, arguments.span);
  set_divisor(arguments, 0, arguments.size[0]);
  set_divisor(arguments, 1, arguments.size[1]);
  set_divisor(arguments, 2, arguments.size[2]);
  set_divisor(arguments, 3, arguments.channels);
  set_divisor(arguments, 4, arguments.chunks);
  const size_t items = size_t{arguments.chunks} * ceil_div(arguments.rows, arguments.rows_per_item);

  c10::SmallVector<Define, 16> all{{"CHANNELS_INNER", inner}, {"WIDTH", width}};
  if (!cpu && width > 1) all.push_back({"ALIGNED_VECTORS", 1});
  all.append(defines);
  Kernel& kernel = family.get(device, std::span<const Define>(all.data(), all.size()));
  const auto go = [&](const auto&... checks) {
    launch(kernel, queue, NDRange::linear(items, cpu ? 1 : group_of_rows(device)),
           Pointers{{data.data(), operands.size()}}, arguments, Bytes{parameters, parameters_size},
           checks...);
  };
  if (access.checks != nullptr) {
    go(device.asserts().mem(), access.checks->id());
  } else {
    go();
  }
}

}  // namespace ocl::spatial
