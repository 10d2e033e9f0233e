// Single precision as sums of three numbers of 8 bits, for products by tensor cores as exact as
// single precision's own.
#pragma once

#include <cstdint>

#include "engine/gemm/bfloat16_parts.h"
#include "runtime/stream.h"

namespace ocl::gemm {

/// Terms in bfloat16 that are added up for one of single precision: all but the three smallest of
/// nine.
constexpr int kExactTerms = 6;

/// Bytes of the three parts of so many elements, and from each part to the next.
struct Bfloat16x3 {
  explicit Bfloat16x3(uint64_t elements) : distance((elements * 2 + 15) / 16 * 16) {}
  uint64_t distance;
  uint64_t bytes() const { return 3 * distance; }
};

/// Writes the parts of each line, contiguous, with zeros from its length up to `pitch`, a multiple
/// of kChunk: out[batch * lines + line][i] of each part. `parts` has lines.batch * lines.lines *
/// pitch elements. (kernels/gemm/bfloat16x3.cl)
void write_bfloat16x3(Queue& queue, const FloatLines& lines, char* out, uint32_t pitch,
                      const Bfloat16x3& parts);

/// Images [images][channels][positions] become [images][positions][pitch].
struct FloatImages {
  const char* data;
  uint32_t images, channels, positions;
};
void write_bfloat16x3(Queue& queue, const FloatImages& images, char* out, uint32_t pitch,
                      const Bfloat16x3& parts);

/// Whether bfloat16x3 pays on a device: for so many multiplications of single precision, elements
/// that are split and elements that are copied besides; null, or why not.
const char* refuse_bfloat16x3(const Device& device, double multiplications, double elements,
                              double copied);

}  // namespace ocl::gemm
