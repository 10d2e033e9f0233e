// A call's tensors in the host's memory: lent, or copied to pinned memory and back.
#pragma once

#include "distributed/pinned_budget.h"
#include "distributed/staging.h"

namespace ocl::distributed {

class HostStaging final : public Staging {
 public:
  HostStaging() = default;
  HostStaging(c10::Device device, const Streams& streams) : Staging(device, streams) {}

  /// The pinned memory that the call may have, which goes back with the copies; null: it needs
  /// none, or no budget.
  void set_share(PinnedBudget::SharePtr share) { share_ = std::move(share); }
  void bring_back() override;

 private:
  at::Tensor stage_ours(const at::Tensor& tensor, Use use) override;

  Tensors pinned_;
  PinnedBudget::SharePtr share_;
};

}  // namespace ocl::distributed
