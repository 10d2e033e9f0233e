#include "distributed/backend.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/ScopeExit.h>
#include <pybind11/pybind11.h>

#include <tuple>
#include <unordered_set>

#include "distributed/follow.h"
#include "runtime/stream.h"

namespace ocl::distributed {
namespace {

/// The device of a call's tensors; none for CPU tensors and for a call without any. Throws
/// c10::Error if they are not all on one.
std::optional<c10::Device> device_of(c10d::OpType type, const Tensors& inputs,
                                     const Tensors& outputs) {
  std::optional<c10::Device> first;
  bool several = false, ours = false;
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined()) continue;
      if (!first) first = tensor.device();
      several |= tensor.device() != *first;
      ours |= tensor.device().type() == kDeviceType;
    }
  }
  TORCH_CHECK(!several || !ours, c10d::opTypeToString(type),
              ": expected all tensors to be on the same device");
  return ours ? first : std::nullopt;
}

// As many chunks have pinned memory at a time.
constexpr int64_t kInFlight = 6;
constexpr int64_t kUsualChunk = 8 << 20;

int64_t most_pinned(int64_t chunk) { return kInFlight * (chunk > 0 ? chunk : kUsualChunk); }

/// Bytes of pinned memory that Staging gets for a call.
int64_t pinned_bytes(std::initializer_list<const Tensors*> lists) {
  int64_t bytes = 0;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const Tensors* tensors : lists) {
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined() || !tensor.is_privateuseone() || tensor.layout() != at::kStrided) {
        continue;
      }
      if (!is_lendable(tensor) && seen.insert(tensor.unsafeGetTensorImpl()).second) {
        bytes += static_cast<int64_t>(tensor.nbytes());
      }
    }
  }
  return bytes;
}

}  // namespace

Backend::Backend(Ptr inner, c10::intrusive_ptr<c10d::Store> store, int64_t chunk)
    : Base(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      chunks_(*inner_, std::move(store), chunk),
      pinned_(std::make_shared<PinnedBudget>(most_pinned(chunk))) {
  init();
}

Backend::Backend(Ptr inner, std::shared_ptr<BlockPool> pool)
    : Base(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      pool_(std::move(pool)),
      chunks_(*inner_, nullptr, 0) {
  init();
}

// Threads end here that may have to call Python first.
Backend::~Backend() {
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() && PyGILState_Check()) released.emplace();
  transfers_.reset();
  queue_.reset();
  coalesced_.clear();
  batch_.clear();
  inner_.reset();
  if (pool_) pool_->close();
}

void Backend::setGroupUid(const std::string& uid) {
  Base::setGroupUid(uid);
  inner_->setGroupUid(uid);
}

c10d::ErrorType Backend::getError() {
  return *failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void Backend::shutdown() {
  queue_->drain();
  transfers_->drain();
  inner_->shutdown();
  if (pool_) pool_->close();
}

// One backend serves the CPU's tensors, too, so upstream asks twice for a new group: the second
// time it gets the same. The inner backend wants options of its own kind: they are its own, with
// the new group's values as long as the call takes.
Backend::Ptr Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                            const std::vector<int>& ranks,
                            const c10::intrusive_ptr<Base::Options>& opts) {
  TORCH_CHECK(!pool_, getBackendName(), " can't split a group of ocl tensors; use new_group()");
  if (Ptr same = last_split_.lock(); same && opts && same->getGroupUid() == opts->group_name) {
    return same;
  }
  queue_->drain();
  transfers_->drain();
  const auto options = inner_->getBackendOptions();
  const auto before =
      std::make_tuple(options->timeout, options->group_name, options->global_ranks_in_group);
  const auto guard = c10::make_scope_exit([&] {
    std::tie(options->timeout, options->group_name, options->global_ranks_in_group) = before;
  });
  if (opts && opts != options) {
    options->timeout = opts->timeout;
    options->group_name = opts->group_name;
    options->global_ranks_in_group = opts->global_ranks_in_group;
  }
  const Ptr inner = inner_->split(store, ranks, options);
  if (!inner) return inner;
  Ptr made = c10::make_intrusive<Backend>(inner, store, chunks_.bytes());
  made->setGroupUid(options->group_name);
  last_split_ = c10::weak_intrusive_ptr<Base>(made);
  return made;
}

void Backend::startCoalescing() {
  coalesced_.clear();
  coalescing_ = true;
}

WorkPtr Backend::endCoalescing() {
  coalescing_ = false;
  if (pool_) return run_batch();
  return c10::make_intrusive<AllOf>(rank_, std::exchange(coalesced_, {}));
}

WorkPtr Backend::keep(WorkPtr work) {
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

Streams& Backend::streams(c10::Device device) {
  std::lock_guard lock(streams_mutex_);
  auto& slot = streams_[device.index()];
  if (!slot) {
    slot.emplace(
        Streams{stream_from_pool(device.index(), -1), stream_from_pool(device.index(), -1)});
  }
  return *slot;
}

c10::intrusive_ptr<Work> Backend::make_work(const Request& request,
                                            std::optional<c10::Device> device) {
  std::vector<c10::Device> devices;
  if (device) devices.push_back(*device);
  return c10::make_intrusive<Work>(rank_, request.type, request.outputs, devices, ++number_);
}

std::function<void(std::exception_ptr)> Backend::failing(
    const c10::intrusive_ptr<Work>& work) const {
  return [failed = failed_, work](std::exception_ptr error) {
    *failed = true;
    work->fail(error);
  };
}

void Backend::push(CallQueue::Call call, bool synchronous, std::unique_lock<std::mutex> order) {
  // What is coalesced is waited for at the end.
  const bool at_once = synchronous && !coalescing_;
  // With shared memory a call takes until the work is done.
  const auto otherwise = pool_ ? CallQueue::By::thread : CallQueue::By::whoever_is_free;
  queue_->push(std::move(call), at_once ? CallQueue::By::caller : otherwise, std::move(order));
}

/// A call for CPU tensors, if all earlier ones were made.
bool Backend::make_at_once(CallQueue& queue, WorkPtr& inner, const InnerCall& call) {
  if (!queue.try_now([&] { inner = call(); })) return false;
  ++at_once_;
  return true;
}

WorkPtr Backend::run_on_cpu(const Request& request, const InnerCall& call) {
  WorkPtr inner;
  if (make_at_once(*queue_, inner, call)) return keep(std::move(inner));
  const auto work = make_work(request, std::nullopt);
  const auto failed = failing(work);
  push({nullptr,
        [work, call, failed] {
          const WorkPtr inner = call();
          work->posted(inner);
          follow(inner, [work] { work->complete(); }, failed);
        },
        failed},
       false);
  return keep(work);
}

std::shared_ptr<Staging> Backend::stage(c10::Device device) {
  if (pool_) return std::make_shared<Staging>(device, streams(device), pool_);
  return std::make_shared<Staging>(device, streams(device));
}

WorkPtr Backend::run(const Request& request, const Prepare& prepare) {
  const auto device = device_of(request.type, request.inputs, request.outputs);
  if (!device) {
    check_takes_cpu_tensors();
    Staging none;
    return run_on_cpu(request, prepare(none));
  }
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);  // the copies are written by threads in no such mode
  const c10::DeviceGuard guard(*device);
  PinnedBudget::Turn turn;
  if (!pool_) turn = pinned_->enter(pinned_bytes({&request.inputs, &request.results()}));
  const auto staging = stage(*device);
  if (turn.behind) {
    return run_behind(request, prepare, staging, std::move(turn));
  }
  InnerCall call = prepare(*staging);
  const auto work = make_work(request, device);
  const auto failed = failing(work);
  auto arrived = arrival(request, staging, work, std::move(turn.share));
  if (pool_ && coalescing_) {
    batch_.push_back({std::move(call), staging, work, std::move(arrived)});
    return work;
  }
  push({staging->ready(),
        [this, device = *device, work, call = std::move(call), arrived = std::move(arrived), failed,
         staging, waited_for = request.synchronous] {
          if (pool_) {
            if (!waited_for) wait_for_device(*staging, [&] { return work->asked_for(); });
            make_through_blocks(device, call, *work);
            return conclude(arrived, failed);
          }
          const WorkPtr inner = call();
          work->posted(inner);
          follow(inner, arrived, failed);
        },
        failed},
       request.synchronous, std::move(turn.order));
  return keep(work);
}

/// What a call's end does.
std::function<void()> Backend::arrival(const Request& request,
                                       const std::shared_ptr<Staging>& staging,
                                       const c10::intrusive_ptr<Work>& work,
                                       PinnedBudget::SharePtr pinned) {
  return [work, staging, pinned = std::move(pinned), both = streams(staging->device()),
          finish = request.finish] {
    const at::NoGradGuard no_grad;
    const c10::StreamGuard on(both.in);
    staging->bring_back();
    if (pinned) pinned->give_back({record(both.in), record(both.out)});
    if (finish) finish();
    work->complete();
  };
}

// The program doesn't wait for pinned memory: others may need what it calls next. Its tensors are
// copied once the queue gets there.
WorkPtr Backend::run_behind(const Request& request, const Prepare& prepare,
                            const std::shared_ptr<Staging>& staging, PinnedBudget::Turn turn) {
  const auto work = make_work(request, staging->device());
  const auto failed = failing(work);
  auto make = [this, request, prepare, staging, work, failed,
               behind = std::move(turn.behind)]() mutable {
    const c10::DeviceGuard guard(staging->device());
    auto pinned = pinned_->take(pinned_bytes({&request.inputs, &request.results()}));
    behind.reset();
    const InnerCall call = prepare(*staging);
    staging->ready()->synchronize();
    const WorkPtr inner = call();
    work->posted(inner);
    follow(inner, arrival(request, staging, work, std::move(pinned)), failed);
  };
  queue_->push({nullptr, std::move(make), failed}, CallQueue::By::thread, std::move(turn.order));
  return keep(work);
}

WorkPtr Backend::run_point_to_point(const Request& request, const Prepare& prepare) {
  if (pool_ && coalescing_) return run(request, prepare);  // it ends with the others
  CallQueue& queue = pool_ ? *queue_ : *transfers_;
  const auto device = device_of(request.type, request.inputs, request.outputs);
  Staging none;
  if (!device) {
    check_takes_cpu_tensors();
    WorkPtr inner;
    const InnerCall call = prepare(none);
    if (make_at_once(queue, inner, call)) return keep(std::move(inner));
  }
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  std::optional<c10::DeviceGuard> guard;
  if (device) guard.emplace(*device);
  const auto staging = device ? stage(*device) : std::make_shared<Staging>();
  InnerCall call = prepare(*staging);
  std::vector<c10::Device> devices;
  if (device) devices.push_back(*device);
  const auto work =
      c10::make_intrusive<PointToPoint>(rank_, request.type, request.outputs, devices, ++number_);
  if (device) {
    const c10::Stream in = streams(*device).in;
    work->on_arrival([staging, in, device = *device] {
      const at::NoGradGuard no_grad;
      staging->bring_back();
      // The waiting thread's stream, which is current, goes on after the copies.
      record(in)->block(current_stream(device.index()));
    });
  }
  if (pool_) {
    work->on_wait([pool = pool_, other = other_side(*device)](c10d::Work& inner) {
      pool->memory().finish(other, &inner);
    });
  }
  auto make = [this, device, work, call = std::move(call)] {
    work->posted(pool_ ? pool_->memory().call(other_side(*device), call) : call());
  };
  queue.push({staging->ready(), std::move(make), failing(work)}, CallQueue::By::whoever_is_free);
  return keep(work);
}

}  // namespace ocl::distributed
