// What products and convolutions of single precision may be rounded to, by the user's word.
#pragma once

#include <cstdint>

namespace ocl::native {

enum class Float32Use : uint8_t { matmul, conv };
/// none: what torch's settings for all devices say.
enum class Float32Precision : uint8_t { none, ieee, tf32 };

/// torch.backends.ocl.matmul.fp32_precision and torch.backends.ocl.conv.fp32_precision.
Float32Precision float32_precision(Float32Use use);
void set_float32_precision(Float32Use use, Float32Precision precision);

/// Whether factors of 11 bits (TF32) will do on the current device, if it has units for them: by
/// the setting above, else, of products, by torch.set_float32_matmul_precision(), else by
/// torch.backends.fp32_precision. By default they won't.
bool allows_tf32(Float32Use use);

}  // namespace ocl::native
