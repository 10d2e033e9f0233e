// Launches kernels/sort/consecutive.cl.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/dtype.h"
#include "engine/sort/runs.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::sort {

namespace {

constexpr uint32_t kMinChunk = 256;
constexpr int64_t kMostElements = int64_t{1} << 31;

const KernelFamily count_family{"sort/consecutive.cl", "consecutive_count"};
const KernelFamily write_family{"sort/consecutive.cl", "consecutive_write"};

}  // namespace

const char* refuse_consecutive(const at::Tensor& flat) {
  if (!current_queue(flat.device().index()).device().is_cpu()) return "only for CPU devices";
  if (!flat.is_contiguous()) return "the elements lie apart";
  if (flat.is_complex()) return "complex numbers";
  return flat.numel() == 0 || flat.numel() >= kMostElements ? "none, or 2^31 elements and more"
                                                            : nullptr;
}

Consecutive consecutive(const at::Tensor& flat, bool wants_inverse, bool wants_starts) {
  Queue& queue = current_queue(flat.device().index());
  Device& device = queue.device();
  const auto n = static_cast<uint32_t>(flat.numel());
  const uint32_t chunk = std::max(kMinChunk, n / (wanted_items(device) * 4) + 1);
  const uint32_t chunks = ceil_div(n, chunk);
  const auto longs = flat.options().dtype(at::kLong);
  const at::Tensor counts = at::empty({int64_t{chunks} + 1}, flat.options().dtype(at::kInt));
  const auto get = [&](const KernelFamily& family) -> Kernel& {
    return family.get(
        device,
        {{"E", tag(flat.scalar_type())}, {"INVERSE", wants_inverse}, {"STARTS", wants_starts}});
  };
  const NDRange range = NDRange::linear(chunks, 1);
  launch(get(count_family), queue, range, Pointer{flat.const_data_ptr()},
         Pointer{counts.mutable_data_ptr()}, n, chunk);
  scan_counts(queue, counts.mutable_data_ptr(), chunks, 1);
  const int64_t total = counts.select(0, chunks).item<int32_t>();
  Consecutive result{at::empty({total}, flat.options()), {}, {}};
  if (wants_inverse) result.inverse = at::empty({n}, longs);
  if (wants_starts) result.starts = at::empty({total + 1}, longs);
  const auto pointer = [](const at::Tensor& tensor) {
    return Pointer{tensor.defined() ? tensor.mutable_data_ptr() : nullptr};
  };
  launch(get(write_family), queue, range, Pointer{flat.const_data_ptr()},
         Pointer{counts.const_data_ptr()}, pointer(result.firsts), pointer(result.starts),
         pointer(result.inverse), n, chunk);
  return result;
}

}  // namespace ocl::sort
