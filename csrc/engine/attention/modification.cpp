#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/attention/modification.h"

#include <ATen/ops/empty.h>

#include "engine/device_table.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::attention {

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
