// The inner backend's calls, in the order in which the program made them: gloo numbers its calls,
// and the numbers must be the same on all ranks.
#pragma once

#include <ATen/ThreadLocalState.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "distributed/staging.h"

namespace ocl::distributed {

class CallQueue {
 public:
  struct Call {
    EventPtr ready;  // waited for before; null: nothing to wait for
    std::function<void()> make;
    std::function<void(std::exception_ptr)> failed;
  };
  /// Who may make a call: the calling thread if it needn't wait, the calling thread in any case
  /// (the program waits for the result anyway), or the queue's thread only. Earlier calls come
  /// first all the same.
  enum class By { whoever_is_free, caller, thread };

  CallQueue() = default;
  /// Makes all calls that are left.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// Never waits for other ranks. An error of a call that is made at once is thrown; of others
  /// failed() is called, on the queue's thread. `order` is given back once the call has its place.
  void push(Call call, By by, std::unique_lock<std::mutex> order = {});
  /// Makes a call at once if all earlier ones were made; returns whether it was.
  bool try_now(const std::function<void()>& make);
  /// Waits until all calls were made.
  void drain();

 private:
  struct Waiting {
    Call call;
    at::ThreadLocalState state;  // the caller's: profilers look for the inner backend's calls
  };
  bool claim();
  void release();
  void loop();

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Waiting> calls_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;  // started by the first call that needs it
};

}  // namespace ocl::distributed
