// What products and convolutions of single precision may be rounded to, by the user's word.
#pragma once

#include <cstdint>

namespace ocl::native {

enum class Float32Use : uint8_t { matmul, conv };
/// none: what torch's settings for all devices say.
enum class Float32Precision : uint8_t { none, ieee, tf32, bf16x3, bf16 };

/// torch.backends.ocl.matmul.fp32_precision and torch.backends.ocl.conv.fp32_precision.
Float32Precision float32_precision(Float32Use use);
void set_float32_precision(Float32Use use, Float32Precision precision);

/// What will do for factors, of what the current device has units for: by the setting above, else,
/// of products, by torch.set_float32_matmul_precision(), else by torch.backends.fp32_precision. By
/// default, and without such units, `ieee`, which is never less than what was allowed.
///
/// tf32: 11 bits, on NVIDIA's tensor cores. bf16: one number of 8 bits; bf16x3: two of them, with
/// the three largest products of theirs, on Intel's GPUs and processors with AVX512-BF16. A product
/// may take those where the word is "high" (bf16x3) or "medium" (bf16). A processor's units are
/// twice as fast in bfloat16, so that bf16x3 would be slower there: it takes that by its name only.
Float32Precision allowed_precision(Float32Use use);
inline bool allows_tf32(Float32Use use) { return allowed_precision(use) == Float32Precision::tf32; }

}  // namespace ocl::native
