// Convolutions as products by matrix instructions that find one operand in the windows (implicit
// GEMM, as im2col without the copy). Channels lie innermost.
#pragma once

#include <array>
#include <cstdint>

#include "engine/conv/conv.h"

namespace ocl::conv {

/// Elements that a product copies at once: channels come in multiples of it.
constexpr int64_t kChunk = 8;
/// Elements of a window at most: a work-item has a bit for each.
constexpr int64_t kMostTaps = 64;

/// Positions and taps along each axis: position o and tap t meet the source's coordinate
/// o * step + origin + t * tap_step; zeros lie outside of the source.
struct WindowGrid {
  std::array<int64_t, 3> positions{1, 1, 1}, step{1, 1, 1}, origin{}, taps{1, 1, 1},
      tap_step{1, 1, 1};
  bool tf32 = false;  // of single precision: factors may be rounded to 11 bits
  /// The operands are parts of single precision in gemm/bfloat16_planes.h's planes, of which so
  /// many products count; bytes from each plane of the source, and of the other, to the next.
  int plane_terms = 1;
  uint64_t source_plane = 0, other_plane = 0;
};

/// out[n, o, j] = sum over taps t and channels c of source(n, o, t, c) * weight[j][t][c] + bias[j],
/// for each of `groups` parts of the channels.
///
/// weight is contiguous. Channels of each group are a multiple of 8; out's and the source's lie
/// innermost, their other strides are multiples of 8 and data of 16 bytes. Of bfloat16 operands the
/// result may be of single precision. out.size counts positions: its strides lead from one to the
/// next. At most 64 taps, 2^31 positions.
/// An epilogue sees positions as rows, a group's channels as columns, and the group as z.
void implicit_gemm(const Operand& out, const Operand& source, const void* weight, const void* bias,
                   const WindowGrid& grid, int64_t groups, const Epilogue* epilogue = nullptr);

/// weight[j][t][c] = sum over images and positions of out[n, o, j] * source(n, o, t, c), in
/// `dtype`. As implicit_gemm(); out's positions follow each other at one distance, through all
/// images.
void implicit_gemm_weight(void* weight, c10::ScalarType dtype, const Operand& out,
                          const Operand& source, const WindowGrid& grid, int64_t groups);

/// Why the two don't take convolutions of that dtype and window on the current device; null if they
/// do. `tiles`: a GPU's plain tiles will do where it has no matrix instructions for them.
const char* refuse_implicit_gemm(c10::ScalarType dtype, const Window& window, bool tiles);

}  // namespace ocl::conv
