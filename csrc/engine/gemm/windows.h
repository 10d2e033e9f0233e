// A product one of whose operands is found in the windows of a convolution (implicit GEMM).
#pragma once

#include "engine/gemm/gemm.h"
#include "engine/kernel_types.h"

namespace ocl::gemm {

using namespace kernel_types;
#include "gemm/windows_arguments.clh"

/// Which operand, and how: kernels/gemm/windows_arguments.clh.
struct Windows {
  enum Side : int { none, a, b };
  Side side = none;
  WindowArguments arguments{};

  /// Sets the grid with what divides by it.
  void set_grid(int axis, uint32_t positions);
  /// Whether the first axis has one element throughout.
  bool is_flat() const {
    const WindowArguments& w = arguments;
    return w.size[0] == 1 && w.taps[0] == 1 && w.grid[0] == 1 && w.origin[0] == 0;
  }
};

/// Why product_of_windows() does not take products of that dtype on the current device, those of
/// single precision as TF32 if that will do; null if it does. Its operands are aligned to 16 bytes,
/// with strides that are multiples of that.
const char* refuse_windows(c10::ScalarType dtype, bool tf32);

/// As product(), with the windows' side found in them: of that operand `data` is the source's, and
/// `batch_stride` moves along its channels. side a: k is taps and channels, rows are positions;
/// side b: k is positions, columns are taps and channels.
void product_of_windows(const Description& description, const Windows& windows);

}  // namespace ocl::gemm
