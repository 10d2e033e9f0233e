#include "opencl/queue.h"

#include <algorithm>

#include "opencl/device_assert.h"
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

cl_command_queue create_queue(const Device& device, int priority, cl_int* code) {
  if (priority < 0 && api().clCreateCommandQueueWithProperties != nullptr &&
      device.properties().extensions.find("cl_khr_priority_hints") != std::string::npos) {
    const cl_queue_properties request[] = {kQueuePriority, kPriorityHigh, 0};
    cl_command_queue queue =
        api().clCreateCommandQueueWithProperties(device.context(), device.id(), request, code);
    if (*code == CL_SUCCESS) return queue;
  }
  return api().clCreateCommandQueue(device.context(), device.id(), 0, code);
}

/// Null if there is none.
cl_command_queue create_immediate_queue(const Device& device) {
  if (device.properties().extensions.find("cl_intel_exec_by_local_thread") == std::string::npos) {
    return nullptr;
  }
  cl_int code = CL_SUCCESS;
  cl_command_queue queue =
      api().clCreateCommandQueue(device.context(), device.id(),
                                 kThreadLocalExec | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
  return code == CL_SUCCESS ? queue : nullptr;
}

}  // namespace

Queue::Queue(Device& device, int priority) : device_(device) {
  check_not_forked();
  cl_int code = CL_SUCCESS;
  handle_ = create_queue(device, priority, &code);
  check(code, "clCreateCommandQueue", &device);
  immediate_ = create_immediate_queue(device);
}

Queue::~Queue() {
  device_.asserts().release(*this);
  if (process_was_forked()) return;  // the driver behind the handles is gone
  if (idle_marker_ != nullptr) api().clReleaseEvent(idle_marker_);
  if (last_ != nullptr) api().clReleaseEvent(last_);
  if (immediate_ != nullptr) api().clReleaseCommandQueue(immediate_);
  api().clReleaseCommandQueue(handle_);
}

cl_command_queue Queue::share() {
  shared_.store(true);
  return handle_;
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
  if (immediate_ == nullptr || shared_.load(std::memory_order_relaxed)) return nullptr;
  const uint64_t number = enqueued();
  if (completed_.load(std::memory_order_acquire) == number) return immediate_;
  const std::unique_lock<std::mutex> lock(last_mutex_, std::try_to_lock);
  if (!lock || last_number_ != number || last_ == nullptr) return nullptr;
  cl_int status = CL_QUEUED;
  const cl_int code = api().clGetEventInfo(last_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                           &status, nullptr);
  if (code != CL_SUCCESS || status != CL_COMPLETE) return nullptr;  // waits report failures
  completed(number);
  return immediate_;
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

cl_command_queue Queue::for_copy(size_t bytes) {
  if (bytes > kImmediateCopy) return handle_;
  cl_command_queue queue = immediate();
  return queue != nullptr ? queue : handle_;
}

void Queue::flush() {
  check_not_forked();
  flushed_.store(true, std::memory_order_relaxed);
  OCL_CALL(&device_, clFlush, handle_);
}

void Queue::finish() {
  check_not_forked();
  const uint64_t number = enqueued();
  if (!help()) OCL_CALL(&device_, clFinish, handle_);
  completed(number);
}

bool Queue::help() {
  if (!device_.quirks().helps_in_event_waits || !flushed_.exchange(false)) return false;
  cl_event end = nullptr;
  OCL_CALL(&device_, clEnqueueMarkerWithWaitList, handle_, 0, nullptr, &end);
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
  std::lock_guard<std::mutex> lock(idle_mutex_);
  const uint64_t number = enqueued();
  const bool shared = shared_.load();
  if (!shared && completed_.load(std::memory_order_acquire) >= number) return true;
  if (idle_marker_ == nullptr || idle_number_ != number) {
    if (idle_marker_ != nullptr) api().clReleaseEvent(idle_marker_);
    idle_marker_ = nullptr;
    OCL_CALL(&device_, clEnqueueMarkerWithWaitList, handle_, 0, nullptr, &idle_marker_);
    idle_number_ = number;
    flush();
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
  if (checks_.load(std::memory_order_relaxed) && checks_.exchange(false)) {
    if (auto failure = take_own_assertion()) return failure;
  } else if (!finished) {
    finish();
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

/// A record that can't be read is kept for the next wait: a later op is not to be blamed for it.
std::optional<DeviceAssertion> Queue::take_own_assertion() {
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
  cl_command_queue queue = for_copy(bytes);
  if (queue != handle_) {
    OCL_CALL(&device_, clEnqueueWriteBuffer, queue, mem, CL_TRUE, offset, bytes, source, 0, nullptr,
             nullptr);
    return;
  }
  // A blocking write returns once `source` was copied (OpenCL 1.2, 5.2.2): another queue could then
  // still read what was there before. Seen on Intel's CPU runtime.
  const uint64_t number = enqueued();
  if (blocking) help();
  cl_event written = nullptr;
  OCL_CALL(&device_, clEnqueueWriteBuffer, handle_, mem, CL_FALSE, offset, bytes, source, 0,
           nullptr, blocking ? &written : nullptr);
  if (blocking) {
    wait(written);
    completed(number);
  } else {
    count();
  }
}

void Queue::read(void* destination, const void* address, size_t bytes, bool blocking) {
  if (bytes == 0) return;
  const Location from = device_.addresses().find(address);
  read(destination, from.mem, from.offset, bytes, blocking);
}

void Queue::read(void* destination, cl_mem mem, size_t offset, size_t bytes, bool blocking) {
  check_not_forked();
  cl_command_queue queue = for_copy(bytes);
  if (queue != handle_) {
    OCL_CALL(&device_, clEnqueueReadBuffer, queue, mem, CL_TRUE, offset, bytes, destination, 0,
             nullptr, nullptr);
    return;
  }
  const uint64_t number = enqueued();
  if (blocking) help();
  OCL_CALL(&device_, clEnqueueReadBuffer, handle_, mem, blocking ? CL_TRUE : CL_FALSE, offset,
           bytes, destination, 0, nullptr, nullptr);
  if (blocking) {
    completed(number);
  } else {
    count();
  }
}

void Queue::copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return;
  check_not_forked();
  const Location to = device_.addresses().find(destination);
  const Location from = device_.addresses().find(source);
  cl_command_queue queue = for_copy(bytes);
  OCL_CALL(&device_, clEnqueueCopyBuffer, queue, from.mem, to.mem, from.offset, to.offset, bytes, 0,
           nullptr, nullptr);
  if (queue == handle_) count();
}

void Queue::fill(void* address, const void* pattern, size_t pattern_bytes, size_t bytes) {
  if (bytes == 0) return;
  check_not_forked();
  const Location to = device_.addresses().find(address);
  cl_command_queue queue = for_copy(bytes);
  OCL_CALL(&device_, clEnqueueFillBuffer, queue, to.mem, pattern, pattern_bytes, to.offset, bytes,
           0, nullptr, nullptr);
  if (queue == handle_) count();
}

}  // namespace ocl
