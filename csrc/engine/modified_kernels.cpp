#include "engine/modified_kernels.h"

#include <cstring>
#include <span>
#include <unordered_map>
#include <utility>

#include "opencl/disk_cache.h"
#include "opencl/sources.h"

namespace ocl {

namespace {

/// A copy that lives for ever, as names of kernel families must.
const char* immortal_text(const std::string& text) {
  auto* copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace

ModifiedKernels::ModifiedKernels(std::string text)
    : text_(std::move(text)), folder_("modified/" + digest(text_).hex().substr(0, 16) + "/") {}

const ModifiedKernels& ModifiedKernels::of(const std::string& text) {
  static auto* mutex = new std::mutex;
  static auto* known = new std::unordered_map<std::string, std::unique_ptr<ModifiedKernels>>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<ModifiedKernels>& kernels = (*known)[text];
  if (!kernels) kernels.reset(new ModifiedKernels(text));
  return *kernels;
}

const KernelFamily& ModifiedKernels::family(const KernelFamily& base) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<KernelFamily>& family = families_[&base];
  if (!family) {
    const char* path = immortal_text(folder_ + base.file());
    const char* text = immortal_text(text_ + "#include \"" + base.file() + "\"\n");
    const KernelFile file{path, text};
    add_kernel_files(std::span(&file, 1));
    family = std::make_unique<KernelFamily>(path, base.name());
  }
  return *family;
}

}  // namespace ocl
