#include "distributed/host_staging.h"

#include <ATen/ops/empty.h>

namespace ocl::distributed {

at::Tensor HostStaging::stage_ours(const at::Tensor& tensor, Use use) {
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  if (is_lendable(tensor)) return lend(tensor);
  start_copies();
  at::Tensor memory = pinned_.emplace_back(pinned_like(tensor));
  copy_through(tensor, memory, use);
  return memory;
}

void HostStaging::bring_back() {
  Staging::bring_back();
  for (const at::Tensor& memory : pinned_) release(memory);
  pinned_.clear();
  if (share_) share_->give_back({record(streams_->in), record(streams_->out)});
}

}  // namespace ocl::distributed
