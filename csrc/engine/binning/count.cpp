#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/binning/count.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "engine/ceil_div.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl {

namespace {

constexpr int64_t kSlice = int64_t{1} << 31;  // elements that a uint counter holds
constexpr int64_t kElementsPerItem = 4096;
constexpr int64_t kLocalBins = 4096;  // 16 KiB, half of what every OpenCL device has
constexpr size_t kGroup = 256;

const KernelFamily private_family{"binning/count.cl", "count_private"};
const KernelFamily atomic_family{"binning/count.cl", "count_atomic"};
const KernelFamily local_family{"binning/count.cl", "count_local"};
const KernelFamily finish_family{"binning/count.cl", "count_finish"};

using namespace kernel_types;
#include "binning/arguments.clh"

void count_slice(const at::Tensor& bins, const at::Tensor& out) {
  Queue& queue = current_queue(bins.device().index());
  Device& device = queue.device();
  const int64_t n = bins.numel(), size = out.numel();
  const int64_t units = device.properties().compute_units;
  const bool cpu = device.is_cpu();
  // Copies cost a pass over all of their counters.
  const int64_t copies =
      !cpu ? 1 : std::max<int64_t>(1, std::min({units * 4, n / kElementsPerItem, 2 * n / size}));
  const auto options = bins.options().dtype(at::kInt);
  const at::Tensor counters =
      cpu ? at::empty({copies * size}, options) : at::zeros({size}, options);
  const Pointer in{bins.const_data_ptr()}, middle{counters.mutable_data_ptr()},
      result{out.mutable_data_ptr()};
  const Arguments arguments{bins.stride(0) * bins.element_size(),
                            out.stride(0) * out.element_size(),
                            static_cast<uint32_t>(n),
                            static_cast<uint32_t>(ceil_div(n, copies)),
                            static_cast<uint32_t>(size),
                            static_cast<uint32_t>(copies)};
  const bool local = !cpu && size <= kLocalBins;
  const auto get = [&](const KernelFamily& family) -> Kernel& {
    return family.get(device, {{"INDEX", tag(bins.scalar_type())},
                               {"OUT", tag(out.scalar_type())},
                               {"LOCAL_BINS", local ? kLocalBins : 16}});
  };
  if (cpu) {
    launch(get(private_family), queue, NDRange::linear(copies, 1), in, middle, arguments);
  } else {
    const size_t items = std::min<size_t>(n, static_cast<size_t>(units) * 8 * kGroup);
    launch(get(local ? local_family : atomic_family), queue, NDRange::linear(items, kGroup), in,
           middle, arguments);
  }
  launch(get(finish_family), queue, NDRange::linear(size, 64), middle, result, arguments);
}

}  // namespace

void count(const at::Tensor& bins, const at::Tensor& counts) {
  if (bins.numel() == 0 || counts.numel() == 0) return;
  TORCH_CHECK_NOT_IMPLEMENTED(counts.numel() <= UINT32_MAX, "ocl: a histogram of ", counts.numel(),
                              " bins");
  for (int64_t first = 0; first < bins.numel(); first += kSlice) {
    count_slice(bins.narrow(0, first, std::min(kSlice, bins.numel() - first)), counts);
  }
}

}  // namespace ocl
