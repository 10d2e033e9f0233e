// The transport for an inner backend that knows the host's memory only: gloo, MPI, UCC.
//
// It gets a CPU device's memory as it lies, and pinned memory otherwise. Its future starts the way
// back to the device. CPU tensors go through the same queue, since gloo numbers its calls: ranks
// with a device and ranks without one can be in one group.
#pragma once

#include "distributed/chunks.h"
#include "distributed/host_staging.h"
#include "distributed/pinned_budget.h"
#include "distributed/transport.h"

namespace ocl::distributed {

class Staged final : public Transport {
 public:
  /// Bytes of a chunk where nobody asks for others: about what a network and a copy need to reach
  /// their full speed, and a few of them fit a processor's caches.
  static constexpr int64_t kUsualChunk = 8 << 20;

  /// `store` is the group's, and `chunk` the bytes of a chunk: see Chunks.
  Staged(Inner inner, c10::intrusive_ptr<c10d::Store> store, int64_t chunk);
  ~Staged() override;

  void shutdown() override;
  bool supports_splitting() const override { return inner_->supportsSplitting(); }
  bool supports_coalescing() const override { return false; }
  std::unique_ptr<Transport> split(const c10::intrusive_ptr<c10d::Store>& store,
                                   const std::vector<int>& ranks,
                                   const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;
  void start_coalescing() override;
  WorkPtr end_coalescing() override;

  WorkPtr run(const Request& request, const Prepare& prepare) override;
  /// In chunks if the ranks agree.
  WorkPtr run_rows(const Request& request, const RowsRequest& rows, const RowsCall& call,
                   const Prepare& prepare) override;
  WorkPtr run_point_to_point(const Request& request, const Prepare& prepare) override;

  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr allreduce_sparse(const at::Tensor& tensor, const c10d::AllreduceOptions& opts) override;
  WorkPtr allgather_uneven(const Request& request, const c10d::AllgatherOptions& opts,
                           const Prepare& prepare) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                              const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_coalesced(Tensors& outputs, Tensors& inputs,
                                   const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;

 private:
  struct ChunkedCall;

  WorkPtr run_on_cpu(const Request& request, const InnerCall& call);
  WorkPtr run_behind(const Request& request, const Prepare& prepare,
                     const std::shared_ptr<HostStaging>& staging, PinnedBudget::Turn turn);
  /// A call for CPU tensors, if all earlier ones were made.
  bool make_at_once(CallQueue& queue, WorkPtr& inner, const InnerCall& call);
  WorkPtr keep(WorkPtr work);

  /// Whether they may go in chunks. All ranks agree where the program is right.
  bool may_be_cut(const RowsRequest& rows) const;
  WorkPtr run_cut(const Request& request, const RowsRequest& rows, const RowsCall& call);
  void run_in_chunks(const std::shared_ptr<ChunkedCall>& chunked);
  /// Whether they may go by exchange_rows(). All ranks agree where the program is right.
  bool may_exchange_rows(const Tensors& outputs, const Tensors& inputs) const;
  /// all_to_all of any sizes: what this rank sends to each, and gets from each.
  WorkPtr exchange_rows(const Request& request, const Tensors& sent, const Tensors& received,
                        const c10d::AllToAllOptions& opts, const RowsCall& whole = {});
  /// all_to_all of a device's tensors as one on each side.
  WorkPtr alltoall_joined(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts);
  WorkPtr reduce_scatter_pieces(const at::Tensor& output, const at::Tensor& flat,
                                std::vector<int64_t> sizes, const c10d::ReduceScatterOptions& opts);

  Chunks chunks_;
  std::shared_ptr<PinnedBudget> pinned_;
  std::vector<WorkPtr> coalesced_;
  // For sends and receives: gloo matches them by their tags. A peer may need one before its next
  // collective, for which an earlier one here waits.
  std::unique_ptr<CallQueue> transfers_ = std::make_unique<CallQueue>();
};

}  // namespace ocl::distributed
