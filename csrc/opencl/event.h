// Points in the work of queues: to wait for, to ask about, to measure between.
#pragma once

#include <cstdint>
#include <memory>

#include "opencl/api.h"
#include "opencl/graph.h"

namespace ocl {

class Device;
class Queue;

/// A point in a queue's work. Default-constructed it is complete. While a graph is captured on the
/// queue, it is a point of the capture, for which other queues can wait, and not the host.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Marks all work enqueued on `queue` so far; replaces what was recorded before. With `timing`
  /// the completion time is kept for elapsed_ms.
  void record(Queue& queue, bool timing = false);
  /// record() for clean-up that can't raise: false if the driver failed. Who waits for results gets
  /// the failure.
  bool try_record(Queue& queue) noexcept;
  /// Makes later work on `queue` wait for this event, without blocking the host. Works across
  /// queues of several contexts (devices).
  void block(Queue& queue) const;
  bool query() const;
  /// Whether the driver says that the work has ended, well or not. False where it doesn't answer.
  bool over() const noexcept;
  void synchronize() const;
  bool recorded() const { return handle_ != nullptr || point_ != nullptr; }
  /// Where it was recorded last; null before that.
  Queue* queue() const { return queue_; }
  /// Milliseconds between the completion of two timed, completed events. Throws std::runtime_error
  /// if either was not recorded with timing or is not complete.
  static double elapsed_ms(const Event& start, const Event& end);

 private:
  void check_no_point() const;
  void block_elsewhere(Queue& queue) const;
  struct Completion;  // completion time, shared with the driver's callback
  Device* device_ = nullptr;
  Queue* queue_ = nullptr;
  cl_event handle_ = nullptr;
  uint64_t number_ = 0;                        // of the queue's last command before it
  std::shared_ptr<const Graph::Point> point_;  // of a capture, instead of a handle
  std::shared_ptr<Completion> completion_;
};

}  // namespace ocl
