// How a group's calls reach the inner backend: where their tensors lie for it, and when it is
// called. Staged is for gloo, MPI and UCC, which want the host's memory; Shared is for NCCL.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/call_queue.h"
#include "distributed/shared_memory.h"
#include "distributed/staging.h"
#include "distributed/work.h"
#include "runtime/stream_table.h"

namespace ocl::distributed {

/// A call as the program made it.
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
/// A call on what is written and what is read: contiguous rows, of one length.
using RowsCall = std::function<WorkPtr(Tensors&, Tensors&)>;

/// A call's use of rows, one or one for each rank. It treats all elements of a row alike.
struct RowsRequest {
  Tensors read, written;
  int64_t length;         // elements of a row, or of the longest one
  int64_t rows;           // of the larger side
  bool in_place = false;  // both sides are `written`, of which nothing is read if `read` is empty
  bool uneven = false;    // each tensor is a row, and parts must lie one after the other
  RowsCall whole = {};    // what to call where the ranks don't cut; none: the same
};

class Transport {
 public:
  using Inner = c10::intrusive_ptr<c10d::Backend>;

  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  c10d::Backend* inner() const { return inner_.get(); }
  /// How many calls it has made.
  uint64_t calls() const { return number_ + at_once_; }
  bool failed() const { return *failed_; }
  /// Waits until the inner backend has all collectives.
  void drain() { queue_->drain(); }
  /// Gives it all calls, shuts it down and releases what only they need.
  virtual void shutdown() = 0;

  virtual bool supports_splitting() const = 0;
  virtual bool supports_coalescing() const = 0;
  /// One for some of the ranks; null on the others.
  virtual std::unique_ptr<Transport> split(const c10::intrusive_ptr<c10d::Store>& store,
                                           const std::vector<int>& ranks,
                                           const c10::intrusive_ptr<c10d::Backend::Options>& opts);
  /// The shared memory that it has, if it uses any.
  virtual std::optional<BlockPool::Counts> shared_memory() const { return std::nullopt; }

  /// The calls until end_coalescing() end together.
  virtual void start_coalescing() { coalescing_ = true; }
  virtual WorkPtr end_coalescing() = 0;

  /// A collective.
  virtual WorkPtr run(const Request& request, const Prepare& prepare) = 0;
  /// A collective on rows. It is `call` for each part, if it goes in parts, and else `prepare`.
  virtual WorkPtr run_rows(const Request& request, const RowsRequest& rows, const RowsCall& call,
                           const Prepare& prepare);
  /// A send or a receive.
  virtual WorkPtr run_point_to_point(const Request& request, const Prepare& prepare) = 0;

  // Collectives that inner backends don't have, or have otherwise.
  virtual WorkPtr barrier(const c10d::BarrierOptions& opts) = 0;
  virtual WorkPtr allreduce_sparse(const at::Tensor& tensor, const c10d::AllreduceOptions& opts);
  /// Rows of different sizes.
  virtual WorkPtr allgather_uneven(const Request& request, const c10d::AllgatherOptions& opts,
                                   const Prepare& prepare);
  virtual WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                 const c10d::ReduceScatterOptions& opts) = 0;
  virtual WorkPtr reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& opts) = 0;
  virtual WorkPtr reduce_scatter_coalesced(Tensors& outputs, Tensors& inputs,
                                           const c10d::ReduceScatterOptions& opts) = 0;
  virtual WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                                std::vector<int64_t>& output_sizes,
                                std::vector<int64_t>& input_sizes,
                                const c10d::AllToAllOptions& opts);
  virtual WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts);

 protected:
  explicit Transport(Inner inner);

  Streams& streams(c10::Device device);
  c10::intrusive_ptr<Work> make_work(const Request& request, std::optional<c10::Device> device);
  /// A send's or a receive's; on a device its wait() brings back what was received.
  c10::intrusive_ptr<PointToPoint> make_point_to_point(const Request& request,
                                                       std::optional<c10::Device> device,
                                                       const std::shared_ptr<Staging>& staging);
  /// The function that a call's end runs.
  std::function<void()> arrival(const Request& request, const std::shared_ptr<Staging>& staging,
                                const c10::intrusive_ptr<Work>& work);
  std::function<void(std::exception_ptr)> failing(const c10::intrusive_ptr<Work>& work) const;
  /// Makes the calls that are left. For destructors of those whose members the calls use.
  void stop() { queue_.reset(); }

  Inner inner_;
  const int rank_, size_;
  std::atomic<uint64_t> at_once_{0};  // calls for CPU tensors that have no work of ours
  bool coalescing_ = false;
  std::unique_ptr<CallQueue> queue_ = std::make_unique<CallQueue>();

 private:
  std::atomic<uint64_t> number_{0};
  // Shared with callbacks of the inner backend's threads.
  std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
  std::mutex streams_mutex_;
  std::array<std::optional<Streams>, kMaxDevices> streams_;
};

/// The device of a call's tensors; none for CPU tensors and for a call without any. Throws
/// c10::Error if they are not all on one.
std::optional<c10::Device> device_of(const Request& request);

}  // namespace ocl::distributed
