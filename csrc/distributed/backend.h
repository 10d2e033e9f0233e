// torch.distributed on `ocl` tensors: a c10d backend around one for CPU tensors (gloo, MPI, UCC),
// or around NCCL.
//
// It says what each call hands to the inner backend: collectives.cpp. A transport has the tensors
// there, and the inner backend called in the program's order: transport.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/transport.h"

namespace ocl::distributed {

class Backend final : public c10d::Backend {
 public:
  using Base = c10d::Backend;
  using Ptr = c10::intrusive_ptr<Base>;

  explicit Backend(std::unique_ptr<Transport> transport);
  ~Backend() override;

  /// How many calls it has made.
  uint64_t calls() const { return transport_->calls(); }
  /// Counts of its shared memory; none: it has none.
  std::optional<BlockPool::Counts> shared_memory() const { return transport_->shared_memory(); }
  const std::string getBackendName() const override { return inner()->getBackendName(); }
  bool supportsSplitting() const override { return transport_->supports_splitting(); }
  bool supportsCoalescing() const override { return transport_->supports_coalescing(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner()->setTimeout(timeout); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner()->getBackendOptions(); }
  void setGroupUid(const std::string& uid) override;
  void setSequenceNumberForGroup() override { inner()->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner()->getSequenceNumberForGroup(); }
  void enableCollectivesTiming() override { inner()->enableCollectivesTiming(); }
  c10d::ErrorType getError() override {
    return transport_->failed() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
  }
  void abort() override { inner()->abort(); }
  void shutdown() override { transport_->shutdown(); }
  Ptr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
            const c10::intrusive_ptr<Base::Options>& opts) override;

  void startCoalescing() override { transport_->start_coalescing(); }
  WorkPtr endCoalescing() override { return transport_->end_coalescing(); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    return transport_->reduce_scatter(outputs, inputs, opts);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override {
    return transport_->reduce_scatter_base(output, input, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return transport_->reduce_scatter_coalesced(outputs, inputs, opts);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& opts) override {
    return transport_->alltoall_base(output, input, output_sizes, input_sizes, opts);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    return transport_->alltoall(outputs, inputs, opts);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override { return transport_->barrier(opts); }
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 private:
  using TensorsCall = std::function<WorkPtr(Tensors&)>;
  /// A call that treats all elements of its tensors alike.
  WorkPtr run_elementwise(c10d::OpType type, Tensors& tensors, bool reads, bool synchronous,
                          const TensorsCall& call);
  Base* inner() const { return transport_->inner(); }

  std::unique_ptr<Transport> transport_;
  c10::weak_intrusive_ptr<Base> last_split_{Ptr()};
};

}  // namespace ocl::distributed
