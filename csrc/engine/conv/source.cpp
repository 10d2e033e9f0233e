#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/source.h"

#include <algorithm>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "runtime/allocator.h"

namespace ocl::conv {

namespace {

int64_t padded_size(const Operand& tensor, const Reach& reach, int axis) {
  return std::max(reach.high[axis] + 1, tensor.size[2 + axis]) -
         std::min<int64_t>(reach.low[axis], 0);
}

}  // namespace

bool needs_copy(const Operand& tensor, const Reach& reach) {
  if (computed_in(tensor.dtype) != tensor.dtype) return true;
  for (int axis = 0; axis < kAxes; ++axis) {
    if (reach.low[axis] < 0 || reach.high[axis] >= tensor.size[2 + axis]) return true;
  }
  return false;
}

Source source_of(const Operand& tensor, int64_t first, int64_t count, const Reach& reach,
                 bool planes) {
  Source source;
  const auto size = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const char* data = tensor.data + first * tensor.stride[0] * size;
  source.channels_last = tensor.size[1] > 1 && tensor.stride[1] == 1;
  planes = planes && source.channels_last;
  if (!planes && !needs_copy(tensor, reach)) {
    source.data = data;
    source.stride = tensor.stride;
    return source;
  }
  if (planes) source.channels_last = false;
  PaddedCopy padded;
  padded.in = data;
  padded.in_dtype = tensor.dtype;
  padded.dtype = computed_in(tensor.dtype);
  // Dimensions as the copy has them: outermost first.
  const std::array<int, 5> order =
      source.channels_last ? std::array{0, 2, 3, 4, 1} : std::array{0, 1, 2, 3, 4};
  for (int d = 0; d < 5; ++d) {
    const int from = order[static_cast<size_t>(d)];
    padded.source[d] = from == 0 ? count : tensor.size[from];
    padded.size[d] = from < 2 ? padded.source[d] : padded_size(tensor, reach, from - 2);
    padded.before[d] = from < 2 ? 0 : std::max<int64_t>(-reach.low[from - 2], 0);
    padded.stride[d] = tensor.stride[from];
  }
  int64_t stride = 1, origin = 0;
  for (int d = 4; d >= 0; --d) {
    source.stride[order[static_cast<size_t>(d)]] = stride;
    origin += padded.before[d] * stride;
    stride *= padded.size[d];
  }
  const auto compute_size = static_cast<int64_t>(c10::elementSize(padded.dtype));
  source.copy = allocator()->allocate(static_cast<size_t>(stride * compute_size));
  padded.copy = static_cast<char*>(source.copy.get());
  run_padded_copy(padded);
  source.data = padded.copy + origin * compute_size;
  return source;
}

Operand weight_channels_last(const Operand& weight, c10::DataPtr& copy) {
  PaddedCopy padded;
  padded.in = weight.data;
  padded.in_dtype = weight.dtype;
  padded.dtype = computed_in(weight.dtype);
  padded.size = {1, weight.size[2], weight.size[3], weight.size[4], weight.size[0]};
  padded.source = padded.size;
  padded.stride = {0, weight.stride[2], weight.stride[3], weight.stride[4], weight.stride[0]};
  int64_t elements = 1;
  for (const int64_t size : padded.size) elements *= size;
  copy = allocator()->allocate(static_cast<size_t>(elements) * c10::elementSize(padded.dtype));
  padded.copy = static_cast<char*>(copy.get());
  run_padded_copy(padded);
  Operand result = weight;
  result.data = padded.copy;
  result.dtype = padded.dtype;
  const int64_t c = weight.size[0], w = weight.size[4], h = weight.size[3];
  result.stride = {1, 1, c * w * h, c * w, c};
  return result;
}

int64_t images_at_a_time(const Device& device, int64_t images, int64_t bytes_per_image) {
  const DeviceProperties& properties = device.properties();
  const int64_t cache = std::min(static_cast<int64_t>(properties.last_level_cache) / 2,
                                 device_row(device).core_bytes * properties.compute_units);
  const int64_t budget =
      device.is_cpu() ? std::clamp<int64_t>(cache, 4 << 20, 64 << 20) : int64_t{256} << 20;
  const int64_t most =
      std::clamp<int64_t>(budget / std::max<int64_t>(bytes_per_image, 1), 1, images);
  return ceil_div(images, ceil_div(images, most));
}

int64_t copy_bytes(const Operand& tensor, const Reach& reach) {
  if (!needs_copy(tensor, reach)) return 0;
  int64_t elements = tensor.size[1];
  for (int axis = 0; axis < kAxes; ++axis) elements *= padded_size(tensor, reach, axis);
  return elements * static_cast<int64_t>(c10::elementSize(computed_in(tensor.dtype)));
}

}  // namespace ocl::conv
