// implicit_gemm asks this of windows.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "engine/conv/window.h"

namespace ocl::conv {

/// Elements of a window at most: a work-item has a bit for each.
inline constexpr int64_t kMostTaps = 64;

/// Why it doesn't take convolutions of that dtype and window on the current device; null if it
/// does. `tiles`: a GPU's plain tiles will do where it has no matrix instructions for them.
const char* refuse_windows(c10::ScalarType dtype, const Window& window, bool tiles);

}  // namespace ocl::conv
