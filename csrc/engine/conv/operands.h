// A convolution's operands as matrix instructions take them: channels innermost, in multiples of
// kChunk. Those of single precision may be parts in bfloat16, each element as 1 or 3 terms
// (engine/gemm/bfloat16_parts.h), or as three parts that lie apart, which lose nothing
// (engine/gemm/bfloat16x3.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "engine/conv/description.h"
#include "engine/conv/phase.h"
#include "engine/gemm/windows.h"
#include "opencl/ceil_div.h"

namespace ocl::conv {

inline constexpr int64_t kChunk = gemm::kChunk;
inline int64_t padded(int64_t channels) { return ceil_div(channels, kChunk) * kChunk; }

/// An element of single precision becomes 1 or 3 terms in bfloat16, or three parts that lose
/// nothing. It stays what it is by default.
struct Parts {
  int terms = 0;
  bool exact = false;
};

/// An operand of the matrix product, and the bytes from each of its three parts to the next; 0 if
/// it is whole.
struct Matrix {
  at::Tensor tensor;
  uint64_t part = 0;
};

/// An image, or a gradient, with its channels innermost, of which those it doesn't have are zeros.
Matrix image_of(const at::Tensor& image, int64_t channels, const Parts& parts);
/// The other operand, of contiguous rows.
Matrix rows_of(const at::Tensor& rows, const Parts& parts);
/// The channels of each of the groups that an image has then: as they are in terms, which have
/// zeros behind the last one.
int64_t channels_of(int64_t channels, const Parts& parts, int64_t groups);

/// All of a weight as [row][taps][channel], contiguous.
at::Tensor weight_rows(const at::Tensor& weight, int64_t channels);
/// The part of a weight that `phases` take, as [group][channel of the input][taps][channel].
at::Tensor weight_rows(const at::Tensor& weight, const std::array<Phase, kAxes>& phases,
                       int64_t groups, int64_t channels);

/// Images [image][channel][...] as [image][...][channel], contiguous, for sums over positions: as
/// terms of all of them, if there are any. `second`: the second operand's terms.
Matrix positions_of(const at::Tensor& images, int64_t channels, bool second, const Parts& parts);

}  // namespace ocl::conv
