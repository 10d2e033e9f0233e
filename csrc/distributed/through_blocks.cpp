// Calls of an inner backend that works on memory shared with the device, as NCCL does.
//
// NCCL's work is done on CUDA's streams, which OpenCL's queues know nothing of. So the host waits:
// for the copies to shared memory before a call (CallQueue), and for the call's work before the
// copies back. Calls are made one at a time: NCCL executes them in order anyway.
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <chrono>

#include "distributed/backend.h"
#include "distributed/follow.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::distributed {
namespace {

// As long as a call is put off at most, for programs that compute on and on.
constexpr std::chrono::seconds kPatience{1};

/// As many bytes of shared memory may wait for calls that are put off.
int64_t most_put_off(const Device& device) {
  return static_cast<int64_t>(device.properties().global_memory / 16);
}

}  // namespace

c10::Device Backend::other_side(c10::Device device) const {
  return pool_->memory().other(device.index());
}

void Backend::check_takes_cpu_tensors() const {
  TORCH_CHECK(
      !pool_, getBackendName(),
      " is this group's backend for ocl tensors, and takes no others. Name one for the CPU, "
      "too, as in \"cpu:gloo,ocl:nccl\".");
}

// A GPU runs the kernels of one context at a time. NCCL's kernels are of CUDA's context, and wait
// for those of other ranks. Beside OpenCL's they get time slices, on each rank at other times, and
// use most of them up waiting. So what overlaps takes longer than one after the other.
void Backend::wait_for_device(const Staging& staging, const std::function<bool()>& asked_for) {
  const c10::Stream stream = staging.callers_stream();
  const Queue& queue = queue_of(stream);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  uint64_t seen = 0;
  do {
    seen = queue.enqueued();
    record(stream)->synchronize();
  } while (queue.enqueued() != seen && !asked_for() && std::chrono::steady_clock::now() < end &&
           pool_->counts().in_use_bytes < most_put_off(queue.device()));
}

void Backend::make_through_blocks(c10::Device device, const InnerCall& call, Work& work) {
  const c10::Device other = other_side(device);
  const WorkPtr inner = pool_->memory().call(other, call);
  if (inner) work.posted(inner);
  pool_->memory().finish(other, inner.get());
}

// NCCL must know what goes together: sends and receives wait for each other otherwise.
WorkPtr Backend::run_batch() {
  auto batch = std::make_shared<std::vector<Member>>(std::exchange(batch_, {}));
  std::vector<WorkPtr> works;
  for (const Member& member : *batch) works.push_back(member.work);
  if (!batch->empty()) {
    const c10::Device device = batch->front().staging->device();
    const c10::DeviceGuard guard(device);
    const auto fail_all = [this, batch](std::exception_ptr error) {
      for (const Member& member : *batch) failing(member.work)(error);
    };
    push({record(streams(device).out), [this, device, batch] { make_batch(device, *batch); },
          fail_all},
         false);
  }
  return c10::make_intrusive<AllOf>(rank_, std::move(works));
}

void Backend::make_batch(c10::Device device, const std::vector<Member>& batch) {
  wait_for_device(*batch.front().staging, [&] {
    return std::ranges::any_of(batch, [](const Member& m) { return m.work->asked_for(); });
  });
  const c10::Device other = other_side(device);
  std::vector<WorkPtr> works;
  const auto make_all = [&] {
    for (const Member& member : batch) works.push_back(member.call());
  };
  pool_->memory().call(other, [&]() -> WorkPtr {
    if (!inner_->supportsCoalescing()) {
      make_all();
      return nullptr;
    }
    inner_->startCoalescing();
    try {
      make_all();
    } catch (...) {
      inner_->endCoalescing();  // what follows must not become part of it
      throw;
    }
    works = {inner_->endCoalescing()};
    return nullptr;
  });
  for (const WorkPtr& work : works) pool_->memory().finish(other, work.get());
  for (const Member& member : batch) conclude(member.arrived, failing(member.work));
}

// NCCL's own takes a device of CUDA, which it guesses where nobody says.
WorkPtr Backend::barrier_on_device(const c10d::BarrierOptions& opts) {
  const auto index = opts.device_ids.empty()
                         ? current_device()
                         : static_cast<c10::DeviceIndex>(opts.device_ids.front());
  Tensors number{at::zeros({1}, at::TensorOptions().device(c10::Device(kDeviceType, index)))};
  c10d::AllreduceOptions options;
  options.timeout = opts.timeout;
  options.asyncOp = opts.asyncOp;
  return run({c10d::OpType::BARRIER, number, {}, !opts.asyncOp}, [=, this](Staging& staging) {
    return [inner = inner_.get(), hosts = staging.host(number, Staging::kRead), options]() mutable {
      return inner->allreduce(hosts, options);
    };
  });
}

}  // namespace ocl::distributed
