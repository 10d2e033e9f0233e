// The precision that products and convolutions of float32 may be rounded to, by the user's word.
#pragma once

#include <cstdint>

namespace ocl::native {

enum class Float32Use : uint8_t { matmul, conv };
/// none: what torch's settings for all devices say.
enum class Float32Precision : uint8_t { none, ieee, tf32, bf16x3, bf16 };

/// torch.backends.ocl.matmul.fp32_precision and torch.backends.ocl.conv.fp32_precision.
Float32Precision float32_precision(Float32Use use);
void set_float32_precision(Float32Use use, Float32Precision precision);

/// The precision that will do for factors, among those that the device has units for. The narrowest
/// setting counts: the one above; else torch's of the op, which
/// torch.set_float32_matmul_precision() makes of products; else its backend's; else
/// torch.backends.fp32_precision. The backend is "cuda" on devices with tensor cores, "mkldnn" on
/// others. cudnn.conv's "tf32" counts once a wider setting says something: it is the default as
/// well. By default, and without such units, `ieee`, which is never less than what was allowed.
///
/// tf32: 11 bits, on NVIDIA's tensor cores. bf16: one number of 8 bits; bf16x3: two of them, with
/// the three largest products of theirs, on all matrix units and processors with AVX512-BF16. On
/// Intel's GPUs torch's words "tf32" and "high" mean bf16x3. Processors have TF32 by no name: their
/// units are twice as fast in bfloat16, so that bf16x3 is slower there.
Float32Precision allowed_precision(Float32Use use);

/// Products in bfloat16 that stand for one of single precision; 0: none do.
inline int rounded_terms(Float32Precision precision) {
  if (precision == Float32Precision::bf16x3) return 3;
  return precision == Float32Precision::bf16 ? 1 : 0;
}

}  // namespace ocl::native
