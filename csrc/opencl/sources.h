// Where kernel files come from, and their includes.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ocl {

/// The text of kernels/<path> with its #include "..." lines expanded, with #line directives so that
/// a build log names the real file. Included names are paths below kernels/, as with -I kernels, or
/// those of an extension's files; each file is taken once, under an #if too. The folders of
/// TORCH_OCL_KERNEL_DIR, separated by colons, come before the embedded copies. Throws
/// std::runtime_error if a file or such a folder is missing, or if two libraries have files of that
/// name with different texts.
std::string kernel_source(const std::string& path);

/// Expands `text` instead of a file's; `name` is what messages call it.
std::string expand_kernel_source(const std::string& name, const std::string& text);

/// A kernel file of an extension: the name that KernelFamily and #include give it, and its text.
struct KernelFile {
  std::string_view path, text;
};

/// Makes an extension's kernel files known, beside those of kernels/. The views must stay valid for
/// ever, as literals do. A name that is taken, by another text, is an error once the file is asked
/// for, since this runs while a library is being loaded. Thread-safe.
void add_kernel_files(std::span<const KernelFile> files);

/// Generated at build time from kernels/: the text of an embedded file, or an empty view.
std::string_view embedded_kernel(std::string_view path);

}  // namespace ocl
