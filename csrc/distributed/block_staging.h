// A call's tensors in memory that the inner backend shares: all copies stay on the device.
#pragma once

#include "distributed/shared_memory.h"
#include "distributed/staging.h"

namespace ocl::distributed {

class BlockStaging final : public Staging {
 public:
  BlockStaging(c10::Device device, const Streams& streams, std::shared_ptr<BlockPool> pool)
      : Staging(device, streams), pool_(std::move(pool)) {}

  void bring_back() override;

 private:
  at::Tensor stage_ours(const at::Tensor& tensor, Use use) override;
  size_t place(size_t bytes);

  std::shared_ptr<BlockPool> pool_;
  std::vector<std::shared_ptr<SharedBlock>> blocks_;  // small tensors share the last one
  size_t used_ = 0;                                   // bytes of the last one
};

}  // namespace ocl::distributed
