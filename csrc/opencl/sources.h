// Where kernel files come from, and their includes.
#pragma once

#include <string>
#include <string_view>

namespace ocl {

/// The text of kernels/<path> with its #include "..." lines expanded, with #line directives so that
/// a build log names the real file. Included names are paths below kernels/, as with -I kernels;
/// each file is taken once, under an #if too. Reads TORCH_OCL_KERNEL_DIR instead of the embedded
/// copy when it is set. Throws std::runtime_error if a file is missing.
std::string kernel_source(const std::string& path);

/// Generated at build time from kernels/: the text of an embedded file, or an empty view.
std::string_view embedded_kernel(std::string_view path);

}  // namespace ocl
