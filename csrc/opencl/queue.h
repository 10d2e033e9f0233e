// An in-order command queue.
//
// Commands are counted, and so are those known to be done, because a wait that somebody made, or an
// event, showed it. Where none is under way, brief ones needn't go through the driver's threads:
// the calling thread executes them itself, if the driver offers that
// (cl_intel_exec_by_local_thread). It halves a small kernel's cost and leaves the other cores
// alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "opencl/device.h"
#include "opencl/profile.h"

namespace ocl {

struct DeferredKernel;
struct DeviceAssertion;
class DeferredCommands;
class Graph;

/// One in-order queue. Thread-safe as OpenCL's own queue calls are.
class Queue {
 public:
  /// priority < 0: high, 0: normal, where the driver has cl_khr_priority_hints. `stream` is what
  /// profiles call it.
  explicit Queue(Device& device, int priority = 0, int64_t stream = 0);
  /// A queue that others made and enqueue on, too: in order, and of the device's context.
  Queue(Device& device, cl_command_queue theirs, int64_t stream);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Device& device() const { return device_; }
  int64_t stream() const { return stream_; }
  /// For waits, for markers and for calls that wait themselves. Who enqueues work with it calls
  /// count() afterwards.
  cl_command_queue handle() {
    settle();
    return handles()->main;
  }
  /// Whether that is a handle of this queue's own that doesn't time commands.
  bool is_plain() const { return handles() == &plain_; }
  /// For other commands: the queue's handle, which stays the same until this is gone. Never two at
  /// a time in a thread, and no wait for other work meanwhile.
  class Submission {
   public:
    explicit Submission(Queue& queue) : queue_(queue) {
      queue.settle();
      queue.submitting_.fetch_add(1);
      if (__builtin_expect(queue.switching_.load(), 0)) queue.wait_for_switch();
    }
    ~Submission() { queue_.submitting_.fetch_sub(1, std::memory_order_release); }
    Submission(const Submission&) = delete;
    Submission& operator=(const Submission&) = delete;
    cl_command_queue handle() const { return queue_.handles()->main; }

   private:
    Queue& queue_;
  };
  /// Whether the driver notes when commands run, which costs something at every launch. To change
  /// that waits for the work under way.
  void set_timed(bool timed);
  /// For code that won't count: from now on there may always be work under way. The handle then
  /// stays the same, and times commands.
  cl_command_queue share();
  /// A command was enqueued.
  void count() { enqueued_.fetch_add(1, std::memory_order_release); }
  /// How many commands were.
  uint64_t enqueued() const { return enqueued_.load(std::memory_order_acquire); }
  /// The first `number` commands are done.
  void completed(uint64_t number);

  /// Whether commands wait here until their programs are built (opencl/deferred.h). All that
  /// follows then waits behind them.
  bool defers() const { return defers_.load(std::memory_order_acquire); }
  /// Whether commands may: nobody else enqueues on this queue.
  bool may_defer() const { return !shared_.load(std::memory_order_relaxed); }
  /// Waits for the programs, and enqueues what waits here. Whatever has to come behind it does
  /// this: waits, events, copies to and from the host. A program that does not build is reported as
  /// fail() does.
  void settle() {
    if (__builtin_expect(defers(), 0)) settle_deferred();
  }
  /// The launch waits here, if it has to. Otherwise false, and it is for the caller to enqueue.
  bool defer(DeferredKernel&& launch);
  /// A copy from the host of bytes that may change afterwards waits here. False if nothing does.
  bool defer_write(void* address, const void* source, size_t bytes);

  void flush();
  /// Waits for all work. Throws Error if the device failed.
  void finish();
  /// True if all work enqueued so far is done. It waits for programs, but not for the work.
  bool idle();

  /// Kernel::enqueue says that work was enqueued that may report to the device's AssertBuffer.
  void mark_checks() { checks_.store(true, std::memory_order_release); }
  /// Where this queue's kernels report failed checks.
  AssertBuffer& asserts();
  /// Whether the driver offers a queue whose commands the calling thread executes.
  bool has_immediate() const { return handles()->immediate != nullptr; }
  /// That queue, if all commands so far are done; otherwise, or if there is none, null.
  cl_command_queue immediate();
  /// Counts a brief command that was enqueued, and takes over its event: once it is complete, and
  /// nothing was enqueued since, immediate() knows. `before` is enqueued() before it was.
  void count(cl_event event, uint64_t before);
  /// Called after a wait: the first failed check of this queue, or of what it waited for. Costs two
  /// atomic loads where no kernel with checks was enqueued since the last call. Not `finished`: it
  /// waits for all work itself, once where reading the record does that.
  std::optional<DeviceAssertion> take_assertion(bool finished = true);
  /// Somebody who works for this queue failed: the next take_assertion() throws that. The first one
  /// counts.
  void fail(std::exception_ptr error);
  /// Throws what fail() was given, once: for work on another device that needs this queue's
  /// results.
  void throw_failure();
  /// Waits for this queue, from now on, are for what `other` has enqueued, too.
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
  void copy(const Location& to, const Location& from, size_t bytes);
  void fill(const Location& to, const void* pattern, size_t pattern_bytes, size_t bytes);

  /// The graph that commands are recorded in instead of being executed; null: none.
  Graph* capture() const { return capture_.load(std::memory_order_relaxed); }
  void set_capture(Graph* graph) {
    settle();
    captures_.fetch_add((graph != nullptr ? 1 : 0) - (capture() != nullptr ? 1 : 0));
    capture_.store(graph);
  }
  /// Whether any queue has such a graph.
  static bool captures() { return captures_.load(std::memory_order_relaxed) != 0; }
  /// Whether launches are recorded anywhere: in a graph, or until their programs are built.
  static bool records() { return captures() || deferring_.load(std::memory_order_relaxed) != 0; }

 private:
  struct Handles {
    cl_command_queue main = nullptr;
    cl_command_queue immediate = nullptr;  // null where the driver has no such queue
  };
  Handles create(cl_command_queue_properties properties, cl_int* code) const;
  const Handles* handles() const { return handles_.load(std::memory_order_acquire); }
  void wait_for_switch();
  void settle_deferred();
  /// settle(), and throws what fail() was given: a call that fails after it, for the same reason,
  /// would be raised in its place, and it behind the next wait.
  void settle_for_wait();
  void set_defers(bool defers);
  friend class DeferredCommands;

  /// Waits for a command's event and releases it.
  void wait(cl_event event);
  /// Waits for all work in the way that lets this thread compute (Quirks::helps_in_event_waits);
  /// false where that makes no difference, without a wait.
  bool help();

  std::optional<DeviceAssertion> take_own_assertion();
  /// Adds to watched_.
  void keep_watching(const std::vector<Queue*>& queues);

  /// Enqueues a copy or a fill, small ones for the calling thread where possible: calls
  /// enqueue(queue, whether to wait, where to put the event). Does nothing and returns false where
  /// it would have to wait on the stream's own queue.
  template <class Enqueue>
  bool submit(profile::Kind kind, size_t bytes, bool blocking, const Enqueue& enqueue);

  Device& device_;
  int priority_;
  int64_t stream_;
  Handles plain_, timed_;  // timed_ is made when it is first needed
  std::atomic<const Handles*> handles_{&plain_};
  std::mutex switch_mutex_;
  std::atomic<bool> switching_{false};
  std::atomic<uint32_t> submitting_{0};
  std::atomic<Graph*> capture_{nullptr};
  static inline constinit std::atomic<int> captures_{0}, deferring_{0};
  std::atomic<bool> defers_{false};
  std::unique_ptr<DeferredCommands> deferred_;
  std::atomic<uint64_t> enqueued_{0}, completed_{0};
  std::atomic<bool> shared_{false};
  std::mutex last_mutex_;  // of the two below
  cl_event last_ = nullptr;
  uint64_t last_number_ = 0;
  std::atomic<bool> flushed_{false};  // since the last help()
  std::atomic<bool> checks_{false};
  std::atomic<AssertBuffer*> asserts_{nullptr};
  std::unique_ptr<AssertBuffer> own_asserts_;
  std::exception_ptr failure_;
  std::mutex asserts_mutex_;  // of the three above and the two below
  std::atomic<bool> watches_{false};
  std::vector<Queue*> watched_;
  std::mutex idle_mutex_;
  cl_event idle_marker_ = nullptr;  // the end of the work that idle() last asked about
  uint64_t idle_number_ = 0;        // and its number
};

}  // namespace ocl
