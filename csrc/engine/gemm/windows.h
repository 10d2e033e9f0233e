// A product one of whose operands is found in the windows of a convolution (implicit GEMM).
#pragma once

#include "engine/epilogue.h"
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

/// Why product_of_windows() does not take products of that dtype on the current device, those of
/// single precision as TF32 if that will do; null if it does. Its operands are aligned to 16 bytes,
/// with strides that are multiples of that. `tiles`: a GPU's plain tiles will do where it has no
/// matrix instructions for them. A kernel that is forced is asked alone.
const char* refuse_windows(c10::ScalarType dtype, bool tf32, bool tiles);

/// As product(), with the windows' side found in them: of that operand `data` is the source's, and
/// `batch_stride` moves along its channels. side a: k is taps and channels, rows are positions;
/// side b: k is positions, columns are taps and channels. An epilogue's z is the batch.
void product_of_windows(const Description& description, const Windows& windows,
                        const Epilogue* epilogue = nullptr);

}  // namespace ocl::gemm
