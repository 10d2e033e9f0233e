// Tensors as blocks of 8 and of 4 bits with a scale each, and back.
#include "ops/bitsandbytes/blocks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/accumulate.h>

#include <bit>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::bitsandbytes {

namespace {

const KernelFamily encode4_family{"quantize/blocks.cl", "encode4"};
const KernelFamily encode8_family{"quantize/blocks.cl", "encode8"};
const KernelFamily scales_family{"quantize/blocks.cl", "scales_of_blocks"};
const KernelFamily middles_family{"quantize/blocks.cl", "middles"};
const KernelFamily decode4_family{"quantize/blocks.cl", "decode4"};
const KernelFamily decode8_family{"quantize/blocks.cl", "decode8"};

/// Work-items of a group that shares a block.
constexpr int64_t kGroup = 64;

void check_elements(const char* name, at::ScalarType dtype) {
  TORCH_CHECK(is_element(dtype), name, ": only 16/32-bit floats are supported, but got ", dtype);
}

void check_out(const Tensor& out, at::IntArrayRef shape, at::ScalarType dtype,
               const Tensor& input) {
  TORCH_CHECK(out.sizes() == shape, "Expected out.shape == ", shape, ", got ", out.sizes());
  TORCH_CHECK(out.device() == input.device(), "Expected out.device == ", input.device(), ", got ",
              out.device());
  TORCH_CHECK(out.scalar_type() == dtype, "Expected out.dtype == ", dtype, ", got ",
              out.scalar_type());
}

void check_size(int64_t blocksize) {
  TORCH_CHECK(blocksize > 0 && blocksize <= INT32_MAX, "blocksize must be positive, got ",
              blocksize);
}

void check_code(const Tensor& code) {
  TORCH_CHECK(code.scalar_type() == at::kFloat && code.numel() == 256,
              "code must have 256 entries of float32, got ", code.numel(), " of ",
              code.scalar_type());
}

void check_scales(const Tensor& absmax, int64_t elements, int64_t blocksize) {
  TORCH_CHECK(absmax.scalar_type() == at::kFloat, "absmax must be float32, got ",
              absmax.scalar_type());
  TORCH_CHECK(absmax.numel() >= ceil_div(elements, blocksize), "absmax must have ",
              ceil_div(elements, blocksize), " entries, got ", absmax.numel());
}

}  // namespace

bool is_element(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

const char* table_of(std::string_view quant_type) {
  TORCH_CHECK(quant_type == "nf4" || quant_type == "fp4",
              "quant_type must be 'nf4' or 'fp4', got '", quant_type, "'");
  return quant_type == "nf4" ? "nf4" : "fp4";
}

uint32_t shift_of(int64_t blocksize) {
  TORCH_CHECK(blocksize >= 32 && blocksize <= 4096 && (blocksize & (blocksize - 1)) == 0,
              "invalid blocksize ", blocksize);
  return static_cast<uint32_t>(std::countr_zero(static_cast<uint64_t>(blocksize)));
}

Tensor bytes_of(const Tensor& packed) { return packed.contiguous().view(-1).view(at::kByte); }

void decode4(const Tensor& bytes, const Scales& scales, uint32_t shift, const char* table,
             const Tensor& out) {
  const int64_t elements = out.numel();
  TORCH_CHECK(bytes.numel() * 2 >= elements, "expected ", ceil_div<int64_t>(elements, 2),
              " bytes of 4-bit values, got ", bytes.numel());
  scales.check(elements, shift);
  if (elements == 0) return;
  Queue& queue = current_queue(out.device().index());
  Device& device = queue.device();
  const int64_t stretch = device.is_cpu() ? 32 : 8;
  const auto items = static_cast<size_t>(ceil_div(elements, stretch));
  Kernel& kernel =
      scales.are_nested()
          ? decode4_family.get(device,
                               {{"E", tag(out.scalar_type())}, {"TABLE", table}, {"NESTED", 1}})
          : decode4_family.get(device, {{"E", tag(out.scalar_type())}, {"TABLE", table}});
  launch(kernel, queue, NDRange::linear(items, group_of_lanes(device)), pointer(bytes),
         pointer(scales.largest), pointer(scales.bytes), pointer(scales.table),
         pointer(scales.offset), Pointer{out.mutable_data_ptr()}, static_cast<uint64_t>(elements),
         shift);
}

Two quantize_4bit(const Tensor& A, int64_t blocksize, std::string_view quant_type,
                  at::ScalarType quant_storage) {
  const c10::DeviceGuard guard(A.device());
  const char* table = table_of(quant_type);
  shift_of(blocksize);
  check_elements("Blockwise 4bit quantization", A.scalar_type());
  const Tensor in = A.contiguous();
  const int64_t elements = A.numel(), blocks = ceil_div(elements, blocksize);
  const Tensor scales = at::empty({blocks}, A.options().dtype(at::kFloat));
  Tensor out = at::empty({ceil_div<int64_t>(elements, 2)}, A.options().dtype(at::kByte));
  if (blocks > 0) {
    Queue& queue = current_queue(A.device().index());
    Device& device = queue.device();
    const int64_t group = device.is_cpu() ? 1 : kGroup;
    launch(encode4_family.get(device,
                              {{"E", tag(A.scalar_type())}, {"GROUP", group}, {"TABLE", table}}),
           queue, NDRange::linear(static_cast<size_t>(blocks * group), static_cast<size_t>(group)),
           pointer(in), Pointer{scales.mutable_data_ptr()}, Pointer{out.mutable_data_ptr()},
           static_cast<uint64_t>(elements), static_cast<uint32_t>(blocksize));
  }
  return {out.view(quant_storage).unsqueeze(1), scales};
}

Tensor dequantize_4bit(const Tensor& A, const Tensor& absmax, int64_t blocksize,
                       std::string_view quant_type, at::IntArrayRef shape, at::ScalarType dtype) {
  const Tensor out = at::empty(shape, A.options().dtype(dtype));
  dequantize_4bit_out(A, absmax, blocksize, quant_type, shape, dtype, out);
  return out;
}

void dequantize_4bit_out(const Tensor& A, const Tensor& absmax, int64_t blocksize,
                         std::string_view quant_type, at::IntArrayRef shape, at::ScalarType dtype,
                         const Tensor& out) {
  const c10::DeviceGuard guard(A.device());
  const char* table = table_of(quant_type);
  const uint32_t shift = shift_of(blocksize);
  check_elements("Blockwise 4bit dequantization", dtype);
  check_out(out, shape, dtype, A);
  const Tensor dense = out.is_contiguous() ? out : at::empty(shape, out.options());
  decode4(bytes_of(A), Scales{absmax.contiguous()}, shift, table, dense);
  if (!dense.is_same(out)) out.copy_(dense);
}

Two quantize_blockwise(const Tensor& A, const Tensor& code, int64_t blocksize) {
  const c10::DeviceGuard guard(A.device());
  check_size(blocksize);
  check_elements("Blockwise quantization", A.scalar_type());
  check_code(code);
  const Tensor in = A.contiguous();
  const int64_t blocks = ceil_div(A.numel(), blocksize);
  const Tensor scales = at::empty({blocks}, A.options().dtype(at::kFloat));
  const Tensor out = at::empty(A.sizes(), A.options().dtype(at::kByte));
  if (blocks == 0) return {out, scales};
  Queue& queue = current_queue(A.device().index());
  Device& device = queue.device();
  const int64_t group = device.is_cpu() ? 1 : kGroup;
  const Tensor table = code.contiguous(), middles = at::empty({255}, code.options());
  const char* type = tag(A.scalar_type());
  launch(middles_family.get(device, {}), queue, NDRange::linear(255, group_of_lanes(device)),
         pointer(table), Pointer{middles.mutable_data_ptr()});
  const auto elements = static_cast<uint64_t>(A.numel());
  const auto size = static_cast<uint32_t>(blocksize);
  launch(scales_family.get(device, {{"E", type}, {"GROUP", group}}), queue,
         NDRange::linear(static_cast<size_t>(blocks * group), static_cast<size_t>(group)),
         pointer(in), Pointer{scales.mutable_data_ptr()}, elements, size);
  const auto places = static_cast<size_t>(std::min(blocksize, A.numel()));
  const size_t together = device.is_cpu() ? static_cast<size_t>(device_row(device).large_group)
                                          : group_of_elements(device);
  launch(encode8_family.get(device, {{"E", type}}), queue,
         NDRange::grid(places, static_cast<size_t>(blocks), std::min(places, together), 1),
         pointer(in), pointer(scales), Pointer{out.mutable_data_ptr()}, pointer(middles), elements,
         size);
  return {out, scales};
}

Tensor dequantize_blockwise(const Tensor& A, const Tensor& absmax, const Tensor& code,
                            int64_t blocksize, at::ScalarType dtype) {
  const Tensor out = at::empty(A.sizes(), A.options().dtype(dtype));
  dequantize_blockwise_out(A, absmax, code, blocksize, dtype, out);
  return out;
}

void dequantize_blockwise_out(const Tensor& A, const Tensor& absmax, const Tensor& code,
                              int64_t blocksize, at::ScalarType dtype, const Tensor& out) {
  const c10::DeviceGuard guard(A.device());
  check_size(blocksize);
  TORCH_CHECK(A.scalar_type() == at::kByte, "A must be uint8, got ", A.scalar_type());
  check_elements("Blockwise dequantization", dtype);
  check_code(code);
  check_scales(absmax, A.numel(), blocksize);
  check_out(out, A.sizes(), dtype, A);
  if (A.numel() == 0) return;
  const Tensor in = A.contiguous(), scales = absmax.contiguous(), table = code.contiguous();
  const Tensor dense = out.is_contiguous() ? out : at::empty(A.sizes(), out.options());
  Queue& queue = current_queue(A.device().index());
  Device& device = queue.device();
  const int64_t size = std::min<int64_t>(blocksize, A.numel());
  const int64_t stretch = std::min<int64_t>(size, device.is_cpu() ? 4096 : 4);
  const int64_t stretches = ceil_div(size, stretch);
  const auto items = static_cast<size_t>(ceil_div(A.numel(), size) * stretches);
  launch(decode8_family.get(device, {{"E", tag(dtype)}}), queue,
         NDRange::linear(items, device.is_cpu() ? 1 : group_of_elements(device)), pointer(in),
         pointer(scales), pointer(table), Pointer{dense.mutable_data_ptr()},
         static_cast<uint64_t>(A.numel()), static_cast<uint32_t>(size),
         static_cast<uint32_t>(stretch), static_cast<uint32_t>(stretches));
  if (!dense.is_same(out)) out.copy_(dense);
}

}  // namespace ocl::bitsandbytes
