// Shapes and memory formats of images and volumes.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace ocl::native {

/// `in`'s shape with other spatial sizes.
inline c10::DimVector with_spatial_sizes(const at::Tensor& in, at::IntArrayRef spatial) {
  c10::DimVector sizes(in.sizes().begin(), in.sizes().end());
  std::copy(spatial.begin(), spatial.end(), sizes.end() - spatial.size());
  return sizes;
}

/// The format of a tensor, also of a batch of one whose stride doesn't tell, as that of an image
/// with channels last after unsqueeze(0).
inline at::MemoryFormat format_of(const at::Tensor& tensor) {
  const at::MemoryFormat format = tensor.suggest_memory_format();
  if (format != at::MemoryFormat::Contiguous || tensor.is_contiguous()) return format;
  for (const auto last : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d}) {
    if (tensor.is_contiguous(last)) return last;
  }
  return format;
}

/// Gives a contiguous `out` the memory format of `in`, as CPU torch does where upstream's meta
/// functions leave it out.
inline void follow_format(const at::Tensor& out, const at::Tensor& in) {
  const at::MemoryFormat format = in.suggest_memory_format();
  if (format != at::MemoryFormat::Contiguous && out.is_contiguous() && out.dim() == in.dim()) {
    out.resize_(out.sizes(), format);
  }
}

}  // namespace ocl::native
