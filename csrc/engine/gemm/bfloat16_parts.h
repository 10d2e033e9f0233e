// Single precision as one or two numbers of 8 bits, for products and convolutions in bfloat16.
#pragma once

#include <cstdint>

#include "runtime/stream.h"

namespace ocl::gemm {

/// m, n and k are not below: copying an operand costs as much as several products.
constexpr uint32_t kLeastOfParts = 32;

/// Element i of line l of matrix z: data[z * batch_stride + l * line_stride + i * stride].
struct FloatLines {
  const char* data;
  uint64_t stride, line_stride, batch_stride;
  uint32_t length, lines, batch;
};

/// Writes each line of `length` elements as `terms` such parts, 1 or 3, and zeros up to `pitch`:
/// high, high, low, or, of the `second` operand, high, low, high. Then a sum over a line of parts
/// has so many terms for one of single precision.
void write_bfloat16_parts(Queue& queue, int terms, bool second, const FloatLines& lines, char* out,
                          uint64_t pitch);

}  // namespace ocl::gemm
