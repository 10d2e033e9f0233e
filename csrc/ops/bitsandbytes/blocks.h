// Blocks of 4 bits: the parts that their ops share.
#pragma once

#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "ops/bitsandbytes/bitsandbytes.h"

namespace ocl::bitsandbytes {

/// A kernel's argument; null for an undefined tensor.
inline Pointer pointer(const Tensor& tensor) {
  return Pointer{tensor.defined() ? tensor.const_data_ptr() : nullptr};
}

/// The scales of blocks, all contiguous: float32; or, if bytes are defined, bytes[i] is a position
/// in a table of 256 float32 numbers, whose number times largest[i / 256] plus offset is the scale.
struct Scales {
  Tensor largest, bytes{}, table{}, offset{};

  bool are_nested() const { return bytes.defined(); }

  /// Throws unless there is a scale for each block of 2^shift elements.
  void check(int64_t elements, uint32_t shift) const {
    const int64_t blocks = ceil_div(elements, int64_t{1} << shift);
    TORCH_CHECK(largest.scalar_type() == at::kFloat, "absmax must be float32, got ",
                largest.scalar_type());
    const int64_t given = are_nested() ? bytes.numel() : largest.numel();
    TORCH_CHECK(given >= blocks, "expected ", blocks, " scales of blocks, got ", given);
    TORCH_CHECK(!are_nested() || largest.numel() >= ceil_div<int64_t>(blocks, 256), "expected ",
                ceil_div<int64_t>(blocks, 256), " entries of absmax, got ", largest.numel());
  }
};

/// float32, float16 or bfloat16.
bool is_element(at::ScalarType dtype);
/// The kernels' name of "nf4" or "fp4". Throws for others.
const char* table_of(std::string_view quant_type);
/// The logarithm of a size of blocks of 4 bits. Throws unless it is a power of 2 from 32 to 4096.
uint32_t shift_of(int64_t blocksize);
/// A tensor of packed values as contiguous bytes.
Tensor bytes_of(const Tensor& packed);

/// Enqueues out = numbers * scales. Checks that there are enough bytes and scales for the
/// contiguous out.
void decode4(const Tensor& bytes, const Scales& scales, uint32_t shift, const char* table,
             const Tensor& out);

}  // namespace ocl::bitsandbytes
