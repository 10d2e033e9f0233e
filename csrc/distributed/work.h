// The work that a collective on `ocl` tensors returns: how its end is asked for, waited for and
// followed.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace ocl::distributed {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// A call under way. Its future holds the results; wait() makes the caller's current stream wait
/// for the copies back to the device.
class Work : public c10d::Work {
 public:
  /// `devices` are those of the results; empty for results on the CPU.
  Work(int rank, c10d::OpType type, Tensors results, std::vector<c10::Device> devices,
       uint64_t number);

  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return number_; }
  int sourceRank() const override;
  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  /// Whether somebody waits for it, or has asked whether it is done.
  bool asked_for() const { return asked_for_.load(std::memory_order_relaxed); }

  /// The inner backend has taken the call.
  void posted(WorkPtr inner);
  /// The results are there, or will be once the current streams have done their work.
  void complete();
  /// The first error counts; nothing after complete().
  void fail(std::exception_ptr error);

 protected:
  WorkPtr inner_;  // guarded by mutex_

 private:
  WorkPtr inner() const;
  /// The future has its results, or the work its error.
  void settle(std::exception_ptr error);

  Tensors results_;
  uint64_t number_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> ended_{false}, asked_for_{false}, settled_{false};
  std::exception_ptr error_;  // once it is settled
};

/// A send or a receive. Those of gloo end in wait() and nowhere else, so this one's does, too: a
/// thread that waited for them in order could wait for ever.
class PointToPoint final : public Work {
 public:
  using Work::Work;
  bool wait(std::chrono::milliseconds timeout) override;
  /// Sets the function for what was received: the waiting thread calls it.
  void on_arrival(std::function<void()> arrived) { arrived_ = std::move(arrived); }
  /// How to wait for the inner work, if its own wait() is not enough.
  void on_wait(std::function<void(c10d::Work&)> finish) { finish_ = std::move(finish); }

 private:
  std::function<void()> arrived_;
  std::function<void(c10d::Work&)> finish_;
  std::mutex waiting_;  // of the threads that wait for it
};

/// Several calls as one, for coalescing.
class AllOf final : public c10d::Work {
 public:
  AllOf(int rank, std::vector<WorkPtr> works)
      : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  Tensors result() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<WorkPtr> works_;
};

}  // namespace ocl::distributed
