#include "opencl/queue.h"

#include <algorithm>
#include <thread>

#include "opencl/deferred.h"
#include "opencl/device_assert.h"
#include "opencl/graph.h"
#include "opencl/log.h"
#include "opencl/platform.h"

namespace ocl {
namespace {

// cl_khr_priority_hints, which CL/cl_ext.h of some headers lacks.
constexpr cl_queue_properties kQueuePriority = 0x1096;
constexpr cl_queue_properties kPriorityHigh = 1 << 0;

// cl_intel_exec_by_local_thread: every clEnqueue* call returns once the calling thread has executed
// the command. Out of order, because in-order queues make threads wait for each other.
constexpr cl_command_queue_properties kThreadLocalExec = cl_command_queue_properties{1} << 31;

// Copies of at most that many bytes take a thread no longer than telling another one would.
constexpr size_t kImmediateCopy = 16 << 10;

bool has_extension(const Device& device, const char* name) {
  return device.properties().extensions.find(name) != std::string::npos;
}

cl_command_queue create_queue(const Device& device, int priority,
                              cl_command_queue_properties properties, cl_int* code) {
  if (priority < 0 && api().clCreateCommandQueueWithProperties != nullptr &&
      has_extension(device, "cl_khr_priority_hints")) {
    const cl_queue_properties request[] = {CL_QUEUE_PROPERTIES, properties, kQueuePriority,
                                           kPriorityHigh, 0};
    cl_command_queue queue =
        api().clCreateCommandQueueWithProperties(device.context(), device.id(), request, code);
    if (*code == CL_SUCCESS) return queue;
  }
  return api().clCreateCommandQueue(device.context(), device.id(), properties, code);
}

}  // namespace

Queue::Handles Queue::create(cl_command_queue_properties properties, cl_int* code) const {
  Handles made;
  made.main = create_queue(device_, priority_, properties, code);
  if (*code == CL_SUCCESS && has_extension(device_, "cl_intel_exec_by_local_thread")) {
    cl_int of_immediate = CL_SUCCESS;  // not needed
    made.immediate = api().clCreateCommandQueue(
        device_.context(), device_.id(),
        kThreadLocalExec | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | properties, &of_immediate);
    if (of_immediate != CL_SUCCESS) made.immediate = nullptr;
  }
  return made;
}

Queue::Queue(Device& device, int priority, int64_t stream)
    : device_(device),
      priority_(priority),
      stream_(stream),
      deferred_(std::make_unique<DeferredCommands>(*this)) {
  check_not_forked();
  cl_int code = CL_SUCCESS;
  plain_ = create(0, &code);
  check(code, "clCreateCommandQueue", &device);
  profile::add_queue(*this);
}

Queue::Queue(Device& device, cl_command_queue theirs, int64_t stream)
    : device_(device),
      priority_(0),
      stream_(stream),
      deferred_(std::make_unique<DeferredCommands>(*this)) {
  check_not_forked();
  OCL_CALL(&device, clRetainCommandQueue, theirs);
  // Whether it times commands was decided by those who made it.
  timed_.main = theirs;
  handles_.store(&timed_);
  shared_.store(true);
  profile::add_queue(*this);
}

Queue::~Queue() {
  profile::remove_queue(*this);
  device_.asserts().release(*this);
  if (process_was_forked()) return;  // the driver behind the handles is gone
  if (idle_marker_ != nullptr) api().clReleaseEvent(idle_marker_);
  if (last_ != nullptr) api().clReleaseEvent(last_);
  for (const Handles& handles : {plain_, timed_}) {
    if (handles.immediate != nullptr) api().clReleaseCommandQueue(handles.immediate);
    if (handles.main != nullptr) api().clReleaseCommandQueue(handles.main);
  }
}

// Commands of the two handles must not overtake each other. So who enqueues one announces it, and
// the handle changes while nobody does, after a wait for all that was enqueued. Both sides write
// first and read then, in the one order of all such accesses: so one of them sees the other.
void Queue::set_timed(bool timed) {
  check_not_forked();
  settle();
  std::lock_guard<std::mutex> lock(switch_mutex_);
  if (shared_.load()) timed = true;
  if (timed == (handles() == &timed_)) return;
  if (timed && timed_.main == nullptr) {
    cl_int code = CL_SUCCESS;
    timed_ = create(CL_QUEUE_PROFILING_ENABLE, &code);
    if (code != CL_SUCCESS) {
      timed_ = {};
      return warn(std::string("commands can't be timed: ") +
                  Error("clCreateCommandQueue", code, &device_).what());
    }
  }
  switching_.store(true);
  while (submitting_.load() != 0) std::this_thread::yield();
  api().clFinish(handles()->main);  // who waits for results gets the device's failures
  handles_.store(timed ? &timed_ : &plain_);
  switching_.store(false);
}

void Queue::wait_for_switch() {
  submitting_.fetch_sub(1);
  std::lock_guard<std::mutex> lock(switch_mutex_);
  submitting_.fetch_add(1);
}

cl_command_queue Queue::share() {
  shared_.store(true);
  set_timed(true);
  return handle();
}

void Queue::completed(uint64_t number) {
  uint64_t known = completed_.load(std::memory_order_relaxed);
  while (known < number &&
         !completed_.compare_exchange_weak(known, number, std::memory_order_release)) {
  }
}

// A command is counted after it was enqueued, and the number asked for before what is waited for is
// enqueued: so whoever finds both equal comes after everything that this thread, or one it has
// synchronised with, has enqueued.
cl_command_queue Queue::immediate() {
  settle();
  if (!has_immediate() || shared_.load(std::memory_order_relaxed)) return nullptr;
  const uint64_t number = enqueued();
  if (completed_.load(std::memory_order_acquire) == number) return handles()->immediate;
  const std::unique_lock<std::mutex> lock(last_mutex_, std::try_to_lock);
  if (!lock || last_number_ != number || last_ == nullptr) return nullptr;
  cl_int status = CL_QUEUED;
  const cl_int code = api().clGetEventInfo(last_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                           &status, nullptr);
  if (code != CL_SUCCESS || status != CL_COMPLETE) return nullptr;  // waits report failures
  completed(number);
  return handles()->immediate;
}

void Queue::count(cl_event event, uint64_t before) {
  const bool alone = enqueued_.fetch_add(1, std::memory_order_release) == before;
  const std::unique_lock<std::mutex> lock(last_mutex_, std::try_to_lock);
  // Another thread's command, counted meanwhile, may come after this one.
  if (alone && lock) {
    std::swap(event, last_);
    last_number_ = before + 1;
  }
  if (event != nullptr) api().clReleaseEvent(event);
}

namespace {

/// Counts a command at its end, also one whose call fails: it may be under way all the same, and
/// brief ones must not overtake it.
class Counted {
 public:
  explicit Counted(Queue& queue) : queue_(queue) {}
  ~Counted() { queue_.count(); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  Queue& queue_;
};

}  // namespace

template <class Enqueue>
bool Queue::submit(profile::Kind kind, size_t bytes, bool blocking, const Enqueue& enqueue) {
  profile::Recording recording;
  cl_command_queue immediate = bytes > kImmediateCopy ? nullptr : this->immediate();
  if (immediate != nullptr) {
    enqueue(immediate, CL_TRUE, recording.event());
  } else if (blocking) {
    return false;
  } else {
    const Submission submission(*this);
    const Counted counted(*this);
    enqueue(submission.handle(), CL_FALSE, recording.event());
  }
  recording.enqueued(*this, kind, bytes);
  return true;
}

void Queue::flush() {
  check_not_forked();
  flushed_.store(true, std::memory_order_relaxed);
  if (defers()) deferred_->advance();
  OCL_CALL(&device_, clFlush, handles()->main);
}

bool Queue::defer(DeferredKernel&& launch) { return deferred_->add(std::move(launch)); }

bool Queue::defer_write(void* address, const void* source, size_t bytes) {
  constexpr size_t kMostHeld = size_t{256} << 20;
  if (!defers() || capture() != nullptr || deferred_->held() + bytes > kMostHeld) return false;
  const auto* begin = static_cast<const char*>(source);
  return deferred_->add(DeferredWrite{device_.addresses().find(address), {begin, begin + bytes}});
}

void Queue::settle_deferred() { deferred_->settle(); }

void Queue::set_defers(bool defers) {
  deferring_.fetch_add(defers ? 1 : -1);
  defers_.store(defers, std::memory_order_release);
}

void Queue::settle_for_wait() {
  settle();
  if (checks_.load(std::memory_order_relaxed)) throw_failure();
}

void Queue::finish() {
  check_not_forked();
  check_not_captured(*this, "a wait");
  settle_for_wait();
  const uint64_t number = enqueued();
  if (!help()) OCL_CALL(&device_, clFinish, handle());
  completed(number);
}

bool Queue::help() {
  if (!device_.quirks().helps_in_event_waits || !flushed_.exchange(false)) return false;
  cl_event end = nullptr;
  OCL_CALL(&device_, clEnqueueMarkerWithWaitList, handle(), 0, nullptr, &end);
  wait(end);
  return true;
}

void Queue::wait(cl_event event) {
  const cl_int code = api().clWaitForEvents(1, &event);
  api().clReleaseEvent(event);
  check(code, "clWaitForEvents", &device_);
}

// A marker that was just enqueued on an idle queue may itself still be under way, so one marker is
// kept and asked again until work follows it: a loop that polls ends.
bool Queue::idle() {
  check_not_forked();
  check_not_captured(*this, "asking whether work is done");
  settle();
  std::lock_guard<std::mutex> lock(idle_mutex_);
  const uint64_t number = enqueued();
  const bool shared = shared_.load();
  if (!shared && completed_.load(std::memory_order_acquire) >= number) return true;
  if (idle_marker_ == nullptr || idle_number_ != number) {
    if (idle_marker_ != nullptr) api().clReleaseEvent(idle_marker_);
    idle_marker_ = nullptr;
    OCL_CALL(&device_, clEnqueueMarkerWithWaitList, handle(), 0, nullptr, &idle_marker_);
    idle_number_ = number;
    try {
      flush();
    } catch (...) {  // it may never be submitted, and would be asked for ever
      api().clReleaseEvent(idle_marker_);
      idle_marker_ = nullptr;
      throw;
    }
  }
  cl_int status = CL_QUEUED;
  OCL_CALL(&device_, clGetEventInfo, idle_marker_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
           &status, nullptr);
  if (status < 0) throw_error("an enqueued command", status, &device_);
  if (status != CL_COMPLETE) return false;
  completed(number);
  if (shared) {  // the next question needs a marker of its own
    api().clReleaseEvent(idle_marker_);
    idle_marker_ = nullptr;
  }
  return true;
}

AssertBuffer& Queue::asserts() {
  if (AssertBuffer* buffer = asserts_.load(std::memory_order_acquire)) return *buffer;
  std::lock_guard<std::mutex> lock(asserts_mutex_);
  if (AssertBuffer* buffer = asserts_.load(std::memory_order_relaxed)) return *buffer;
  // The first queue takes the device's: mostly it is the only one, and its launches then find their
  // argument as they want it.
  AssertBuffer* buffer = &device_.asserts();
  if (!buffer->claim(*this)) {
    own_asserts_ = std::make_unique<AssertBuffer>(device_);
    buffer = own_asserts_.get();
  }
  asserts_.store(buffer, std::memory_order_release);
  return *buffer;
}

std::optional<DeviceAssertion> Queue::take_assertion(bool finished) {
  settle();
  const auto marked = [this] {
    return checks_.load(std::memory_order_relaxed) && checks_.exchange(false);
  };
  bool own = marked();
  if (!own && !finished) {
    finish();
    own = marked();  // fail() meanwhile
  }
  if (own) {
    if (auto failure = take_own_assertion()) return failure;
  }
  if (!watches_.load(std::memory_order_relaxed)) return std::nullopt;
  std::vector<Queue*> watched;
  {
    std::lock_guard<std::mutex> lock(asserts_mutex_);
    watched.swap(watched_);
    watches_.store(false);
  }
  std::optional<DeviceAssertion> first;
  for (size_t i = 0; i < watched.size(); ++i) {
    try {
      auto failure = watched[i]->asserts().take(*this);
      if (!first) first = std::move(failure);
    } catch (...) {
      keep_watching({watched.begin() + static_cast<std::ptrdiff_t>(i), watched.end()});
      if (first) return first;  // it would be lost; the device's failure shows in the next wait
      throw;
    }
  }
  return first;
}

void Queue::fail(std::exception_ptr error) {
  {
    std::lock_guard<std::mutex> lock(asserts_mutex_);
    if (!failure_) failure_ = std::move(error);
  }
  mark_checks();
}

void Queue::throw_failure() {
  settle();
  std::exception_ptr failure;
  {
    const std::lock_guard lock(asserts_mutex_);
    std::swap(failure, failure_);
  }
  if (failure) std::rethrow_exception(failure);
}

/// A record that can't be read is kept for the next wait: a later op is not to be blamed for it.
std::optional<DeviceAssertion> Queue::take_own_assertion() {
  std::exception_ptr failure;
  {
    std::lock_guard<std::mutex> lock(asserts_mutex_);
    std::swap(failure, failure_);
  }
  if (failure) {
    mark_checks();  // the record is still to be read
    std::rethrow_exception(failure);
  }
  try {
    return asserts().take(*this);
  } catch (...) {
    mark_checks();
    throw;
  }
}

void Queue::watch(Queue& other) {
  if (&other == this || &other.device_ != &device_) return;
  std::vector<Queue*> added;
  if (other.checks_.load()) added.push_back(&other);
  if (other.watches_.load()) {
    std::lock_guard<std::mutex> lock(other.asserts_mutex_);
    added.insert(added.end(), other.watched_.begin(), other.watched_.end());
  }
  keep_watching(added);
}

void Queue::keep_watching(const std::vector<Queue*>& queues) {
  if (queues.empty()) return;
  std::lock_guard<std::mutex> lock(asserts_mutex_);
  for (Queue* queue : queues) {
    if (queue != this && std::ranges::find(watched_, queue) == watched_.end()) {
      watched_.push_back(queue);
    }
  }
  watches_.store(!watched_.empty());
}

void Queue::write(void* address, const void* source, size_t bytes, bool blocking) {
  if (bytes == 0) return;
  const Location to = device_.addresses().find(address);
  write(to.mem, to.offset, source, bytes, blocking);
}

void Queue::write(cl_mem mem, size_t offset, const void* source, size_t bytes, bool blocking) {
  check_not_forked();
  blocking ? settle_for_wait() : settle();
  check_not_captured(*this, "a copy from the host");
  const auto kind = profile::Kind::host_to_device;
  const auto enqueue = [&](cl_command_queue queue, cl_bool wait, cl_event* event) {
    OCL_CALL(&device_, clEnqueueWriteBuffer, queue, mem, wait, offset, bytes, source, 0, nullptr,
             event);
  };
  if (submit(kind, bytes, blocking, enqueue)) return;
  // A blocking write returns once `source` was copied (OpenCL 1.2, 5.2.2): another queue could then
  // still read what was there before. Seen on Intel's CPU runtime.
  const uint64_t number = enqueued();
  help();
  profile::Recording recording;
  cl_event written = nullptr;
  try {
    enqueue(handle(), CL_FALSE, recording.event(&written));
  } catch (...) {
    count();  // see Counted
    throw;
  }
  recording.enqueued(*this, kind, bytes, &written);
  wait(written);
  completed(number);
}

void Queue::read(void* destination, const void* address, size_t bytes, bool blocking) {
  if (bytes == 0) return;
  const Location from = device_.addresses().find(address);
  read(destination, from.mem, from.offset, bytes, blocking);
}

void Queue::read(void* destination, cl_mem mem, size_t offset, size_t bytes, bool blocking) {
  check_not_forked();
  blocking ? settle_for_wait() : settle();
  check_not_captured(*this, "a copy to the host");
  const auto kind = profile::Kind::device_to_host;
  const auto enqueue = [&](cl_command_queue queue, cl_bool wait, cl_event* event) {
    OCL_CALL(&device_, clEnqueueReadBuffer, queue, mem, wait, offset, bytes, destination, 0,
             nullptr, event);
  };
  if (submit(kind, bytes, blocking, enqueue)) return;
  const uint64_t number = enqueued();
  help();
  profile::Recording recording;
  enqueue(handle(), CL_TRUE, recording.event());
  recording.enqueued(*this, kind, bytes);
  completed(number);
}

void Queue::copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return;
  copy(device_.addresses().find(destination), device_.addresses().find(source), bytes);
}

void Queue::copy(const Location& to, const Location& from, size_t bytes) {
  check_not_forked();
  if (Graph* graph = capture()) {
    graph->add_copy(device_, to, from, bytes);
    return graph->added_by(*this);
  }
  if (defers() && deferred_->add(DeferredCopy{to, from, bytes})) return;
  submit(profile::Kind::device_to_device, bytes, false,
         [&](cl_command_queue queue, cl_bool, cl_event* event) {
           OCL_CALL(&device_, clEnqueueCopyBuffer, queue, from.mem, to.mem, from.offset, to.offset,
                    bytes, 0, nullptr, event);
         });
}

void Queue::fill(void* address, const void* pattern, size_t pattern_bytes, size_t bytes) {
  if (bytes == 0) return;
  fill(device_.addresses().find(address), pattern, pattern_bytes, bytes);
}

void Queue::fill(const Location& to, const void* pattern, size_t pattern_bytes, size_t bytes) {
  check_not_forked();
  if (Graph* graph = capture()) {
    graph->add_fill(device_, to, pattern, pattern_bytes, bytes);
    return graph->added_by(*this);
  }
  if (defers()) {
    const auto* begin = static_cast<const char*>(pattern);
    if (deferred_->add(DeferredFill{to, {begin, begin + pattern_bytes}, bytes})) return;
  }
  submit(profile::Kind::fill, bytes, false, [&](cl_command_queue queue, cl_bool, cl_event* event) {
    OCL_CALL(&device_, clEnqueueFillBuffer, queue, to.mem, pattern, pattern_bytes, to.offset, bytes,
             0, nullptr, event);
  });
}

}  // namespace ocl
