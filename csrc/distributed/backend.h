// torch.distributed on `ocl` tensors: a c10d backend around one for CPU tensors (gloo, MPI, UCC),
// or around NCCL.
//
// The inner backend gets a CPU device's memory as it lies, and pinned memory otherwise: staging.h.
// NCCL gets memory that CUDA and OpenCL share: shared_memory.h, through_blocks.cpp.
// It is called in the program's order: call_queue.h. Its future starts the way back to the device.
// CPU tensors go through the same queue, since the inner backend numbers its calls: ranks with a
// device and ranks without one can be in one group.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/call_queue.h"
#include "distributed/chunks.h"
#include "distributed/pinned_budget.h"
#include "distributed/staging.h"
#include "distributed/work.h"
#include "runtime/stream_table.h"

namespace ocl::distributed {

class Backend final : public c10d::Backend {
 public:
  using Base = c10d::Backend;
  using Ptr = c10::intrusive_ptr<Base>;

  /// `store` is the group's, and `chunk` the bytes of a chunk: see Chunks.
  Backend(Ptr inner, c10::intrusive_ptr<c10d::Store> store, int64_t chunk);
  /// One whose tensors go through shared memory. It takes those of `ocl` only.
  Backend(Ptr inner, std::shared_ptr<BlockPool> pool);
  ~Backend() override;

  /// How many calls it has made.
  uint64_t calls() const { return number_ + at_once_; }
  const std::string getBackendName() const override { return inner_->getBackendName(); }
  /// Of the shared memory; null: it has none.
  BlockPool* pool() const { return pool_.get(); }
  // NCCL splits communicators that it has for a device by then, which are not the group's here.
  bool supportsSplitting() const override { return !pool_ && inner_->supportsSplitting(); }
  bool supportsCoalescing() const override { return pool_ != nullptr; }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setGroupUid(const std::string& uid) override;
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void enableCollectivesTiming() override { inner_->enableCollectivesTiming(); }
  c10d::ErrorType getError() override;
  void abort() override { inner_->abort(); }
  void shutdown() override;
  Ptr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
            const c10::intrusive_ptr<Base::Options>& opts) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

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
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 private:
  struct Request {
    c10d::OpType type;
    Tensors inputs, outputs;
    bool synchronous = false;           // the program waits for the result at once
    std::function<void()> finish = {};  // the last step on the device, on the stream for copies in
    Tensors pieces = {};                // what the inner backend writes, if not the outputs

    const Tensors& results() const { return pieces.empty() ? outputs : pieces; }
  };
  using InnerCall = std::function<WorkPtr()>;
  /// Puts a call's tensors where the inner backend can use them, and returns its call. It may come
  /// after the call, in the queue's thread: no references.
  using Prepare = std::function<InnerCall(Staging&)>;
  using TensorsCall = std::function<WorkPtr(Tensors&)>;
  /// Of what is written and what is read: contiguous rows, of one length.
  using RowsCall = std::function<WorkPtr(Tensors&, Tensors&)>;
  struct ChunkedCall;

  WorkPtr run(const Request& request, const Prepare& prepare);
  WorkPtr run_behind(const Request& request, const Prepare& prepare,
                     const std::shared_ptr<Staging>& staging, PinnedBudget::Turn turn);
  std::function<void()> arrival(const Request& request, const std::shared_ptr<Staging>& staging,
                                const c10::intrusive_ptr<Work>& work,
                                PinnedBudget::SharePtr pinned);
  /// A call in a group's batch, and what comes after it.
  struct Member {
    InnerCall call;
    std::shared_ptr<Staging> staging;
    c10::intrusive_ptr<Work> work;
    std::function<void()> arrived;
  };

  std::shared_ptr<Staging> stage(c10::Device device);
  /// With shared memory: where the inner backend's tensors are for those of a device.
  c10::Device other_side(c10::Device device) const;
  /// Has the inner backend do a call through shared memory, and waits for it.
  void make_through_blocks(c10::Device device, const InnerCall& call, Work& work);
  /// With shared memory: puts a call off until the device has nothing else to do.
  void wait_for_device(const Staging& staging, const std::function<bool()>& asked_for);
  WorkPtr run_batch();
  void make_batch(c10::Device device, const std::vector<Member>& batch);
  WorkPtr barrier_on_device(const c10d::BarrierOptions& opts);

  /// With shared memory there is no way for them.
  void check_takes_cpu_tensors() const;
  bool make_at_once(CallQueue& queue, WorkPtr& inner, const InnerCall& call);
  WorkPtr run_on_cpu(const Request& request, const InnerCall& call);
  /// Of calls that treat every element alike.
  WorkPtr run_elementwise(c10d::OpType type, Tensors& tensors, bool reads, bool synchronous,
                          const TensorsCall& call);
  struct RowsRequest {
    Tensors read, written;
    int64_t length;         // elements of a row, or of the longest one
    int64_t rows;           // of the larger side
    bool in_place = false;  // both sides are `written`, of which nothing is read if `read` is empty
    bool uneven = false;    // each tensor is a row, and parts must lie one after the other
    RowsCall whole = {};    // what to call where the ranks don't cut; none: the same
  };
  /// Whether they may go by run_rows(). The same on all ranks where the program is right.
  bool may_be_cut(const RowsRequest& rows) const;
  /// Of calls that treat every element of a row alike. In chunks if the ranks agree.
  WorkPtr run_rows(const Request& request, const RowsRequest& rows, const RowsCall& call);
  void run_in_chunks(const std::shared_ptr<ChunkedCall>& chunked);
  /// all_to_all of any sizes: what this rank sends to each, and gets from each.
  WorkPtr exchange_rows(const Request& request, const Tensors& sent, const Tensors& received,
                        const c10d::AllToAllOptions& opts, const RowsCall& whole = {});
  /// Whether they may go by exchange_rows(). The same on all ranks where the program is right.
  bool may_exchange_rows(const Tensors& outputs, const Tensors& inputs) const;
  WorkPtr run_point_to_point(const Request& request, const Prepare& prepare);
  WorkPtr allreduce_sparse_tensor(const at::Tensor& tensor, const c10d::AllreduceOptions& opts);
  WorkPtr reduce_scatter_pieces(const at::Tensor& output, const at::Tensor& flat,
                                std::vector<int64_t> sizes, const c10d::ReduceScatterOptions& opts);

  void push(CallQueue::Call call, bool synchronous, std::unique_lock<std::mutex> order = {});
  WorkPtr keep(WorkPtr work);
  Streams& streams(c10::Device device);
  c10::intrusive_ptr<Work> make_work(const Request& request, std::optional<c10::Device> device);
  std::function<void(std::exception_ptr)> failing(const c10::intrusive_ptr<Work>& work) const;

  Ptr inner_;
  std::shared_ptr<BlockPool> pool_;
  Chunks chunks_;
  std::shared_ptr<PinnedBudget> pinned_;
  std::atomic<uint64_t> number_{0};
  std::atomic<uint64_t> at_once_{0};  // calls for CPU tensors that have no work of ours
  // Shared with callbacks of the inner backend's threads.
  std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
  std::vector<Member> batch_;  // what is coalesced, with shared memory
  c10::weak_intrusive_ptr<Base> last_split_{Ptr()};
  std::mutex streams_mutex_;
  std::array<std::optional<Streams>, kMaxDevices> streams_;
  // Last: they use the others as long as they live.
  std::unique_ptr<CallQueue> queue_ = std::make_unique<CallQueue>();
  // Of sends and receives, unless they need the order of all: gloo matches them by their tags. A
  // peer may need one before its next collective, for which an earlier one here waits.
  std::unique_ptr<CallQueue> transfers_ = std::make_unique<CallQueue>();
};

}  // namespace ocl::distributed
