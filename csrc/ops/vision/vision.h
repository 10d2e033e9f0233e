// Torchvision's ops (torch.ops.torchvision), by its schemas.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace ocl::vision {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Five = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Positions of the boxes [n, 4] that stay, by falling scores: those that overlap none before them
/// by more than the threshold (intersection over union). Waits once, for their number.
at::Tensor nms(const at::Tensor& dets, const at::Tensor& scores, double iou_threshold);

/// Boxes [k, 5] of images [batch, channels, height, width] as [k, channels, pooled_height,
/// pooled_width]. The position-sensitive ones (ps_) have pooled_height * pooled_width times fewer
/// channels. Second results, and third arguments of gradients, are positions of maxima, and the
/// channels of the input; the kernels work these out again.
at::Tensor roi_align(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
                     int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio,
                     bool aligned);
at::Tensor roi_align_backward(const at::Tensor& grad, const at::Tensor& rois, double spatial_scale,
                              int64_t pooled_height, int64_t pooled_width, int64_t batch_size,
                              int64_t channels, int64_t height, int64_t width,
                              int64_t sampling_ratio, bool aligned);
Two roi_pool(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
             int64_t pooled_height, int64_t pooled_width);
at::Tensor roi_pool_backward(const at::Tensor& grad, const at::Tensor& rois,
                             const at::Tensor& argmax, double spatial_scale, int64_t pooled_height,
                             int64_t pooled_width, int64_t batch_size, int64_t channels,
                             int64_t height, int64_t width);
Two ps_roi_align(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
                 int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio);
at::Tensor ps_roi_align_backward(const at::Tensor& grad, const at::Tensor& rois,
                                 const at::Tensor& channel_mapping, double spatial_scale,
                                 int64_t pooled_height, int64_t pooled_width,
                                 int64_t sampling_ratio, int64_t batch_size, int64_t channels,
                                 int64_t height, int64_t width);
Two ps_roi_pool(const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
                int64_t pooled_height, int64_t pooled_width);
at::Tensor ps_roi_pool_backward(const at::Tensor& grad, const at::Tensor& rois,
                                const at::Tensor& channel_mapping, double spatial_scale,
                                int64_t pooled_height, int64_t pooled_width, int64_t batch_size,
                                int64_t channels, int64_t height, int64_t width);

at::Tensor deform_conv2d(const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& offset, const at::Tensor& mask, const at::Tensor& bias,
                         int64_t stride_h, int64_t stride_w, int64_t pad_h, int64_t pad_w,
                         int64_t dilation_h, int64_t dilation_w, int64_t groups,
                         int64_t offset_groups, bool use_mask);
/// The gradients of the five tensors.
Five deform_conv2d_backward(const at::Tensor& grad, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& offset,
                            const at::Tensor& mask, const at::Tensor& bias, int64_t stride_h,
                            int64_t stride_w, int64_t pad_h, int64_t pad_w, int64_t dilation_h,
                            int64_t dilation_w, int64_t groups, int64_t offset_groups,
                            bool use_mask);

/// Makes these the functions of `ocl` tensors, under autocast too. torchvision's schemas must
/// exist. Throws c10::Error if they are others.
void register_ops();

}  // namespace ocl::vision
