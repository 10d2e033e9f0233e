#include "distributed/call_queue.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <pthread.h>

#include "distributed/follow.h"

namespace ocl::distributed {

CallQueue::~CallQueue() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool CallQueue::claim() {
  std::lock_guard lock(mutex_);
  if (busy_ || !calls_.empty()) return false;
  return busy_ = true;
}

void CallQueue::release() {
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
  }
  changed_.notify_all();
}

bool CallQueue::try_now(const std::function<void()>& make) {
  if (!claim()) return false;
  const auto guard = c10::make_scope_exit([this] { release(); });
  make();
  return true;
}

void CallQueue::push(Call call, By by, std::unique_lock<std::mutex> order) {
  const bool here = by == By::caller ||
                    (by == By::whoever_is_free && (call.ready == nullptr || call.ready->query()));
  if (here && claim()) {
    const auto guard = c10::make_scope_exit([this] { release(); });
    if (order) order.unlock();
    if (call.ready) call.ready->synchronize();
    call.make();
    return;
  }
  std::lock_guard lock(mutex_);
  calls_.push_back({std::move(call), {}});
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  changed_.notify_all();
}

void CallQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return calls_.empty() && !busy_; });
}

void CallQueue::loop() {
  pthread_setname_np(pthread_self(), "pt_ocl_gloo");
  this_thread_makes_calls();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !busy_ && (stop_ || !calls_.empty()); });
    if (calls_.empty()) return;
    busy_ = true;
    Waiting next = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    try {
      const at::ThreadLocalStateGuard as_caller(next.state);
      if (next.call.ready) next.call.ready->synchronize();
      next.call.make();
    } catch (...) {
      next.call.failed(std::current_exception());
    }
    next.call = {};  // its tensors, without the lock
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace ocl::distributed
