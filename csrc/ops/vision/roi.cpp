// torchvision's poolings of boxes, and their gradients.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/DtypeChecks.h"
#include "ops/vision/sums.h"
#include "ops/vision/vision.h"
#include "runtime/device_guard.h"

namespace ocl::vision {

namespace {

using namespace kernel_types;
#include "vision/arguments.clh"

const KernelFamily align_family{"vision/roi_align.cl", "roi_align"};
const KernelFamily align_scatter{"vision/roi_align.cl", "roi_align_scatter"};
const KernelFamily align_planes{"vision/roi_align.cl", "roi_align_planes"};
const KernelFamily pool_family{"vision/roi_pool.cl", "roi_pool"};
const KernelFamily pool_scatter{"vision/roi_pool.cl", "roi_pool_scatter"};
const KernelFamily pool_planes{"vision/roi_pool.cl", "roi_pool_planes"};
const KernelFamily ps_pool_family{"vision/ps_roi_pool.cl", "ps_roi_pool"};
const KernelFamily ps_pool_scatter{"vision/ps_roi_pool.cl", "ps_roi_pool_scatter"};
const KernelFamily ps_pool_planes{"vision/ps_roi_pool.cl", "ps_roi_pool_planes"};

const AssertSite align_site{"roi_align"}, pool_site{"roi_pool"}, ps_align_site{"ps_roi_align"},
    ps_pool_site{"ps_roi_pool"};

/// One of these ops.
struct Op {
  const char* name;
  const AssertSite& site;
  bool position_sensitive;
};
const Op align_op{"roi_align", align_site, false}, pool_op{"roi_pool", pool_site, false},
    ps_align_op{"ps_roi_align", ps_align_site, true}, ps_pool_op{"ps_roi_pool", ps_pool_site, true};

void check(const Op& op, const at::Tensor& tensor, const at::Tensor& rois, const char* name) {
  TORCH_CHECK(tensor.dim() == 4, op.name, ": ", name, " should be a 4d tensor, got ", tensor.dim(),
              "D");
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5,
              "Tensor rois should have shape as Tensor[K, 5]");
  at::checkAllSameType(op.name, {at::TensorArg(tensor, name, 1), at::TensorArg(rois, "rois", 2)});
  TORCH_CHECK(tensor.device() == rois.device(), op.name, ": ", name, " is on ", tensor.device(),
              ", rois is on ", rois.device());
  const at::ScalarType dtype = tensor.scalar_type();
  native::check_supported(op.name, dtype,
                          dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf);
}

/// Arguments for an input of that shape.
BoxArguments arguments_of(const Op& op, const at::Tensor& rois, at::IntArrayRef shape,
                          int64_t pooled_height, int64_t pooled_width) {
  TORCH_CHECK(pooled_height > 0 && pooled_width > 0, op.name,
              ": pooled sizes must be positive, got ", pooled_height, " and ", pooled_width);
  const int64_t bins = pooled_height * pooled_width;
  if (op.position_sensitive) {
    TORCH_CHECK(shape[1] % bins == 0,
                "input channels must be a multiple of pooling height * pooling width");
  }
  const int64_t channels = op.position_sensitive ? shape[1] / bins : shape[1];
  TORCH_CHECK_NOT_IMPLEMENTED(c10::multiply_integers(shape) < INT32_MAX &&
                                  rois.size(0) * channels * bins < INT32_MAX &&
                                  rois.numel() < INT32_MAX,
                              "ocl: ", op.name, " of 2^31 elements or more");
  const auto u32 = [](int64_t number) { return static_cast<uint32_t>(number); };
  return {.batch = u32(shape[0]),
          .channels = u32(shape[1]),
          .height = u32(shape[2]),
          .width = u32(shape[3]),
          .boxes = u32(rois.size(0)),
          .pooled_channels = u32(channels),
          .pooled_height = u32(pooled_height),
          .pooled_width = u32(pooled_width),
          .sampling_ratio = 0,
          .aligned = 0};
}

at::Tensor result_of(const at::Tensor& like, const BoxArguments& args, at::ScalarType dtype) {
  return at::empty({args.boxes, args.pooled_channels, args.pooled_height, args.pooled_width},
                   like.options().dtype(dtype));
}

/// The channels that a work-item takes, which have the places in common. A GPU has more work-items
/// to fill.
int channels_of_item(const Device& device, const Op& op, int64_t channels) {
  if (op.position_sensitive || !device.is_cpu()) return 1;
  for (const int span : {8, 4, 2}) {
    if (channels % span == 0) return span;
  }
  return 1;
}

/// A result, and the second one that goes with it (empty for roi_align).
struct Forward {
  at::Tensor out, second;
};

Forward pool(const Op& op, const KernelFamily& family, const at::Tensor& input,
             const at::Tensor& rois, double spatial_scale, BoxArguments args, bool has_second) {
  Forward result{result_of(input, args, input.scalar_type()), {}};
  if (has_second) result.second = result_of(input, args, at::kInt);
  if (result.out.numel() == 0) return result;
  if (input.numel() == 0) {
    result.out.zero_();
    if (has_second) result.second.zero_();
    return result;
  }
  const at::Tensor in = input.contiguous(), boxes = rois.contiguous();
  const at::ScalarType dtype = input.scalar_type(), acc = compute_dtype(dtype);
  Queue& queue = current_queue(input.device().index());
  Device& device = queue.device();
  const bool aligns = &family == &align_family;
  const int span = channels_of_item(device, op, args.channels);
  const Define storage{"IN", tag(dtype)}, compute{"ACC", tag(acc)}, channels{"CHANNELS", span};
  Kernel& kernel = op.position_sensitive && aligns
                       ? family.get(device, {storage, compute, channels, {"POSITION_SENSITIVE", 1}})
                       : family.get(device, {storage, compute, channels});
  launch(kernel, queue, NDRange::linear(result.out.numel() / span, group_of_lanes(device)),
         Pointer{result.out.mutable_data_ptr()}, Pointer{in.const_data_ptr()},
         Pointer{boxes.const_data_ptr()},
         Pointer{has_second ? result.second.mutable_data_ptr() : nullptr}, args,
         scalar_argument(acc, spatial_scale), device.asserts().mem(), op.site.id());
  return result;
}

/// A gradient's kernels: by atomic sums, and by planes in a fixed order.
struct GradientKernels {
  const KernelFamily &scatter, &planes;
};

/// Launches one of them on sums that are zeros, and converts these.
template <class... Arguments>
at::Tensor gradient(const Op& op, const GradientKernels& kernels, const at::Tensor& grad,
                    at::IntArrayRef shape, bool aligns, const Arguments&... arguments) {
  const at::ScalarType dtype = grad.scalar_type(), acc = compute_dtype(dtype);
  const at::Tensor sums = at::zeros(shape, grad.options().dtype(acc));
  if (grad.numel() == 0 || sums.numel() == 0) return sums.to(dtype);
  Queue& queue = current_queue(grad.device().index());
  Device& device = queue.device();
  const bool scatters = adds_by_scatter(op.name, sums);
  const KernelFamily& family = scatters ? kernels.scatter : kernels.planes;
  const Define storage{"IN", tag(dtype)}, compute{"ACC", tag(acc)};
  const Define sensitive{"POSITION_SENSITIVE", 1}, scatter{"SCATTER", 1};
  const bool marked = op.position_sensitive && aligns;
  Kernel& kernel = scatters ? marked ? family.get(device, {storage, compute, sensitive, scatter})
                                     : family.get(device, {storage, compute, scatter})
                   : marked ? family.get(device, {storage, compute, sensitive})
                            : family.get(device, {storage, compute});
  const NDRange range =
      scatters ? NDRange::linear(grad.numel(), group_of_lanes(device))
               : NDRange::linear(shape[0] * shape[1], device.is_cpu() ? 1 : group_of_lanes(device));
  launch(kernel, queue, range, Pointer{sums.mutable_data_ptr()}, Pointer{grad.const_data_ptr()},
         arguments..., device.asserts().mem(), op.site.id());
  return sums.to(dtype);
}

void check_gradient(const Op& op, const at::Tensor& grad, const BoxArguments& args) {
  const bool fits = grad.size(0) == args.boxes && grad.size(1) == args.pooled_channels &&
                    grad.size(2) == args.pooled_height && grad.size(3) == args.pooled_width;
  TORCH_CHECK(grad.numel() == 0 || fits, op.name, ": grad has shape ", grad.sizes(),
              ", which fits neither the boxes nor the channels");
}

}  // namespace

at::Tensor roi_align(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
                     int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio,
                     bool aligned) {
  check(align_op, input, rois, "input");
  const DeviceGuard guard(input.device());
  BoxArguments args = arguments_of(align_op, rois, input.sizes(), pooled_height, pooled_width);
  args.sampling_ratio = static_cast<int>(sampling_ratio);
  args.aligned = aligned;
  return pool(align_op, align_family, input, rois, spatial_scale, args, false).out;
}

at::Tensor roi_align_backward(const at::Tensor& grad, const at::Tensor& rois, double spatial_scale,
                              int64_t pooled_height, int64_t pooled_width, int64_t batch_size,
                              int64_t channels, int64_t height, int64_t width,
                              int64_t sampling_ratio, bool aligned) {
  check(align_op, grad, rois, "grad");
  const DeviceGuard guard(grad.device());
  const std::array<int64_t, 4> shape{batch_size, channels, height, width};
  BoxArguments args = arguments_of(align_op, rois, shape, pooled_height, pooled_width);
  check_gradient(align_op, grad, args);
  args.sampling_ratio = static_cast<int>(sampling_ratio);
  args.aligned = aligned;
  const at::Tensor boxes = rois.contiguous();
  return gradient(align_op, {align_scatter, align_planes}, grad.contiguous(), shape, true,
                  Pointer{boxes.const_data_ptr()}, args,
                  scalar_argument(compute_dtype(grad.scalar_type()), spatial_scale));
}

Two roi_pool(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
             int64_t pooled_height, int64_t pooled_width) {
  check(pool_op, input, rois, "input");
  const DeviceGuard guard(input.device());
  const BoxArguments args = arguments_of(pool_op, rois, input.sizes(), pooled_height, pooled_width);
  const Forward result = pool(pool_op, pool_family, input, rois, spatial_scale, args, true);
  return {result.out, result.second};
}

at::Tensor roi_pool_backward(const at::Tensor& grad, const at::Tensor& rois,
                             const at::Tensor& argmax, double, int64_t pooled_height,
                             int64_t pooled_width, int64_t batch_size, int64_t channels,
                             int64_t height, int64_t width) {
  check(pool_op, grad, rois, "grad");
  const DeviceGuard guard(grad.device());
  const std::array<int64_t, 4> shape{batch_size, channels, height, width};
  const BoxArguments args = arguments_of(pool_op, rois, shape, pooled_height, pooled_width);
  check_gradient(pool_op, grad, args);
  TORCH_CHECK(argmax.scalar_type() == at::kInt && argmax.sizes() == grad.sizes(),
              "roi_pool: argmax should be an int32 tensor of grad's shape");
  const at::Tensor boxes = rois.contiguous(), positions = argmax.contiguous();
  return gradient(pool_op, {pool_scatter, pool_planes}, grad.contiguous(), shape, false,
                  Pointer{boxes.const_data_ptr()}, Pointer{positions.const_data_ptr()}, args);
}

Two ps_roi_align(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
                 int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio) {
  check(ps_align_op, input, rois, "input");
  const DeviceGuard guard(input.device());
  BoxArguments args = arguments_of(ps_align_op, rois, input.sizes(), pooled_height, pooled_width);
  args.sampling_ratio = static_cast<int>(sampling_ratio);
  const Forward result = pool(ps_align_op, align_family, input, rois, spatial_scale, args, true);
  return {result.out, result.second};
}

at::Tensor ps_roi_align_backward(const at::Tensor& grad, const at::Tensor& rois, const at::Tensor&,
                                 double spatial_scale, int64_t pooled_height, int64_t pooled_width,
                                 int64_t sampling_ratio, int64_t batch_size, int64_t channels,
                                 int64_t height, int64_t width) {
  check(ps_align_op, grad, rois, "grad");
  const DeviceGuard guard(grad.device());
  const std::array<int64_t, 4> shape{batch_size, channels, height, width};
  BoxArguments args = arguments_of(ps_align_op, rois, shape, pooled_height, pooled_width);
  check_gradient(ps_align_op, grad, args);
  args.sampling_ratio = static_cast<int>(sampling_ratio);
  const at::Tensor boxes = rois.contiguous();
  return gradient(ps_align_op, {align_scatter, align_planes}, grad.contiguous(), shape, true,
                  Pointer{boxes.const_data_ptr()}, args,
                  scalar_argument(compute_dtype(grad.scalar_type()), spatial_scale));
}

Two ps_roi_pool(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
                int64_t pooled_height, int64_t pooled_width) {
  check(ps_pool_op, input, rois, "input");
  const DeviceGuard guard(input.device());
  const BoxArguments args =
      arguments_of(ps_pool_op, rois, input.sizes(), pooled_height, pooled_width);
  const Forward result = pool(ps_pool_op, ps_pool_family, input, rois, spatial_scale, args, true);
  return {result.out, result.second};
}

at::Tensor ps_roi_pool_backward(const at::Tensor& grad, const at::Tensor& rois, const at::Tensor&,
                                double spatial_scale, int64_t pooled_height, int64_t pooled_width,
                                int64_t batch_size, int64_t channels, int64_t height,
                                int64_t width) {
  check(ps_pool_op, grad, rois, "grad");
  const DeviceGuard guard(grad.device());
  const std::array<int64_t, 4> shape{batch_size, channels, height, width};
  const BoxArguments args = arguments_of(ps_pool_op, rois, shape, pooled_height, pooled_width);
  check_gradient(ps_pool_op, grad, args);
  const at::Tensor boxes = rois.contiguous();
  return gradient(ps_pool_op, {ps_pool_scatter, ps_pool_planes}, grad.contiguous(), shape, false,
                  Pointer{boxes.const_data_ptr()}, args,
                  scalar_argument(compute_dtype(grad.scalar_type()), spatial_scale));
}

}  // namespace ocl::vision
