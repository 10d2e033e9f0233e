// Commands that queues executed while a profile is on, and when, by the device's clock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "opencl/api.h"

namespace ocl {

class Queue;
struct NDRange;

namespace profile {

enum class Kind : uint8_t { kernel, host_to_device, device_to_host, device_to_device, fill };

/// Words of the floors above on the calling thread: its commands belong to them.
struct Tags {
  uint64_t op = 0;           // of torch_ocl's own observer
  uint64_t correlation = 0;  // of torch's profiler
  uint64_t range = 0;        // likewise, of a range of the user's
  uint64_t commands = 0;     // that this thread has recorded
};
inline constinit thread_local Tags tags{};

/// A command that was executed. Times are in nanoseconds since 1970.
struct Command {
  Kind kind = Kind::kernel;
  uint64_t number = 0;  // counts the process's recorded commands, from 1
  Tags tags;
  int device = 0;
  int64_t stream = 0;
  int32_t thread = 0;  // of the system, as gettid() says
  std::string name;    // of kernels
  cl_uint dims = 0;    // of kernels, as are the sizes; a local size of 0: the driver's choice
  std::array<size_t, 3> global{}, local{};
  size_t bytes = 0;                          // of copies and fills
  int64_t submit_begin = 0, submit_end = 0;  // of the call that enqueued it
  int64_t start = 0, end = 0;                // on the device
};

namespace detail {
inline constinit std::atomic<bool> on{false};
}  // namespace detail

/// Whether commands are recorded: a load, on the path of every launch.
inline bool on() { return __builtin_expect(detail::on.load(std::memory_order_relaxed), 0); }

/// A command on its way into a queue. Does nothing but test on() where no profile is on.
class Recording {
 public:
  Recording() : active_(on()) {
    if (active_) begin();
  }
  /// Where the driver is to put the command's event: `other`, which may be null, if none is needed
  /// here.
  cl_event* event(cl_event* other = nullptr) { return active_ ? &event_ : other; }
  /// The copy or fill was enqueued. Whoever passed `other` to event() and needs the event gets it.
  void enqueued(Queue& queue, Kind kind, size_t bytes, cl_event* other = nullptr) {
    if (active_) finish(queue, kind, nullptr, nullptr, bytes, other);
  }
  /// Notes a kernel.
  void enqueued(Queue& queue, const std::string& label, const NDRange& range,
                cl_event* other = nullptr) {
    if (active_) finish(queue, Kind::kernel, &label, &range, 0, other);
  }

 private:
  void begin();
  void finish(Queue& queue, Kind kind, const std::string* label, const NDRange* range, size_t bytes,
              cl_event* other);

  bool active_;
  cl_event event_ = nullptr;
  int64_t begin_ = 0;
};

/// While one lives, queues are such that their commands can be timed. To make the first, and to end
/// the last, waits for the work that is under way.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Records the commands that are enqueued from now on.
  void start();
  /// Waits for them and returns them, in the order in which they were enqueued. Commands that
  /// failed, or whose queue can't time them, are left out. Empty where nothing was started.
  std::vector<Command> stop();

 private:
  bool started_ = false;
  uint64_t first_ = 0;
};

/// Queues tell of themselves, to be switched to timing and back.
void add_queue(Queue& queue);
void remove_queue(Queue& queue);

/// Nanoseconds since 1970, as torch's profiler counts them.
int64_t now();

}  // namespace profile
}  // namespace ocl
