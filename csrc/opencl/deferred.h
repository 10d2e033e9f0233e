// Commands of a queue that wait for programs: the host goes on while build workers build them,
// meets the next missing programs, and all of them are built at once.
//
// The first launch whose program is on its way begins a list, and what the queue gets afterwards
// comes behind it. Whatever has to see the work enqueued settles the list first: it waits for each
// program in turn, or builds it, and enqueues all. So events, waits, copies from and to the host,
// captures and profiles keep their meaning. A queue without a list pays one flag.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "opencl/kernel.h"

namespace ocl {

class Program;
class Queue;

struct DeferredKernel {
  Program* program;
  std::string name, file, label;
  NDRange range;
  std::vector<KernelArgument> arguments;
  std::string origin;  // the line that asked for it, for errors of its build
};
struct DeferredCopy {
  Location to, from;
  size_t bytes;
};
struct DeferredFill {
  Location to;
  std::vector<char> pattern;
  size_t bytes;
};
struct DeferredWrite {
  Location to;
  std::vector<char> bytes;
};

/// While one of these lives, launches of the calling thread wait for their programs: for callers
/// that go another way where a program does not build, or keep results for later.
class Undeferred {
 public:
  Undeferred() { ++depth; }
  ~Undeferred() { --depth; }
  Undeferred(const Undeferred&) = delete;
  Undeferred& operator=(const Undeferred&) = delete;
  static bool any() { return depth > 0; }

 private:
  static inline thread_local int depth = 0;
};

/// The list of one queue. Thread-safe.
class DeferredCommands {
 public:
  using Command = std::variant<DeferredKernel, DeferredCopy, DeferredFill, DeferredWrite>;

  explicit DeferredCommands(Queue& queue) : queue_(queue) {}
  /// False if the list is empty and the command needs no wait: it is the caller's to enqueue.
  bool add(Command command);
  /// Enqueues those at the front whose programs are there. Waits for none.
  void advance();
  /// Waits for all programs and enqueues all. Failures go to Queue::fail().
  void settle();

  /// Whether the calling thread enqueues what waited, on any queue.
  static bool enqueues();
  /// Bytes of the host's that the list holds.
  size_t held() const { return held_.load(std::memory_order_relaxed); }
  /// Says which line of the user's program the calling thread is at; empty where that is unknown.
  static void set_origin(std::function<std::string()> origin);

 private:
  void enqueue_ready();
  void enqueue(const Command& command);
  void enqueue_kernel_of(const DeferredKernel& launch);

  Queue& queue_;
  std::mutex mutex_;  // of what follows; held while commands are enqueued
  std::deque<Command> commands_;
  std::atomic<size_t> held_{0};
};

}  // namespace ocl
