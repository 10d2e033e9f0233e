#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/attention/modification.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <span>
#include <unordered_map>

#include "engine/device_table.h"
#include "opencl/disk_cache.h"
#include "opencl/kernel.h"
#include "opencl/sources.h"
#include "runtime/stream.h"

namespace ocl::attention {

namespace {

/// A copy that lives for ever, as names of kernel families must.
const char* immortal_copy(const std::string& text) {
  auto* copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace

ModifiedKernels::ModifiedKernels(std::string text)
    : text_(std::move(text)),
      folder_("flex_attention/" + digest(text_).hex().substr(0, 16) + "/") {}

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
    const char* path = immortal_copy(folder_ + base.file());
    const char* text = immortal_copy(text_ + "#include \"" + base.file() + "\"\n");
    const KernelFile file{path, text};
    add_kernel_files(std::span(&file, 1));
    family = std::make_unique<KernelFamily>(path, base.name());
  }
  return *family;
}

at::Tensor table_of_blocks(const at::Tensor& counts, const at::Tensor& indices,
                           const at::Tensor& full_counts, const at::Tensor& full_indices) {
  static const KernelFamily family{"attention/blocks.cl", "attention_blocks"};
  const at::Tensor kinds = at::empty(indices.sizes(), indices.options().dtype(at::kByte));
  if (kinds.numel() == 0) return kinds;
  Queue& queue = current_queue(indices.device().index());
  const bool has_full = full_counts.defined();
  const auto rows = static_cast<size_t>(counts.numel());
  const auto pointer = [](const at::Tensor& tensor) { return Pointer{tensor.const_data_ptr()}; };
  launch(family.get(queue.device(), {}), queue, element_range(queue.device(), rows),
         Pointer{kinds.mutable_data_ptr()}, pointer(counts), pointer(indices),
         pointer(has_full ? full_counts : counts), pointer(has_full ? full_indices : indices),
         static_cast<uint32_t>(rows), static_cast<uint32_t>(indices.size(-1)),
         static_cast<uint32_t>(has_full));
  return kinds;
}

}  // namespace ocl::attention
