#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/ConvolutionParts.h"

#include <ATen/ops/empty.h>

#include "engine/gemm/bfloat16_parts.h"
#include "engine/gemm/bfloat16_planes.h"
#include "opencl/ceil_div.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

constexpr int64_t kChunk = 8;  // elements that a product copies at once

void write(const at::Tensor& out, const at::Tensor& in, int products, bool second, int64_t length,
           int64_t stride, int64_t lines, int64_t line_stride, int64_t batch, int64_t pitch) {
  const gemm::FloatLines from{static_cast<const char*>(in.const_data_ptr()),
                              static_cast<uint64_t>(stride),
                              static_cast<uint64_t>(line_stride),
                              static_cast<uint64_t>(length * lines),
                              static_cast<uint32_t>(length),
                              static_cast<uint32_t>(lines),
                              static_cast<uint32_t>(batch)};
  gemm::write_bfloat16_parts(current_queue(current_device()), products, second, from,
                             static_cast<char*>(out.mutable_data_ptr()),
                             static_cast<uint64_t>(pitch));
}

at::Tensor brain_like(const at::Tensor& in, at::IntArrayRef sizes) {
  return at::empty(sizes, in.options().dtype(at::kBFloat16));
}

int64_t pitch_of(int64_t channels, int products) {
  return round_up(static_cast<size_t>(channels * products), static_cast<size_t>(kChunk));
}

}  // namespace

at::Tensor parts_of_channels(const at::Tensor& image, int products) {
  const int64_t channels = image.size(1), pitch = pitch_of(channels, products);
  at::Tensor last = image.movedim(1, -1);
  at::DimVector sizes(last.sizes());
  sizes.back() = pitch;
  const at::Tensor out = brain_like(image, sizes);
  if (last.is_contiguous()) {
    write(out, last, products, false, channels, 1, last.numel() / channels, channels, 1, pitch);
  } else {
    const at::Tensor planes = image.contiguous();
    const int64_t positions = planes.numel() / (planes.size(0) * channels);
    write(out, planes, products, false, channels, positions, positions, 1, planes.size(0), pitch);
  }
  return out.movedim(-1, 1);
}

at::Tensor parts_of_rows(const at::Tensor& rows, int products) {
  const int64_t channels = rows.size(-1), pitch = pitch_of(channels, products);
  at::DimVector sizes(rows.sizes());
  sizes.back() = pitch;
  const at::Tensor out = brain_like(rows, sizes);
  write(out, rows, products, true, channels, 1, rows.numel() / channels, channels, 1, pitch);
  return out;
}

at::Tensor parts_of_images(const at::Tensor& images, int products, bool second) {
  at::DimVector sizes(images.sizes());
  sizes.front() *= products;
  const at::Tensor out = brain_like(images, sizes);
  const int64_t count = images.numel();
  write(out, images, products, second, count, 1, 1, count, 1, products * count);
  return out;
}

PlanesOf planes_of_image(const at::Tensor& image, int64_t channels) {
  const at::Tensor last = image.movedim(1, -1);
  at::DimVector sizes(last.sizes());
  const auto own = static_cast<uint32_t>(sizes.back());
  const auto rows = static_cast<uint32_t>(image.numel() / own);
  sizes.back() = channels;
  const gemm::Planes planes(uint64_t{rows} * static_cast<uint64_t>(channels));
  const at::Tensor out = brain_like(image, {static_cast<int64_t>(planes.bytes() / 2)});
  Queue& queue = current_queue(current_device());
  auto* const to = static_cast<char*>(out.mutable_data_ptr());
  const auto pitch = static_cast<uint32_t>(channels);
  if (last.is_contiguous()) {
    const gemm::FloatLines lines{
        static_cast<const char*>(last.const_data_ptr()), 1, own, 0, own, rows, 1};
    gemm::write_bfloat16_planes(queue, lines, to, pitch, planes);
  } else {
    const at::Tensor whole = image.contiguous();
    const auto count = static_cast<uint32_t>(whole.size(0));
    const gemm::FloatImages images{static_cast<const char*>(whole.const_data_ptr()), count, own,
                                   rows / count};
    gemm::write_bfloat16_planes(queue, images, to, pitch, planes);
  }
  return {out.narrow(0, 0, rows * channels).view(sizes).movedim(-1, 1), planes.distance};
}

PlanesOf planes_of(const at::Tensor& tensor) {
  const auto count = static_cast<uint32_t>(tensor.numel());
  const auto pitch = static_cast<uint32_t>(round_up(size_t{count}, size_t{kChunk}));
  const gemm::Planes planes(pitch);
  const at::Tensor out = brain_like(tensor, {static_cast<int64_t>(planes.bytes() / 2)});
  const gemm::FloatLines lines{
      static_cast<const char*>(tensor.const_data_ptr()), 1, count, 0, count, 1, 1};
  gemm::write_bfloat16_planes(current_queue(current_device()), lines,
                              static_cast<char*>(out.mutable_data_ptr()), pitch, planes);
  return {out.narrow(0, 0, count).view(tensor.sizes()), planes.distance};
}

}  // namespace ocl::native
