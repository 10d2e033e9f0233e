#include "opencl/queue.h"

#include <algorithm>

#include "opencl/device_assert.h"

namespace ocl {
namespace {

// cl_khr_priority_hints, which CL/cl_ext.h of some headers lacks.
constexpr cl_queue_properties kQueuePriority = 0x1096;
constexpr cl_queue_properties kPriorityHigh = 1 << 0;

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

}  // namespace

Queue::Queue(Device& device, int priority) : device_(device) {
  check_not_forked();
  cl_int code = CL_SUCCESS;
  handle_ = create_queue(device, priority, &code);
  check(code, "clCreateCommandQueue", &device);
}

Queue::~Queue() {
  device_.asserts().release(*this);
  if (process_was_forked()) return;  // the driver behind the handles is gone
  if (idle_marker_ != nullptr) api().clReleaseEvent(idle_marker_);
  api().clReleaseCommandQueue(handle_);
}

void Queue::flush() {
  check_not_forked();
  flushed_.store(true, std::memory_order_relaxed);
  OCL_CALL(&device_, clFlush, handle_);
}

void Queue::finish() {
  check_not_forked();
  if (!help()) OCL_CALL(&device_, clFinish, handle_);
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
  if (busy_.exchange(false)) {
    if (idle_marker_ != nullptr) api().clReleaseEvent(idle_marker_);
    idle_marker_ = nullptr;
    const cl_int code = api().clEnqueueMarkerWithWaitList(handle_, 0, nullptr, &idle_marker_);
    if (code != CL_SUCCESS) busy_.store(true);
    check(code, "clEnqueueMarkerWithWaitList", &device_);
    flush();
  }
  if (idle_marker_ == nullptr) return true;
  cl_int status = CL_QUEUED;
  OCL_CALL(&device_, clGetEventInfo, idle_marker_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
           &status, nullptr);
  if (status < 0) throw_error("an enqueued command", status, &device_);
  return status == CL_COMPLETE;
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
    if (auto failure = asserts().take(*this)) return failure;
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
  for (Queue* other : watched) {
    auto failure = other->asserts().take(*this);
    if (!first) first = std::move(failure);
  }
  return first;
}

void Queue::watch(Queue& other) {
  if (&other == this || &other.device_ != &device_) return;
  std::vector<Queue*> added;
  if (other.checks_.load()) added.push_back(&other);
  if (other.watches_.load()) {
    std::lock_guard<std::mutex> lock(other.asserts_mutex_);
    added.insert(added.end(), other.watched_.begin(), other.watched_.end());
  }
  if (added.empty()) return;
  std::lock_guard<std::mutex> lock(asserts_mutex_);
  for (Queue* queue : added) {
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
  // A blocking write returns once `source` was copied (OpenCL 1.2, 5.2.2): another queue could then
  // still read what was there before. Seen on Intel's CPU runtime.
  if (blocking) help();
  cl_event written = nullptr;
  OCL_CALL(&device_, clEnqueueWriteBuffer, handle_, mem, CL_FALSE, offset, bytes, source, 0,
           nullptr, blocking ? &written : nullptr);
  mark_busy();
  if (blocking) wait(written);
}

void Queue::read(void* destination, const void* address, size_t bytes, bool blocking) {
  if (bytes == 0) return;
  const Location from = device_.addresses().find(address);
  read(destination, from.mem, from.offset, bytes, blocking);
  if (!blocking) mark_busy();
}

void Queue::read(void* destination, cl_mem mem, size_t offset, size_t bytes, bool blocking) {
  check_not_forked();
  if (blocking) help();
  OCL_CALL(&device_, clEnqueueReadBuffer, handle_, mem, blocking ? CL_TRUE : CL_FALSE, offset,
           bytes, destination, 0, nullptr, nullptr);
}

void Queue::copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return;
  check_not_forked();
  const Location to = device_.addresses().find(destination);
  const Location from = device_.addresses().find(source);
  OCL_CALL(&device_, clEnqueueCopyBuffer, handle_, from.mem, to.mem, from.offset, to.offset, bytes,
           0, nullptr, nullptr);
  mark_busy();
}

void Queue::fill(void* address, const void* pattern, size_t pattern_bytes, size_t bytes) {
  if (bytes == 0) return;
  check_not_forked();
  const Location to = device_.addresses().find(address);
  OCL_CALL(&device_, clEnqueueFillBuffer, handle_, to.mem, pattern, pattern_bytes, to.offset, bytes,
           0, nullptr, nullptr);
  mark_busy();
}

}  // namespace ocl
