#include "distributed/work.h"

#include <algorithm>

namespace ocl::distributed {

Work::Work(int rank, c10d::OpType type, Tensors results, std::vector<c10::Device> devices,
           uint64_t number)
    : c10d::Work(rank, type),
      results_(std::move(results)),
      number_(number),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()), std::move(devices))) {}

WorkPtr Work::inner() const {
  std::lock_guard lock(mutex_);
  return inner_;
}

int Work::sourceRank() const {
  const WorkPtr work = inner();
  return work ? work->sourceRank() : c10d::Work::sourceRank();
}

bool Work::isCompleted() {
  asked_for_.store(true, std::memory_order_relaxed);
  return c10d::Work::isCompleted();
}

bool Work::wait(std::chrono::milliseconds timeout) {
  asked_for_.store(true, std::memory_order_relaxed);
  return c10d::Work::wait(timeout);
}

void Work::synchronize() {
  asked_for_.store(true, std::memory_order_relaxed);
  settled_.wait(false);
  if (error_) std::rethrow_exception(error_);
  future_->wait();
}

void Work::abort() {
  if (const WorkPtr work = inner()) work->abort();
}

void Work::posted(WorkPtr inner) {
  std::lock_guard lock(mutex_);
  inner_ = std::move(inner);
  cv_.notify_all();
}

// finish() comes first: who is called back by the future finds the work completed. The future then
// records events, which may fail. Upstream's is marked as completed by then, takes no error any
// more, and wakes nobody: so wait() looks at what is settled here.
void Work::complete() {
  if (ended_.exchange(true)) return;
  finish();
  try {
    future_->markCompleted(c10::IValue(results_));
    settle(nullptr);
  } catch (...) {
    settle(std::current_exception());
    finish(std::current_exception());
  }
}

void Work::settle(std::exception_ptr error) {
  error_ = std::move(error);
  settled_.store(true);
  settled_.notify_all();
}

void Work::fail(std::exception_ptr error) {
  if (ended_.exchange(true)) return;
  finish(error);
  future_->setErrorIfNeeded(error);
  settle(error);
}

bool PointToPoint::wait(std::chrono::milliseconds timeout) {
  std::lock_guard one_at_a_time(waiting_);
  WorkPtr work;
  {
    std::unique_lock lock(mutex_);
    cv_.wait(lock, [&] { return inner_ != nullptr || completed_; });
    if (exception_) std::rethrow_exception(exception_);
    if (completed_) return true;
    work = inner_;
  }
  try {
    if (finish_) {
      finish_(*work);
    } else {
      work->wait(timeout);
    }
    if (arrived_) arrived_();
    complete();
  } catch (...) {
    fail(std::current_exception());
    throw;
  }
  arrived_ = {};
  finish_ = {};
  return true;
}

bool AllOf::isCompleted() {
  return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
}

bool AllOf::isSuccess() const {
  return std::ranges::all_of(works_, [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr AllOf::exception() const {
  for (const WorkPtr& work : works_) {
    if (std::exception_ptr error = work->exception()) return error;
  }
  return nullptr;
}

Tensors AllOf::result() {
  Tensors all;
  for (const WorkPtr& work : works_) {
    for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
  }
  return all;
}

bool AllOf::wait(std::chrono::milliseconds timeout) {
  for (const WorkPtr& work : works_) work->wait(timeout);
  return true;
}

void AllOf::synchronize() {
  for (const WorkPtr& work : works_) work->synchronize();
}

c10::intrusive_ptr<c10::ivalue::Future> AllOf::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> all(
      c10::FutureType::create(c10::ListType::ofTensors()));
  for (const WorkPtr& work : works_) all.push_back(work->getFuture());
  return c10::collectAll(all);
}

}  // namespace ocl::distributed
