#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/operands.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "engine/gemm/bfloat16_parts.h"
#include "engine/gemm/bfloat16x3.h"
#include "runtime/stream.h"

namespace ocl::conv {

namespace {

/// The tensor with its channels innermost and strides that the matrix product takes; a copy if it
/// isn't so already. More channels than it has are zeros.
at::Tensor channels_last(const at::Tensor& tensor, int64_t channels) {
  bool fits = tensor.size(1) == channels && tensor.stride(1) == 1 &&
              reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
  int64_t bytes = tensor.element_size();
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (d == 1 || tensor.size(d) == 1) continue;
    fits = fits && tensor.stride(d) % kChunk == 0 && tensor.stride(d) > 0;
    if (d > 1) bytes = std::max(bytes, tensor.stride(d) * tensor.size(d) * tensor.element_size());
  }
  if (fits && bytes <= std::numeric_limits<int32_t>::max()) return tensor;
  const at::Tensor last = tensor.movedim(1, -1);
  at::DimVector sizes(last.sizes());
  sizes.back() = channels;
  const at::Tensor copy = channels == tensor.size(1) ? at::empty(sizes, tensor.options())
                                                     : at::zeros(sizes, tensor.options());
  copy.narrow(-1, 0, tensor.size(1)).copy_(last);
  return copy.movedim(-1, 1);
}

at::Tensor brain_like(const at::Tensor& in, at::IntArrayRef sizes) {
  return at::empty(sizes, in.options().dtype(at::kBFloat16));
}

/// A tensor of lines as their terms.
struct Terms {
  const at::Tensor& in;
  int terms;
  bool second;

  void write(const at::Tensor& out, int64_t length, int64_t stride, int64_t lines,
             int64_t line_stride, int64_t batch, int64_t pitch) const {
    const gemm::FloatLines from{static_cast<const char*>(in.const_data_ptr()),
                                static_cast<uint64_t>(stride),
                                static_cast<uint64_t>(line_stride),
                                static_cast<uint64_t>(length * lines),
                                static_cast<uint32_t>(length),
                                static_cast<uint32_t>(lines),
                                static_cast<uint32_t>(batch)};
    gemm::write_bfloat16_parts(current_queue(current_device()), terms, second, from,
                               static_cast<char*>(out.mutable_data_ptr()),
                               static_cast<uint64_t>(pitch));
  }
};

/// An image's channels as terms one after another, with channels last and zeros up to a multiple of
/// kChunk: the first operand.
at::Tensor terms_of_channels(const at::Tensor& image, int terms) {
  const int64_t channels = image.size(1), pitch = padded(channels * terms);
  const at::Tensor last = image.movedim(1, -1);
  at::DimVector sizes(last.sizes());
  sizes.back() = pitch;
  const at::Tensor out = brain_like(image, sizes);
  if (last.is_contiguous()) {
    Terms{last, terms, false}.write(out, channels, 1, last.numel() / channels, channels, 1, pitch);
  } else {
    const at::Tensor planes = image.contiguous();
    const int64_t positions = planes.numel() / (planes.size(0) * channels);
    Terms{planes, terms, false}.write(out, channels, positions, positions, 1, planes.size(0),
                                      pitch);
  }
  return out.movedim(-1, 1);
}

/// The second operand: the same of contiguous rows.
at::Tensor terms_of_rows(const at::Tensor& rows, int terms) {
  const int64_t channels = rows.size(-1), pitch = padded(channels * terms);
  at::DimVector sizes(rows.sizes());
  sizes.back() = pitch;
  const at::Tensor out = brain_like(rows, sizes);
  Terms{rows, terms, true}.write(out, channels, 1, rows.numel() / channels, channels, 1, pitch);
  return out;
}

/// Contiguous images one after another as terms of all of them.
at::Tensor terms_of_images(const at::Tensor& images, int terms, bool second) {
  at::DimVector sizes(images.sizes());
  sizes.front() *= terms;
  const at::Tensor out = brain_like(images, sizes);
  const int64_t count = images.numel();
  Terms{images, terms, second}.write(out, count, 1, 1, count, 1, terms * count);
  return out;
}

Matrix parts_of_image(const at::Tensor& image, int64_t channels) {
  const at::Tensor last = image.movedim(1, -1);
  at::DimVector sizes(last.sizes());
  const auto own = static_cast<uint32_t>(sizes.back());
  const auto rows = static_cast<uint32_t>(image.numel() / own);
  sizes.back() = channels;
  const gemm::Bfloat16x3 parts(uint64_t{rows} * static_cast<uint64_t>(channels));
  const at::Tensor out = brain_like(image, {static_cast<int64_t>(parts.bytes() / 2)});
  Queue& queue = current_queue(current_device());
  auto* const to = static_cast<char*>(out.mutable_data_ptr());
  const auto pitch = static_cast<uint32_t>(channels);
  if (last.is_contiguous()) {
    const gemm::FloatLines lines{
        static_cast<const char*>(last.const_data_ptr()), 1, own, 0, own, rows, 1};
    gemm::write_bfloat16x3(queue, lines, to, pitch, parts);
  } else {
    const at::Tensor whole = image.contiguous();
    const auto count = static_cast<uint32_t>(whole.size(0));
    const gemm::FloatImages images{static_cast<const char*>(whole.const_data_ptr()), count, own,
                                   rows / count};
    gemm::write_bfloat16x3(queue, images, to, pitch, parts);
  }
  return {out.narrow(0, 0, rows * channels).view(sizes).movedim(-1, 1), parts.distance};
}

Matrix parts_of(const at::Tensor& tensor) {
  const auto count = static_cast<uint32_t>(tensor.numel());
  const auto pitch = static_cast<uint32_t>(padded(count));
  const gemm::Bfloat16x3 parts(pitch);
  const at::Tensor out = brain_like(tensor, {static_cast<int64_t>(parts.bytes() / 2)});
  const gemm::FloatLines lines{
      static_cast<const char*>(tensor.const_data_ptr()), 1, count, 0, count, 1, 1};
  gemm::write_bfloat16x3(current_queue(current_device()), lines,
                         static_cast<char*>(out.mutable_data_ptr()), pitch, parts);
  return {out.narrow(0, 0, count).view(tensor.sizes()), parts.distance};
}

at::Tensor with_zeros(const at::Tensor& rows, int64_t channels) {
  if (channels == rows.size(-1)) return rows.contiguous();
  return at::constant_pad_nd(rows, {0, channels - rows.size(-1)}).contiguous();
}

}  // namespace

Matrix image_of(const at::Tensor& image, int64_t channels, const Parts& parts) {
  if (parts.exact) return parts_of_image(image, channels);
  return {parts.terms > 0 ? terms_of_channels(image, parts.terms) : channels_last(image, channels)};
}

Matrix rows_of(const at::Tensor& rows, const Parts& parts) {
  if (parts.exact) return parts_of(rows);
  return {parts.terms > 0 ? terms_of_rows(rows, parts.terms) : rows};
}

int64_t channels_of(int64_t channels, const Parts& parts, int64_t groups) {
  return groups > 1 || parts.terms > 0 ? channels : padded(channels);
}

at::Tensor weight_rows(const at::Tensor& weight, int64_t channels) {
  return with_zeros(weight.movedim(1, -1), channels);
}

at::Tensor weight_rows(const at::Tensor& weight, const std::array<Phase, kAxes>& phases,
                       int64_t groups, int64_t channels) {
  at::Tensor part = weight;
  const int64_t axes = weight.dim() - 2;
  at::DimVector sizes{groups, weight.size(0) / groups, weight.size(1)}, order{0, 2};
  for (int64_t i = 0; i < axes; ++i) {
    const Phase& phase = phases[static_cast<size_t>(i + kAxes - axes)];
    part = part.slice(2 + i, phase.first, std::nullopt, phase.step);
    sizes.push_back(phase.count);
    order.push_back(3 + i);
  }
  order.push_back(1);
  return with_zeros(part.reshape(sizes).permute(order), channels);
}

Matrix positions_of(const at::Tensor& images, int64_t channels, bool second, const Parts& parts) {
  at::Tensor last = channels_last(images, channels);
  const int terms = parts.terms;
  // The second operand has windows, which find its positions.
  if (second && terms == 0) return {last};
  last = last.movedim(1, -1).contiguous();
  if (terms > 0) last = terms_of_images(last, terms, second);
  return {last.movedim(-1, 1)};
}

}  // namespace ocl::conv
