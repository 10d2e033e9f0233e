#include "opencl/profile.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <mutex>

#include "opencl/device.h"
#include "opencl/kernel.h"
#include "opencl/platform.h"
#include "opencl/queue.h"

namespace ocl::profile {
namespace {

constexpr int64_t kMissing = std::numeric_limits<int64_t>::min();

// Drivers hold something for every event: finished ones are read and let go in between.
constexpr size_t kMostEvents = 8192;

struct Entry {
  Command command;
  cl_event event = nullptr;   // null once it was read
  int64_t queued = kMissing;  // by the device's clock, as are the command's times until stop()
};

// Never destroyed: commands may be enqueued while the process exits.
struct Recorder {
  std::mutex mutex;  // of what follows
  std::deque<Entry> entries;
  uint64_t number = 0;  // of the last command
  size_t read = 0;      // entries before that one have no event any more
  size_t next_look = kMostEvents;
  int recording = 0;  // sessions that were started and not stopped

  std::mutex queues_mutex;  // of the two below; taken first
  std::vector<Queue*> queues;
  int sessions = 0;
};

Recorder& recorder() {
  static auto* instance = new Recorder;
  return *instance;
}

int64_t profiling_info(cl_event event, cl_profiling_info question) {
  cl_ulong ns = 0;
  const cl_int code = api().clGetEventProfilingInfo(event, question, sizeof ns, &ns, nullptr);
  return code == CL_SUCCESS ? static_cast<int64_t>(ns) : kMissing;
}

/// Takes the times of a command that is complete, and lets its event go.
void read(Entry& entry) {
  entry.queued = profiling_info(entry.event, CL_PROFILING_COMMAND_QUEUED);
  entry.command.start = profiling_info(entry.event, CL_PROFILING_COMMAND_START);
  entry.command.end = profiling_info(entry.event, CL_PROFILING_COMMAND_END);
  api().clReleaseEvent(entry.event);
  entry.event = nullptr;
}

bool is_over(cl_event event) {
  cl_int status = CL_QUEUED;
  const cl_int code = api().clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                           &status, nullptr);
  return code != CL_SUCCESS || status <= CL_COMPLETE;
}

/// Reads what is over already, from the oldest on.
void read_finished(Recorder& all) {
  while (all.read < all.entries.size() && is_over(all.entries[all.read].event)) {
    read(all.entries[all.read++]);
  }
  all.next_look = all.entries.size() + std::max(kMostEvents, all.entries.size() - all.read);
}

bool is_timed(const Entry& entry) {
  return entry.queued != kMissing && entry.command.start != kMissing &&
         entry.command.end != kMissing;
}

// The host's clock minus a device's, as it drifts. OpenCL 1.2 has no question for it. But the
// driver notes by the device's clock when a command is enqueued, and this side by the host's before
// and after that. So every command bounds the difference from both sides. The bounds of a stretch
// of time narrow it down to the shortest call's duration.
class Clock {
 public:
  void add(const Entry& entry) {
    if (points_.empty() || entry.command.submit_begin - points_.back().at > kStretch) {
      points_.push_back({entry.command.submit_begin, std::numeric_limits<int64_t>::min(),
                         std::numeric_limits<int64_t>::max()});
    }
    Point& point = points_.back();
    point.least = std::max(point.least, entry.command.submit_begin - entry.queued);
    point.most = std::min(point.most, entry.command.submit_end - entry.queued);
  }

  int64_t to_host(int64_t device_time) const {
    const int64_t guess = device_time + points_.front().difference();
    const auto after =
        std::ranges::find_if(points_, [&](const Point& point) { return point.middle() >= guess; });
    if (after == points_.begin()) return guess;
    const Point& from = *(after - 1);
    if (after == points_.end()) return device_time + from.difference();
    const double share = static_cast<double>(guess - from.middle()) /
                         static_cast<double>(after->middle() - from.middle());
    const auto change = static_cast<double>(after->difference() - from.difference());
    return device_time + from.difference() + static_cast<int64_t>(share * change);
  }

 private:
  static constexpr int64_t kStretch = 1'000'000'000;
  struct Point {
    int64_t at, least, most;
    int64_t middle() const { return at + kStretch / 2; }
    int64_t difference() const { return least + (most - least) / 2; }
  };
  std::vector<Point> points_;
};

}  // namespace

int64_t now() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void Recording::begin() { begin_ = now(); }

void Recording::finish(Queue& queue, Kind kind, const std::string* label, const NDRange* range,
                       size_t bytes, cl_event* other) {
  if (other != nullptr) {
    api().clRetainEvent(event_);
    *other = event_;
  }
  static thread_local const auto thread = static_cast<int32_t>(syscall(SYS_gettid));
  Entry entry;
  entry.event = event_;
  Command& command = entry.command;
  command.kind = kind;
  ++tags.commands;
  command.tags = tags;
  command.device = queue.device().index();
  command.stream = queue.stream();
  command.thread = thread;
  if (label != nullptr) command.name = *label;
  if (range != nullptr) {
    command.dims = range->dims;
    command.global = range->global;
    command.local = range->local;
  }
  command.bytes = bytes;
  command.submit_begin = begin_;
  command.submit_end = now();
  Recorder& all = recorder();
  std::lock_guard lock(all.mutex);
  if (all.recording == 0) {  // stopped meanwhile
    api().clReleaseEvent(event_);
    return;
  }
  command.number = ++all.number;
  all.entries.push_back(std::move(entry));
  if (all.entries.size() >= all.next_look) read_finished(all);
}

Session::Session() {
  Recorder& all = recorder();
  std::lock_guard lock(all.queues_mutex);
  if (all.sessions++ > 0) return;
  for (Queue* queue : all.queues) queue->set_timed(true);
}

Session::~Session() {
  stop();
  Recorder& all = recorder();
  std::lock_guard lock(all.queues_mutex);
  if (--all.sessions > 0 || process_was_forked()) return;
  for (Queue* queue : all.queues) queue->set_timed(false);
}

void Session::start() {
  Recorder& all = recorder();
  {
    const std::lock_guard lock(all.queues_mutex);
    for (Queue* queue : all.queues) queue->settle();
  }
  std::lock_guard lock(all.mutex);
  if (started_) return;
  started_ = true;
  first_ = all.number + 1;
  ++all.recording;
  detail::on.store(true);
}

std::vector<Command> Session::stop() {
  if (!started_) return {};
  started_ = false;
  Recorder& all = recorder();
  std::lock_guard lock(all.mutex);
  if (--all.recording == 0) detail::on.store(false);
  for (; all.read < all.entries.size() && !process_was_forked(); ++all.read) {
    Entry& entry = all.entries[all.read];
    // Whether it failed, the reading of its times will say.
    api().clWaitForEvents(1, &entry.event);
    read(entry);
  }
  std::vector<Command> commands;
  std::map<int, Clock> clocks;
  const auto begin = std::ranges::find_if(
      all.entries, [&](const Entry& entry) { return entry.command.number >= first_; });
  std::for_each(begin, all.entries.end(), [&](const Entry& entry) {
    if (is_timed(entry)) clocks[entry.command.device].add(entry);
  });
  std::for_each(begin, all.entries.end(), [&](const Entry& entry) {
    if (!is_timed(entry)) return;
    Command command = entry.command;
    const Clock& clock = clocks[command.device];
    command.start = clock.to_host(command.start);
    command.end = std::max(command.start, clock.to_host(command.end));
    commands.push_back(std::move(command));
  });
  if (all.recording == 0) {
    all.entries.clear();
    all.read = 0;
    all.next_look = kMostEvents;
  }
  return commands;
}

void add_queue(Queue& queue) {
  Recorder& all = recorder();
  std::lock_guard lock(all.queues_mutex);
  all.queues.push_back(&queue);
  if (all.sessions > 0) queue.set_timed(true);
}

void remove_queue(Queue& queue) {
  Recorder& all = recorder();
  std::lock_guard lock(all.queues_mutex);
  std::erase(all.queues, &queue);
}

}  // namespace ocl::profile
