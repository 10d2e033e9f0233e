// Commands recorded from a queue instead of being executed, to be enqueued again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "opencl/kernel.h"
#include "opencl/queue.h"

namespace ocl {

class Event;

/// Kernels with their arguments and sizes, copies within the device, and fills, in the order in
/// which they were enqueued. What they work on must stay where it is.
///
/// Other queues take part as CUDA's streams do: one that waits for an event of a recorded queue is
/// recorded from then on (fork), and the first queue has to wait for it (join). A replay runs all
/// commands on one queue, in the order of their recording, which is one that the events allow.
class Graph {
 public:
  /// A recording that is under way. It is gone once that ends, unless it was given up.
  struct Capture {
    std::shared_ptr<const Event> ran;  // what had been recorded by then
  };
  /// A point in what a queue has recorded: how many commands of each queue come before it.
  struct Point {
    Graph* graph;
    std::weak_ptr<Capture> capture;
    std::map<const Queue*, size_t> before;
  };

  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// From now on commands of `queue` are recorded, until end(). Throws std::runtime_error if they
  /// are recorded already.
  void begin(Queue& queue);
  /// False if commands of another queue were recorded that `queue` did not wait for.
  bool end();
  /// Whether `queue` has waited for all other queues.
  bool joined();
  /// Ends the recording where it is, and has `enqueue` enqueue all of it on the first queue. Other
  /// queues that took part wait for it, as do those that wait for an event of the recording.
  void give_up(const std::function<void()>& enqueue);
  /// Called with what can't be recorded. It may give up: then that is done as ever.
  std::function<void(const char* what)> refused;
  std::shared_ptr<const Point> point(const Queue& queue);
  /// Later commands of `queue` come after the point; it is recorded from now on. Throws
  /// std::runtime_error for a queue of another capture, or another device.
  void follow(Queue& queue, const Point& point);
  /// The last command is `queue`'s.
  void added_by(const Queue& queue) { seen_[&queue][&queue] = nodes_.size(); }

  /// A number that stands for one that each replay is given: kernels that get it as an argument, or
  /// in one, will get that one. 8 bytes, a multiple of 4.
  uint64_t add_placeholder();
  /// Whether each of them was found in an argument: it may have been computed with instead.
  bool placeholders_used() const;

  /// Enqueues all commands, with a value for each placeholder in the order of their making.
  void replay(Queue& queue, std::span<const uint64_t> values);
  size_t size() const { return nodes_.size(); }
  /// A line for each command, and one for the kernels in command buffers once there are some.
  std::string describe() const;

  /// `asserts`: the index of the argument that is an AssertBuffer's memory, or -1.
  void add_kernel(Device& device, cl_program program, const std::string& name,
                  const std::string& label, const NDRange& range,
                  const std::vector<KernelArgument>& arguments, int asserts);
  void add_copy(Device& device, const Location& to, const Location& from, size_t bytes);
  void add_fill(Device& device, const Location& to, const void* pattern, size_t pattern_bytes,
                size_t bytes);
  /// Keeps memory that is an argument and that its owner is about to release.
  void keep(cl_mem mem);

 private:
  struct Node;
  struct Patch;
  struct Run;

  void set_values(std::span<const uint64_t> values);
  void set_asserts(Queue& queue);
  void make_runs(Queue& queue);
  static bool enqueue_run(Queue& queue, Run& run);
  void enqueue(Queue& queue, Node& node);

  mutable std::mutex mutex_;   // of what follows, but while it is recorded
  Queue* recorded_ = nullptr;  // the first one
  std::shared_ptr<Capture> capture_;
  std::vector<Queue*> forked_;
  // By queue: its last command, and those of others that come before what it does next.
  std::map<const Queue*, std::map<const Queue*, size_t>> seen_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Patch> patches_;
  std::vector<uint64_t> placeholders_;
  std::vector<bool> used_;
  std::vector<uint64_t> values_;  // that the kernels have
  std::vector<cl_mem> kept_;
  cl_mem asserts_ = nullptr;  // that kernels with checks have
  // Kernels in command buffers, the handle of the queue that they were made for or found not worth
  // making, and that of the last replay.
  std::vector<Run> runs_;
  cl_command_queue runs_queue_ = nullptr, last_queue_ = nullptr;
};

/// Whether commands of `queue` are recorded, after the recording was given up for `what` if it may.
bool stays_captured(const Queue& queue, const char* what);
/// Throws std::runtime_error if they are: `what` can't be recorded.
void check_not_captured(const Queue& queue, const char* what);

}  // namespace ocl
