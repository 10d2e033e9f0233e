// torchvision::nms: a matrix of bits of the pairs that overlap, and a pass over it.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/DtypeChecks.h"
#include "ops/vision/vision.h"
#include "runtime/device_guard.h"

namespace ocl::vision {

namespace {

#include "vision/nms_arguments.clh"

const KernelFamily mask_family{"vision/nms.cl", "nms_mask"};
const KernelFamily scan_family{"vision/nms.cl", "nms_scan"};

/// Bytes of the matrix, which is made and passed over in parts if it is larger.
constexpr int64_t kMaskBytes = int64_t{64} << 20;

/// Overlaps are numbers of the dtype computed in, and the threshold is a double. Above it is what
/// is above the largest such number that does not pass it.
ScalarArgument threshold_of(at::ScalarType acc, double threshold) {
  if (acc == at::kFloat) {
    auto narrow = static_cast<float>(threshold);
    if (narrow > threshold) {
      narrow = std::nextafter(narrow, -std::numeric_limits<float>::infinity());
    }
    threshold = narrow;
  }
  return scalar_argument(acc, threshold);
}

}  // namespace

at::Tensor nms(const at::Tensor& dets, const at::Tensor& scores, double iou_threshold) {
  TORCH_CHECK(dets.dim() == 2, "boxes should be a 2d tensor, got ", dets.dim(), "D");
  TORCH_CHECK(dets.size(1) == 4, "boxes should have 4 elements in dimension 1, got ", dets.size(1));
  TORCH_CHECK(scores.dim() == 1, "scores should be a 1d tensor, got ", scores.dim(), "D");
  TORCH_CHECK(dets.size(0) == scores.size(0),
              "boxes and scores should have same number of elements in dimension 0, got ",
              dets.size(0), " and ", scores.size(0));
  TORCH_CHECK(dets.scalar_type() == scores.scalar_type(),
              "dets should have the same type as scores");
  TORCH_CHECK(dets.device() == scores.device(), "dets is on ", dets.device(), ", scores is on ",
              scores.device());
  const at::ScalarType dtype = dets.scalar_type(), acc = compute_dtype(dtype);
  native::check_supported("nms_kernel", dtype,
                          dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf);
  const int64_t n = dets.size(0);
  TORCH_CHECK_NOT_IMPLEMENTED(n < INT32_MAX, "ocl: nms of 2^31 boxes or more");
  const auto longs = dets.options().dtype(at::kLong), ints = dets.options().dtype(at::kInt);
  if (n == 0) return at::empty({0}, longs);
  const DeviceGuard guard(dets.device());

  const at::Tensor order =
      std::get<1>(at::sort(scores, /*stable=*/true, /*dim=*/0, /*descending=*/true));
  const at::Tensor boxes = dets.index_select(0, order).contiguous();
  const int64_t words = ceil_div(n, kBits);
  const int64_t most_rows = std::max<int64_t>(kMaskBytes / (words * 4) / kBits * kBits, kBits);
  const at::Tensor mask = at::empty({std::min(n, most_rows), words}, ints);
  const at::Tensor removed = at::zeros({words}, ints);
  const at::Tensor keep = at::empty({n + 1}, longs);
  keep.select(0, 0).zero_();

  Queue& queue = current_queue(dets.device().index());
  Device& device = queue.device();
  const size_t group = device.is_cpu() ? 1
                                       : std::min(group_of_elements(device),
                                                  device.properties().max_work_group_size);
  const auto get = [&](const KernelFamily& family) -> Kernel& {
    return family.get(device, {{"IN", tag(dtype)}, {"ACC", tag(acc)}, {"GROUP", group}});
  };
  const ScalarArgument threshold = threshold_of(acc, iou_threshold);
  const auto u32 = [](int64_t number) { return static_cast<uint32_t>(number); };
  for (int64_t first = 0; first < n; first += most_rows) {
    const int64_t rows = std::min(most_rows, n - first);
    launch(get(mask_family), queue,
           NDRange::grid(rows, words - first / kBits, group_of_lanes(device), 1)
               .of_work(rows * (n - first)),
           Pointer{mask.mutable_data_ptr()}, Pointer{boxes.const_data_ptr()}, u32(n), u32(first),
           u32(rows), u32(words), threshold);
    launch(get(scan_family), queue, NDRange::linear(group, group), Pointer{mask.const_data_ptr()},
           Pointer{removed.mutable_data_ptr()}, Pointer{order.const_data_ptr()},
           Pointer{keep.mutable_data_ptr()}, u32(first), u32(rows), u32(words));
  }
  // A copy, which takes no more memory than it needs.
  return keep.narrow(0, 1, keep.select(0, 0).item<int64_t>()).clone();
}

}  // namespace ocl::vision
