#include "distributed/block_staging.h"

#include <ATen/ops/from_blob.h>

#include "opencl/ceil_div.h"

namespace ocl::distributed {

/// Where in the last block there is room for as many bytes; a new one if there is none.
size_t BlockStaging::place(size_t bytes) {
  constexpr size_t kAlign = 512;  // as what allocators give, which kernels are made for
  const size_t aligned = round_up(bytes, kAlign);
  if (blocks_.empty() || used_ + bytes > blocks_.back()->bytes) {
    blocks_.push_back(pool_->take(device().index(), bytes));
    if (blocks_.back()->last_use) blocks_.back()->last_use->block(streams_->out);
    used_ = 0;
  }
  return std::exchange(used_, used_ + aligned);
}

/// A tensor of the inner backend's, which has the block as long as that lives.
at::Tensor BlockStaging::stage_ours(const at::Tensor& tensor, Use use) {
  const c10::Device other = pool_->memory().other(tensor.device().index());
  const auto view = [&](void* address, c10::Device where, const auto& block) {
    return at::for_blob(address, tensor.sizes())
        .deleter([block](void*) {})
        .options(at::TensorOptions(tensor.scalar_type()).device(where))
        .target_device(where)
        .make_tensor();
  };
  if (tensor.numel() == 0) return view(nullptr, other, nullptr);
  start_copies();
  const size_t offset = place(tensor.nbytes());
  const auto& block = blocks_.back();
  copy_through(tensor, view(block->ours + offset, tensor.device(), block), use);
  reads_ = true;  // an earlier call's copies from the block end before it is written, too
  return view(block->theirs + offset, other, block);
}

void BlockStaging::bring_back() {
  const bool copies = !back_.empty();
  Staging::bring_back();
  if (copies) {
    const EventPtr done = record(streams_->in);
    for (const auto& block : blocks_) block->last_use = done;
  }
  blocks_.clear();
}

}  // namespace ocl::distributed
