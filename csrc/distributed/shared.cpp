#include "distributed/shared.h"

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>

#include "distributed/follow.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::distributed {
namespace {

using c10d::OpType;

// As long as a call is put off at most, for programs that compute on and on.
constexpr std::chrono::seconds kPatience{1};

/// As many bytes of shared memory may wait for calls that are put off.
int64_t most_put_off(const Device& device) {
  return static_cast<int64_t>(device.properties().global_memory / 16);
}

}  // namespace

Shared::Shared(Inner inner, std::shared_ptr<BlockPool> pool)
    : Transport(std::move(inner)), pool_(std::move(pool)) {}

Shared::~Shared() {
  stop();
  batch_.clear();
  inner_.reset();
  pool_->close();
}

void Shared::shutdown() {
  queue_->drain();
  inner_->shutdown();
  pool_->close();
}

c10::Device Shared::device_here(const Request& request) const {
  const auto device = device_of(request);
  TORCH_CHECK(device, inner_->getBackendName(),
              " is this group's backend for ocl tensors, and takes no others. Name one for the "
              "CPU, too, as in \"cpu:gloo,ocl:nccl\".");
  return *device;
}

c10::Device Shared::other_side(c10::Device device) const {
  return pool_->memory().other(device.index());
}

// A GPU runs the kernels of one context at a time. NCCL's kernels are of CUDA's context, and wait
// for those of other ranks. Beside OpenCL's they get time slices, on each rank at other times, and
// use most of them up waiting. So what overlaps takes longer than one after the other.
void Shared::wait_for_device(const Staging& staging, const std::function<bool()>& asked_for) {
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

void Shared::make(c10::Device device, const InnerCall& call, Work& work) {
  const c10::Device other = other_side(device);
  const WorkPtr inner = pool_->memory().call(other, call);
  if (inner) work.posted(inner);
  pool_->memory().finish(other, inner.get());
}

WorkPtr Shared::run(const Request& request, const Prepare& prepare) {
  const c10::Device device = device_here(request);
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);  // the copies are written by threads in no such mode
  const c10::DeviceGuard guard(device);
  const auto staging = std::make_shared<BlockStaging>(device, streams(device), pool_);
  InnerCall call = prepare(*staging);
  const auto work = make_work(request, device);
  auto arrived = arrival(request, staging, work);
  if (coalescing_) {
    batch_.push_back({std::move(call), staging, work, std::move(arrived)});
    return work;
  }
  const auto failed = failing(work);
  // A call takes until its work is done: only a program that waits for it makes it itself.
  queue_->push({staging->ready(),
                [this, device, work, call = std::move(call), arrived = std::move(arrived), failed,
                 staging, waited_for = request.synchronous] {
                  if (!waited_for) wait_for_device(*staging, [&] { return work->asked_for(); });
                  make(device, call, *work);
                  conclude(arrived, failed);
                },
                failed},
               request.synchronous ? CallQueue::By::caller : CallQueue::By::thread);
  return work;
}

WorkPtr Shared::run_point_to_point(const Request& request, const Prepare& prepare) {
  if (coalescing_) return run(request, prepare);  // it ends with the others
  const c10::Device device = device_here(request);
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  const c10::DeviceGuard guard(device);
  const auto staging = std::make_shared<BlockStaging>(device, streams(device), pool_);
  InnerCall call = prepare(*staging);
  const auto work = make_point_to_point(request, device, staging);
  const c10::Device other = other_side(device);
  work->on_wait([pool = pool_, other](c10d::Work& inner) { pool->memory().finish(other, &inner); });
  queue_->push({staging->ready(),
                [pool = pool_, other, work, call = std::move(call)] {
                  work->posted(pool->memory().call(other, call));
                },
                failing(work)},
               CallQueue::By::whoever_is_free);
  return work;
}

// NCCL must know what goes together: sends and receives wait for each other otherwise.
WorkPtr Shared::end_coalescing() {
  coalescing_ = false;
  auto batch = std::make_shared<std::vector<Member>>(std::exchange(batch_, {}));
  std::vector<WorkPtr> works;
  for (const Member& member : *batch) works.push_back(member.work);
  if (!batch->empty()) {
    const c10::Device device = batch->front().staging->device();
    const c10::DeviceGuard guard(device);
    const auto fail_all = [this, batch](std::exception_ptr error) {
      for (const Member& member : *batch) failing(member.work)(error);
    };
    queue_->push({record(streams(device).out),
                  [this, device, batch] { make_batch(device, *batch); }, fail_all},
                 CallQueue::By::thread);
  }
  return c10::make_intrusive<AllOf>(rank_, std::move(works));
}

void Shared::make_batch(c10::Device device, const std::vector<Member>& batch) {
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
WorkPtr Shared::barrier(const c10d::BarrierOptions& opts) {
  const auto index = opts.device_ids.empty()
                         ? current_device()
                         : static_cast<c10::DeviceIndex>(opts.device_ids.front());
  Tensors number{at::zeros({1}, at::TensorOptions().device(c10::Device(kDeviceType, index)))};
  c10d::AllreduceOptions options;
  options.timeout = opts.timeout;
  options.asyncOp = opts.asyncOp;
  return run({OpType::BARRIER, number, {}, !opts.asyncOp}, [=, this](Staging& staging) {
    return [inner = inner(), staged = staging.stage(number, Staging::kRead), options]() mutable {
      return inner->allreduce(staged, options);
    };
  });
}

WorkPtr Shared::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                               const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(inputs.size() == 1,
              "reduce_scatter: requires a single-element output list and one list of inputs");
  return run({OpType::REDUCE_SCATTER, inputs[0], outputs, !opts.asyncOp},
             [=, this](Staging& staging) {
               return [inner = inner(), outs = staging.stage(outputs, Staging::kWritten),
                       ins = staging.stage(inputs, Staging::kRead),
                       opts]() mutable { return inner->reduce_scatter(outs, ins, opts); };
             });
}

WorkPtr Shared::reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& opts) {
  return run({OpType::_REDUCE_SCATTER_BASE, {input}, {output}, !opts.asyncOp},
             [=, this](Staging& staging) {
               return [inner = inner(), out = staging.stage(output, Staging::kWritten),
                       in = staging.stage(input, Staging::kRead),
                       opts]() mutable { return inner->_reduce_scatter_base(out, in, opts); };
             });
}

WorkPtr Shared::reduce_scatter_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  return run(
      {OpType::_REDUCE_SCATTER_BASE, inputs, outputs, !opts.asyncOp}, [=, this](Staging& staging) {
        return [inner = inner(), outs = staging.stage(outputs, Staging::kWritten),
                ins = staging.stage(inputs, Staging::kRead),
                opts]() mutable { return inner->reduce_scatter_tensor_coalesced(outs, ins, opts); };
      });
}

}  // namespace ocl::distributed
