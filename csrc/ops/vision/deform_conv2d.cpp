// torchvision::deform_conv2d and its gradients: columns of samples, and matrix products.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
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

const KernelFamily im2col_family{"vision/deform_conv.cl", "deform_im2col"};
const KernelFamily shifts_family{"vision/deform_conv.cl", "deform_shifts"};
const KernelFamily scatter_family{"vision/deform_conv.cl", "deform_scatter"};
const KernelFamily planes_family{"vision/deform_conv.cl", "deform_planes"};

/// Bytes of the columns: as many images at a time as they are enough for.
constexpr int64_t kColumnBytes = int64_t{256} << 20;

using Pair = std::array<int64_t, 2>;

/// A convolution of checked and contiguous tensors.
struct Problem {
  at::Tensor input, weight, offset, mask, bias;
  Pair stride, pad, dilation;
  int64_t groups, offset_groups;
  bool use_mask;

  int64_t kernel(int axis) const { return weight.size(2 + axis); }
  int64_t out(int axis) const {
    const int64_t extent = dilation[axis] * (kernel(axis) - 1) + 1;
    return (input.size(2 + axis) + 2 * pad[axis] - extent) / stride[axis] + 1;
  }
  int64_t positions() const { return out(0) * out(1); }
  int64_t rows() const { return input.size(1) * kernel(0) * kernel(1); }  // of the columns
  at::ScalarType dtype() const { return input.scalar_type(); }
};

void check(const Problem& p) {
  TORCH_CHECK(p.input.dim() == 4 && p.offset.dim() == 4 && p.weight.dim() == 4,
              "deform_conv2d: input, weight and offset should be 4d tensors");
  TORCH_CHECK(!p.use_mask || p.mask.dim() == 4, "deform_conv2d: mask should be a 4d tensor");
  const at::ScalarType dtype = p.dtype();
  native::check_supported("deformable_im2col", dtype,
                          dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf);
  for (const at::Tensor* each : {&p.weight, &p.offset, &p.mask, &p.bias}) {
    native::check_same_dtype(*each, dtype);
    TORCH_CHECK(each->device() == p.input.device(), "deform_conv2d: tensors are on ",
                p.input.device(), " and ", each->device());
  }
  const auto both = [](const Pair& sizes, int64_t least) {
    return sizes[0] >= least && sizes[1] >= least;
  };
  TORCH_CHECK(p.kernel(0) > 0 && p.kernel(1) > 0, "weight_h: ", p.kernel(0),
              " weight_w: ", p.kernel(1));
  TORCH_CHECK(both(p.stride, 1), "stride_h: ", p.stride[0], " stride_w: ", p.stride[1]);
  TORCH_CHECK(both(p.pad, 0), "pad_h: ", p.pad[0], " pad_w: ", p.pad[1]);
  TORCH_CHECK(both(p.dilation, 1), "dilation_h: ", p.dilation[0], " dilation_w: ", p.dilation[1]);
  TORCH_CHECK(p.groups > 0 && p.weight.size(1) * p.groups == p.input.size(1) &&
                  p.weight.size(0) % p.groups == 0,
              "deform_conv2d: weight of shape ", p.weight.sizes(),
              " does not fit an input of shape ", p.input.sizes(), " in ", p.groups, " groups");
  const int64_t taps = p.offset_groups * p.kernel(0) * p.kernel(1);
  TORCH_CHECK(p.offset.size(1) == 2 * taps, "offset.shape[1] is not valid: got: ", p.offset.size(1),
              " expected: ", 2 * taps);
  TORCH_CHECK(!p.use_mask || p.mask.size(1) == taps,
              "mask.shape[1] is not valid: got: ", p.mask.size(1), " expected: ", taps);
  TORCH_CHECK(p.offset_groups > 0 && p.input.size(1) % p.offset_groups == 0,
              "deform_conv2d: ", p.input.size(1), " channels are no multiple of ", p.offset_groups,
              " groups of offsets");
  TORCH_CHECK(p.offset.size(0) == p.input.size(0), "invalid batch size of offset");
  const auto check_plane = [&](const char* name, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.size(2) == p.out(0) && tensor.size(3) == p.out(1), name, " output dims: (",
                tensor.size(2), ", ", tensor.size(3), ") - computed output dims: (", p.out(0), ", ",
                p.out(1), ")");
  };
  check_plane("offset", p.offset);
  TORCH_CHECK(p.mask.size(0) == p.input.size(0), "invalid batch size of mask");
  if (p.use_mask) check_plane("mask", p.mask);
  TORCH_CHECK(p.out(0) > 0 && p.out(1) > 0, "Calculated output size too small - out_h: ", p.out(0),
              " out_w: ", p.out(1));
  TORCH_CHECK_NOT_IMPLEMENTED(p.rows() * p.positions() < INT32_MAX && p.input.numel() < INT32_MAX &&
                                  p.offset.numel() < INT32_MAX,
                              "ocl: deform_conv2d of 2^31 elements or more");
}

Problem problem_of(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& offset,
                   const at::Tensor& mask, const at::Tensor& bias, Pair stride, Pair pad,
                   Pair dilation, int64_t groups, int64_t offset_groups, bool use_mask) {
  Problem p{input.contiguous(),
            weight.contiguous(),
            offset.contiguous(),
            mask.contiguous(),
            bias,
            stride,
            pad,
            dilation,
            groups,
            offset_groups,
            use_mask};
  check(p);
  return p;
}

/// Some of the images.
struct Images {
  at::Tensor input, offset, mask;
  int64_t first, count;
};

/// Calls with one part of the batch after the other.
template <class Function>
void for_images(const Problem& p, Function function) {
  const int64_t bytes = p.rows() * p.positions() * p.input.itemsize();
  const int64_t elements = p.rows() * p.positions();
  const int64_t most = std::max<int64_t>(
      1, std::min(kColumnBytes / bytes, (int64_t{INT32_MAX} - 1) / std::max<int64_t>(elements, 1)));
  for (int64_t first = 0; first < p.input.size(0); first += most) {
    const int64_t count = std::min(most, p.input.size(0) - first);
    function(Images{p.input.narrow(0, first, count), p.offset.narrow(0, first, count),
                    p.use_mask ? p.mask.narrow(0, first, count) : p.mask, first, count});
  }
}

DeformArguments arguments_of(const Problem& p, int64_t count, int64_t span) {
  DeformArguments args{};
  const auto u32 = [](int64_t number) { return static_cast<uint32_t>(number); };
  args.batch = u32(count);
  args.channels = u32(p.input.size(1));
  args.height = u32(p.input.size(2));
  args.width = u32(p.input.size(3));
  args.out_height = u32(p.out(0));
  args.out_width = u32(p.out(1));
  args.kernel_height = u32(p.kernel(0));
  args.kernel_width = u32(p.kernel(1));
  for (int axis = 0; axis < 2; ++axis) {
    args.stride[axis] = static_cast<int>(p.stride[axis]);
    args.pad[axis] = static_cast<int>(p.pad[axis]);
    args.dilation[axis] = static_cast<int>(p.dilation[axis]);
  }
  args.offset_groups = u32(p.offset_groups);
  args.span = u32(span);
  return args;
}

/// Where a part's work-items go: one for each tap of each position, and some channels.
struct Walk {
  Queue& queue;
  int64_t span;  // channels of a work-item
  NDRange taps, taps_and_spans;

  Walk(const Problem& p, int64_t count) : queue(current_queue(p.input.device().index())) {
    const int64_t channels = p.input.size(1) / p.offset_groups;
    span = queue.device().is_cpu()
               ? channels
               : std::min(channels, device_row(queue.device()).sampled_channels);
    const int64_t items = count * p.offset_groups * p.kernel(0) * p.kernel(1) * p.positions();
    const size_t local = group_of_lanes(queue.device());
    taps = NDRange::linear(items, local);
    taps_and_spans = NDRange::grid(items, ceil_div(channels, std::max<int64_t>(span, 1)), local, 1);
  }
};

Kernel& kernel(const Problem& p, const KernelFamily& family, Device& device) {
  const Define storage{"IN", tag(p.dtype())}, compute{"ACC", tag(compute_dtype(p.dtype()))};
  const Define masked{"MASKED", p.use_mask};
  if (&family != &scatter_family) return family.get(device, {storage, compute, masked});
  return family.get(device, {storage, compute, masked, {"SCATTER", 1}});
}

Pointer mask_pointer(const Problem& p, const Images& images) {
  return Pointer{p.use_mask ? images.mask.const_data_ptr() : nullptr};
}

/// [images, groups, rows of a group, positions]
at::Tensor empty_columns(const Problem& p, const Images& images) {
  return at::empty({images.count, p.groups, p.rows() / p.groups, p.positions()}, p.input.options());
}

at::Tensor columns_of(const Problem& p, const Images& images) {
  const at::Tensor columns = empty_columns(p, images);
  if (columns.numel() == 0) return columns;
  const Walk walk(p, images.count);
  launch(kernel(p, im2col_family, walk.queue.device()), walk.queue, walk.taps_and_spans,
         Pointer{columns.mutable_data_ptr()}, Pointer{images.input.const_data_ptr()},
         Pointer{images.offset.const_data_ptr()}, mask_pointer(p, images),
         arguments_of(p, images.count, walk.span));
  return columns;
}

/// [groups, channels of a group's result, rows of a group]
at::Tensor weight_matrices(const Problem& p) {
  return p.weight.reshape({p.groups, p.weight.size(0) / p.groups, p.rows() / p.groups});
}

/// [images, groups, channels of a group, positions] of a result or its gradient.
at::Tensor by_groups(const Problem& p, const at::Tensor& out, const Images& images) {
  return out.narrow(0, images.first, images.count)
      .view({images.count, p.groups, p.weight.size(0) / p.groups, p.positions()});
}

/// Adds the gradient of the part's input, from that of the columns, to sums that are zeros.
void add_input_gradient(const Problem& p, const Images& images, const at::Tensor& columns,
                        const at::Tensor& sums) {
  const Walk walk(p, images.count);
  const Device& device = walk.queue.device();
  const bool scatters = adds_by_scatter("deform_conv2d", sums);
  const NDRange range = scatters ? walk.taps_and_spans
                                 : NDRange::linear(images.count * p.input.size(1),
                                                   device.is_cpu() ? 1 : group_of_lanes(device));
  launch(kernel(p, scatters ? scatter_family : planes_family, walk.queue.device()), walk.queue,
         range, Pointer{sums.mutable_data_ptr()}, Pointer{columns.const_data_ptr()},
         Pointer{images.offset.const_data_ptr()}, mask_pointer(p, images),
         arguments_of(p, images.count, walk.span));
}

}  // namespace

at::Tensor deform_conv2d(const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& offset, const at::Tensor& mask, const at::Tensor& bias,
                         int64_t stride_h, int64_t stride_w, int64_t pad_h, int64_t pad_w,
                         int64_t dilation_h, int64_t dilation_w, int64_t groups,
                         int64_t offset_groups, bool use_mask) {
  const DeviceGuard guard(input.device());
  const Problem p =
      problem_of(input, weight, offset, mask, bias, {stride_h, stride_w}, {pad_h, pad_w},
                 {dilation_h, dilation_w}, groups, offset_groups, use_mask);
  const int64_t channels = weight.size(0);
  TORCH_CHECK(bias.numel() == channels, "deform_conv2d: bias has ", bias.numel(),
              " elements, expected ", channels);
  const at::Tensor out = at::empty({input.size(0), channels, p.out(0), p.out(1)}, input.options());
  if (out.numel() == 0) return out;
  if (p.rows() == 0) return out.zero_().add_(bias.view({1, channels, 1, 1}));
  const at::Tensor matrices = weight_matrices(p);
  for_images(p, [&](const Images& images) {
    at::Tensor part = by_groups(p, out, images);
    at::matmul_out(part, matrices, columns_of(p, images));
  });
  return out.add_(bias.view({1, channels, 1, 1}));
}

Five deform_conv2d_backward(const at::Tensor& grad, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& offset,
                            const at::Tensor& mask, const at::Tensor& bias, int64_t stride_h,
                            int64_t stride_w, int64_t pad_h, int64_t pad_w, int64_t dilation_h,
                            int64_t dilation_w, int64_t groups, int64_t offset_groups,
                            bool use_mask) {
  const DeviceGuard guard(input.device());
  const Problem p =
      problem_of(input, weight, offset, mask, bias, {stride_h, stride_w}, {pad_h, pad_w},
                 {dilation_h, dilation_w}, groups, offset_groups, use_mask);
  native::check_same_dtype(grad, p.dtype());
  const at::Tensor grad_out = grad.contiguous();
  const auto zeros = [](const at::Tensor& like) { return at::zeros(like.sizes(), like.options()); };
  const at::Tensor grad_bias = grad.sum(at::IntArrayRef{0, 2, 3});
  const at::Tensor sums = at::zeros(input.sizes(), input.options().dtype(compute_dtype(p.dtype())));
  const at::Tensor grad_weight = zeros(p.weight), grad_offset = zeros(p.offset),
                   grad_mask = zeros(p.mask);
  if (grad.numel() == 0 || p.rows() == 0) {
    return {sums.to(p.dtype()), grad_weight, grad_offset, grad_mask, grad_bias};
  }
  const at::Tensor matrices = weight_matrices(p);
  const at::Tensor weight_sums = grad_weight.view(matrices.sizes());
  for_images(p, [&](const Images& images) {
    const at::Tensor part = by_groups(p, grad_out, images);
    // Sums over positions are a matrix product, those over images are not.
    weight_sums.add_(at::matmul(part, columns_of(p, images).mT()).sum(0));
    at::Tensor columns = empty_columns(p, images);
    at::matmul_out(columns, matrices.mT(), part);
    const Walk walk(p, images.count);
    launch(kernel(p, shifts_family, walk.queue.device()), walk.queue, walk.taps,
           Pointer{grad_offset.narrow(0, images.first, images.count).mutable_data_ptr()},
           Pointer{use_mask ? grad_mask.narrow(0, images.first, images.count).mutable_data_ptr()
                            : nullptr},
           Pointer{columns.const_data_ptr()}, Pointer{images.input.const_data_ptr()},
           Pointer{images.offset.const_data_ptr()}, mask_pointer(p, images),
           arguments_of(p, images.count, walk.span));
    add_input_gradient(p, images, columns, sums.narrow(0, images.first, images.count));
  });
  return {sums.to(p.dtype()), grad_weight, grad_offset, grad_mask, grad_bias};
}

}  // namespace ocl::vision
