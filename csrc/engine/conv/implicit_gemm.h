// Which windows implicit_gemm takes, for those who make a convolution of other windows.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "engine/conv/description.h"

namespace ocl::conv {

/// Elements of a window at most: a work-item has a bit for each.
inline constexpr int64_t kMostTaps = 64;

/// Why it doesn't take the description with that dtype and window; null if it does. `tiles`: a
/// GPU's plain tiles will do where it has no matrix instructions for them.
const char* refuse_windows(const Description& description, c10::ScalarType dtype,
                           const Window& window, bool tiles);

}  // namespace ocl::conv
