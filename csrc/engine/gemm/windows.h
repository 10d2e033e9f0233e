// An operand that is found in the windows of a convolution (implicit GEMM).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include "engine/kernel_types.h"

namespace ocl::gemm {

using namespace kernel_types;
#include "gemm/windows_arguments.clh"

/// Elements that matrix instructions' kernels copy at once: 16 bytes of half types. Channels of
/// windows, and lines of bfloat16x3, come in multiples of it.
inline constexpr uint32_t kChunk = 8;

/// Which operand, and how: kernels/gemm/windows_arguments.clh. That operand's `data` is the
/// source's, and its `batch_stride` moves along its channels. Operands are aligned to 16 bytes,
/// with strides that are multiples of that. Side a: k is taps and channels, rows are positions.
/// Side b: k is positions, columns are taps and channels. An epilogue's z is the batch.
struct Windows {
  enum Side : int { none, a, b };
  Side side = none;
  WindowArguments arguments{};

  /// Position o and tap t meet the source's coordinate o * step + origin + t * tap_step. Zeros lie
  /// outside of the source.
  struct Axis {
    int64_t positions, step, origin, taps, tap_step;
  };
  void set_axis(size_t axis, const Axis& values);
  /// 2 if the first axis has one element throughout, else 3.
  int axes() const {
    const WindowArguments& w = arguments;
    const bool flat = w.size[0] == 1 && w.taps[0] == 1 && w.grid[0] == 1 && w.origin[0] == 0;
    return flat ? 2 : 3;
  }
  /// Whether the result's rows begin at multiples of so many elements.
  bool rows_are_multiples(uint64_t elements) const;
  /// Whether the result's rows lie at several distances.
  bool is_apart() const { return side == a && arguments.linear == 0; }
};

/// Why none of the device's implementations for windows takes that dtype, single precision as TF32
/// if that will do; null if one does. `tiles`: a GPU's plain tiles will do where it has no matrix
/// instructions for them. An implementation that is forced is asked alone.
const char* refuse_windows(c10::ScalarType dtype, bool tf32, bool tiles);

}  // namespace ocl::gemm
