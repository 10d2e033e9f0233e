// The transport for an inner backend that works on memory shared with the device, as NCCL does.
//
// NCCL's work is done on CUDA's streams, which OpenCL's queues know nothing of. So the host waits:
// for the copies to shared memory before a call (CallQueue), and for the call's work before the
// copies back. Calls are made one at a time: NCCL executes them in order anyway.
#pragma once

#include "distributed/block_staging.h"
#include "distributed/transport.h"

namespace ocl::distributed {

/// Takes tensors of `ocl` only.
class Shared final : public Transport {
 public:
  Shared(Inner inner, std::shared_ptr<BlockPool> pool);
  ~Shared() override;

  void shutdown() override;
  // NCCL splits communicators that it has for a device by then, which are not the group's here.
  bool supports_splitting() const override { return false; }
  bool supports_coalescing() const override { return true; }
  std::optional<BlockPool::Counts> shared_memory() const override { return pool_->counts(); }
  WorkPtr end_coalescing() override;

  WorkPtr run(const Request& request, const Prepare& prepare) override;
  WorkPtr run_point_to_point(const Request& request, const Prepare& prepare) override;

  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                              const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_coalesced(Tensors& outputs, Tensors& inputs,
                                   const c10d::ReduceScatterOptions& opts) override;

 private:
  /// A call in a group's batch, and what comes after it.
  struct Member {
    InnerCall call;
    std::shared_ptr<Staging> staging;
    c10::intrusive_ptr<Work> work;
    std::function<void()> arrived;
  };

  /// The device of a call's tensors. Throws c10::Error if they are on the CPU.
  c10::Device device_here(const Request& request) const;
  /// Where the inner backend's tensors are for those of a device.
  c10::Device other_side(c10::Device device) const;
  /// Has the inner backend do a call, and waits for it.
  void make(c10::Device device, const InnerCall& call, Work& work);
  /// Puts a call off until the device has nothing else to do.
  void wait_for_device(const Staging& staging, const std::function<bool()>& asked_for);
  void make_batch(c10::Device device, const std::vector<Member>& batch);

  std::shared_ptr<BlockPool> pool_;
  std::vector<Member> batch_;  // what is coalesced
};

}  // namespace ocl::distributed
