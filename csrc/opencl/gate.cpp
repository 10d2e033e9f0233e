#include "opencl/gate.h"

#include "opencl/platform.h"
#include "opencl/queue.h"

namespace ocl {

Gate::Gate(Queue& queue) {
  Device* const device = &queue.device();
  cl_int code = CL_SUCCESS;
  event_ = api().clCreateUserEvent(device->context(), &code);
  check(code, "clCreateUserEvent", device);
  const Queue::Submission submission(queue);
  code = api().clEnqueueBarrierWithWaitList(submission.handle(), 1, &event_, nullptr);
  if (code != CL_SUCCESS) {
    api().clReleaseEvent(event_);
    throw_error("clEnqueueBarrierWithWaitList", code, device);
  }
  queue.count();
}

Gate::~Gate() {
  if (process_was_forked()) return;
  open();
  api().clReleaseEvent(event_);
}

void Gate::open() noexcept {
  if (opened_.exchange(true)) return;
  // A queue would wait for ever. A driver refuses the second call where the first one had worked.
  if (api().clSetUserEventStatus(event_, CL_COMPLETE) != CL_SUCCESS) {
    api().clSetUserEventStatus(event_, CL_COMPLETE);
  }
}

}  // namespace ocl
