// An in-order command queue and the events on it.
//
// Offers: Queue, Event.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "opencl/device.h"

namespace ocl {

struct DeviceAssertion;

/// One in-order queue. Thread-safe as OpenCL's own queue calls are.
class Queue {
 public:
  /// priority < 0: high, 0: normal, where the driver has cl_khr_priority_hints.
  explicit Queue(Device& device, int priority = 0);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Device& device() const { return device_; }
  /// For calls that have no method here; counts as work enqueued (see idle()).
  cl_command_queue handle() const {
    mark_busy();
    return handle_;
  }

  void flush();
  /// Waits for all work. Throws Error if the device failed.
  void finish();
  /// True if all work enqueued so far is done; does not wait.
  bool idle();

  /// Kernel::enqueue says that work was enqueued, and that it may report to the device's
  /// AssertBuffer.
  void mark_busy() const { busy_.store(true, std::memory_order_release); }
  void mark_checks() { checks_.store(true, std::memory_order_release); }
  /// Where this queue's kernels report failed checks.
  AssertBuffer& asserts();
  /// Called after a wait: the first failed check of this queue, or of what it waited for. Costs two
  /// atomic loads where no kernel with checks was enqueued since the last call. Not `finished`: it
  /// waits for all work itself, once where reading the record does that.
  std::optional<DeviceAssertion> take_assertion(bool finished = true);
  /// What waits for this queue from now on waits for what `other` has enqueued, too.
  void watch(Queue& other);

  /// Host -> device; `address` in the device's address space. Blocking copies return when the data
  /// are there, for other queues too.
  void write(void* address, const void* source, size_t bytes, bool blocking);
  void write(cl_mem mem, size_t offset, const void* source, size_t bytes, bool blocking);
  /// Device -> host.
  void read(void* destination, const void* address, size_t bytes, bool blocking);
  void read(void* destination, cl_mem mem, size_t offset, size_t bytes, bool blocking);
  /// Device -> device of one address space; the ranges must not overlap.
  void copy(void* destination, const void* source, size_t bytes);
  /// Repeats a pattern of 1, 2, 4, 8 or 16 bytes.
  void fill(void* address, const void* pattern, size_t pattern_bytes, size_t bytes);

 private:
  /// Waits for a command's event and releases it.
  void wait(cl_event event);
  /// Waits for all work in the way that lets this thread compute (Quirks::helps_in_event_waits);
  /// false where that makes no difference, without a wait.
  bool help();

  Device& device_;
  cl_command_queue handle_ = nullptr;
  mutable std::atomic<bool> busy_{false};  // work since idle_marker_
  std::atomic<bool> flushed_{false};       // since the last help()
  std::atomic<bool> checks_{false};
  std::atomic<AssertBuffer*> asserts_{nullptr};
  std::unique_ptr<AssertBuffer> own_asserts_;
  std::mutex asserts_mutex_;  // of the two above and the two below
  std::atomic<bool> watches_{false};
  std::vector<Queue*> watched_;
  std::mutex idle_mutex_;
  cl_event idle_marker_ = nullptr;  // the end of the work that idle() last asked about
};

/// A point in a queue's work. Default-constructed it is complete.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Marks all work enqueued on `queue` so far; replaces what was recorded before. With `timing`
  /// the completion time is kept for elapsed_ms.
  void record(Queue& queue, bool timing = false);
  /// Makes later work on `queue` wait for this event, without blocking the host. Works across
  /// queues of one context; across contexts (devices) it waits on the host.
  void block(Queue& queue) const;
  bool query() const;
  void synchronize() const;
  bool recorded() const { return handle_ != nullptr; }
  /// Where it was recorded last; null before that.
  Queue* queue() const { return queue_; }
  /// Milliseconds between the completion of two timed, completed events. Throws std::runtime_error
  /// if either was not recorded with timing or is not complete.
  static double elapsed_ms(const Event& start, const Event& end);

 private:
  struct Completion;  // completion time, shared with the driver's callback
  Device* device_ = nullptr;
  Queue* queue_ = nullptr;
  cl_event handle_ = nullptr;
  std::shared_ptr<Completion> completion_;
};

}  // namespace ocl
