#include "opencl/event.h"

#include <chrono>
#include <stdexcept>

#include "opencl/gate.h"
#include "opencl/graph.h"
#include "opencl/platform.h"
#include "opencl/queue.h"

namespace ocl {
namespace {

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

cl_int status_of(cl_event event, const Device* device) {
  cl_int status = CL_QUEUED;
  OCL_CALL(device, clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
           nullptr);
  if (status < 0) throw_error("an enqueued command", status, device);
  return status;
}

}  // namespace

// The time comes from the host's clock in the driver's callback: profiling would have to be
// switched on for a whole queue, which slows every launch, and its clocks are not comparable across
// queues.
struct Event::Completion {
  std::atomic<int64_t> ns{0};  // 0: not complete

  static void CL_CALLBACK completed(cl_event, cl_int, void* data) {
    const std::unique_ptr<std::shared_ptr<Completion>> self(
        static_cast<std::shared_ptr<Completion>*>(data));
    (*self)->ns.store(now_ns());
    (*self)->ns.notify_all();
  }
};

Event::~Event() {
  if (handle_ != nullptr && !process_was_forked()) api().clReleaseEvent(handle_);
}

void Event::record(Queue& queue, bool timing) {
  check_not_forked();
  Device* const device = &queue.device();
  if (Graph* graph = queue.capture()) {
    point_ = graph->point(queue);
    if (handle_ != nullptr) api().clReleaseEvent(handle_);
    handle_ = nullptr;
    device_ = device;
    queue_ = &queue;
    completion_.reset();
    return;
  }
  point_.reset();
  cl_event marker = nullptr;
  number_ = queue.enqueued();
  OCL_CALL(device, clEnqueueMarkerWithWaitList, queue.handle(), 0, nullptr, &marker);
  if (handle_ != nullptr) api().clReleaseEvent(handle_);
  handle_ = marker;
  device_ = device;
  queue_ = &queue;
  completion_.reset();
  if (timing) {
    completion_ = std::make_shared<Completion>();
    // Given up on failure: a driver may have registered the callback all the same.
    auto* shared = new std::shared_ptr<Completion>(completion_);
    const cl_int code =
        api().clSetEventCallback(marker, CL_COMPLETE, &Completion::completed, shared);
    if (code != CL_SUCCESS) {
      completion_.reset();
      throw_error("clSetEventCallback", code, device);
    }
  }
  // Without a flush the marker may never be submitted, and a host that only polls never sees it.
  queue.flush();
}

bool Event::try_record(Queue& queue) noexcept {
  // Callers hold locks: they try again once the queue's commands have their programs.
  if (queue.capture() != nullptr || queue.defers()) return false;
  const cl_event before = handle_;
  try {
    record(queue);
  } catch (...) {  // where the marker is there, only the flush failed
  }
  return handle_ != before;
}

void Event::check_no_point() const {
  if (__builtin_expect(point_ == nullptr, 1)) return;
  throw std::runtime_error(
      "ocl: the host can't wait for an event, or ask about it, that was recorded while a graph is "
      "captured on its stream");
}

void Event::block(Queue& queue) const {
  if (point_ != nullptr) {
    const auto capture = point_->capture.lock();
    if (capture == nullptr) {
      throw std::runtime_error("ocl: the event was recorded in a capture that has ended");
    }
    if (capture->ran != nullptr) return capture->ran->block(queue);
    return point_->graph->follow(queue, *point_);
  }
  if (handle_ == nullptr) return;
  check_not_forked();
  check_not_captured(queue, "a wait for another stream");
  if (queue.device().context() != device_->context()) return block_elsewhere(queue);
  {
    const Queue::Submission submission(queue);
    OCL_CALL(&queue.device(), clEnqueueBarrierWithWaitList, submission.handle(), 1, &handle_,
             nullptr);
    queue.count();
  }
  queue.watch(*queue_);
}

// No command waits for another context's event.
void Event::block_elsewhere(Queue& queue) const {
  auto gate = std::make_unique<Gate>(queue);
  const auto open = [](cl_event, cl_int, void* data) { delete static_cast<Gate*>(data); };
  // Given up on failure: a driver may have registered the callback all the same.
  Gate* const shared = gate.release();
  const cl_int code = api().clSetEventCallback(handle_, CL_COMPLETE, open, shared);
  if (code == CL_SUCCESS) return;
  shared->open();
  throw_error("clSetEventCallback", code, device_);
}

bool Event::query() const {
  check_no_point();
  if (handle_ == nullptr) return true;
  check_not_forked();
  if (status_of(handle_, device_) != CL_COMPLETE) return false;
  queue_->completed(number_);
  // A timed event is complete once its time is known: elapsed_ms may follow at once.
  return completion_ == nullptr || completion_->ns.load() != 0;
}

bool Event::over() const noexcept {
  if (handle_ == nullptr) return true;
  if (process_was_forked()) return false;
  cl_int status = CL_QUEUED;
  const cl_int code = api().clGetEventInfo(handle_, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                           sizeof status, &status, nullptr);
  return code == CL_SUCCESS && status <= CL_COMPLETE;
}

void Event::synchronize() const {
  check_no_point();
  if (handle_ == nullptr) return;
  check_not_forked();
  const cl_int code = api().clWaitForEvents(1, &handle_);
  if (code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) status_of(handle_, device_);
  check(code, "clWaitForEvents", device_);
  queue_->completed(number_);
  if (completion_ != nullptr) completion_->ns.wait(0);
}

double Event::elapsed_ms(const Event& start, const Event& end) {
  if (start.completion_ == nullptr || end.completion_ == nullptr) {
    throw std::runtime_error(
        "both events must be recorded with timing enabled before their times are compared");
  }
  const int64_t from = start.completion_->ns.load();
  const int64_t to = end.completion_->ns.load();
  if (from == 0 || to == 0) {
    throw std::runtime_error(
        "both events must be complete before their times are compared: synchronise first");
  }
  return static_cast<double>(to - from) * 1e-6;
}

}  // namespace ocl
