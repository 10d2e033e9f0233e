#include "engine/conv/epilogue.h"

#include <algorithm>
#include <array>

#include "engine/conv/dtype.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::conv {

bool takes_other_tensors(const Device& device, bool channels_last, bool depthwise) {
  return !device.is_cpu() || channels_last || depthwise;
}

void apply(const MatrixEpilogue& epilogue, const void* memory, c10::ScalarType dtype, int64_t first,
           int64_t rows, int64_t columns) {
  static const KernelFamily family{"conv/epilogue.cl", "conv_epilogue"};
  constexpr int64_t kLeastBlock = 4096, kMostBlock = 65536;  // elements of a CPU's work-item
  const int64_t elements = rows * columns;
  if (elements == 0) return;
  Queue& queue = current_queue(current_device());
  Device& device = queue.device();
  const bool cpu = device.is_cpu();
  const int64_t share = ceil_div(elements, int64_t{items_of_cores(device, 2)});
  const int64_t block = cpu ? std::clamp(share, kLeastBlock, kMostBlock) : 1;
  const size_t group = cpu ? 1 : group_of_lanes(device);
  const std::array<Define, 2> defines{{{"C", sums_tag(computed_in(dtype))}, {"OUT", tag(dtype)}}};
  launch_with(
      &epilogue.epilogue, family_with(&epilogue.epilogue, family).get(device, defines), queue,
      NDRange::linear(static_cast<size_t>(ceil_div(elements, block)), group).of_work(elements),
      Pointer{memory}, static_cast<cl_ulong>(first), static_cast<cl_ulong>(elements),
      static_cast<cl_ulong>(columns), static_cast<uint32_t>(block));
}

void apply(const MatrixEpilogue& epilogue, const at::Tensor& out) {
  const int64_t channels = out.size(1);
  const int64_t columns =
      epilogue.channels_last ? channels : out.numel() / (out.size(0) * channels);
  apply(epilogue, out.const_data_ptr(), out.scalar_type(), 0, out.numel() / columns, columns);
}

}  // namespace ocl::conv
