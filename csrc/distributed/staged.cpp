#include "distributed/staged.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>

#include <tuple>
#include <unordered_set>

#include "distributed/follow.h"

namespace ocl::distributed {
namespace {

// As many chunks have pinned memory at a time.
constexpr int64_t kInFlight = 6;

int64_t most_pinned(int64_t chunk) { return kInFlight * (chunk > 0 ? chunk : Staged::kUsualChunk); }

/// Bytes of pinned memory that HostStaging gets for a call.
int64_t pinned_bytes(const Request& request) {
  int64_t bytes = 0;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const Tensors* tensors : {&request.inputs, &request.results()}) {
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

Staged::Staged(Inner inner, c10::intrusive_ptr<c10d::Store> store, int64_t chunk)
    : Transport(std::move(inner)),
      chunks_(*inner_, std::move(store), chunk),
      pinned_(std::make_shared<PinnedBudget>(most_pinned(chunk))) {}

Staged::~Staged() {
  transfers_.reset();
  stop();
}

void Staged::shutdown() {
  queue_->drain();
  transfers_->drain();
  inner_->shutdown();
}

// The inner backend wants options of its own kind: they are its own, with the new group's values as
// long as the call takes.
std::unique_ptr<Transport> Staged::split(const c10::intrusive_ptr<c10d::Store>& store,
                                         const std::vector<int>& ranks,
                                         const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
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
  Inner inner = inner_->split(store, ranks, options);
  if (!inner) return nullptr;
  return std::make_unique<Staged>(std::move(inner), store, chunks_.bytes());
}

void Staged::start_coalescing() {
  coalesced_.clear();
  Transport::start_coalescing();
}

WorkPtr Staged::end_coalescing() {
  coalescing_ = false;
  return c10::make_intrusive<AllOf>(rank_, std::exchange(coalesced_, {}));
}

WorkPtr Staged::keep(WorkPtr work) {
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

bool Staged::make_at_once(CallQueue& queue, WorkPtr& inner, const InnerCall& call) {
  if (!queue.try_now([&] { inner = call(); })) return false;
  ++at_once_;
  return true;
}

WorkPtr Staged::run_on_cpu(const Request& request, const InnerCall& call) {
  WorkPtr inner;
  if (make_at_once(*queue_, inner, call)) return keep(std::move(inner));
  const auto work = make_work(request, std::nullopt);
  const auto failed = failing(work);
  queue_->push({nullptr,
                [work, call, failed] {
                  const WorkPtr inner = call();
                  work->posted(inner);
                  follow(inner, [work] { work->complete(); }, failed);
                },
                failed},
               CallQueue::By::whoever_is_free);
  return keep(work);
}

WorkPtr Staged::run(const Request& request, const Prepare& prepare) {
  const auto device = device_of(request);
  if (!device) {
    HostStaging none;
    return run_on_cpu(request, prepare(none));
  }
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);  // the copies are written by threads in no such mode
  const c10::DeviceGuard guard(*device);
  PinnedBudget::Turn turn = pinned_->enter(pinned_bytes(request));
  const auto staging = std::make_shared<HostStaging>(*device, streams(*device));
  if (turn.behind) return run_behind(request, prepare, staging, std::move(turn));
  staging->set_share(std::move(turn.share));
  InnerCall call = prepare(*staging);
  const auto work = make_work(request, device);
  const auto failed = failing(work);
  // Coalesced calls are waited for at the end.
  const bool at_once = request.synchronous && !coalescing_;
  queue_->push({staging->ready(),
                [work, call = std::move(call), arrived = arrival(request, staging, work), failed] {
                  const WorkPtr inner = call();
                  work->posted(inner);
                  follow(inner, arrived, failed);
                },
                failed},
               at_once ? CallQueue::By::caller : CallQueue::By::whoever_is_free,
               std::move(turn.order));
  return keep(work);
}

// The program doesn't wait for pinned memory: others may need what it calls next. Its tensors are
// copied once the queue gets there.
WorkPtr Staged::run_behind(const Request& request, const Prepare& prepare,
                           const std::shared_ptr<HostStaging>& staging, PinnedBudget::Turn turn) {
  const auto work = make_work(request, staging->device());
  const auto failed = failing(work);
  auto make = [this, request, prepare, staging, work, failed,
               behind = std::move(turn.behind)]() mutable {
    const c10::DeviceGuard guard(staging->device());
    staging->set_share(pinned_->take(pinned_bytes(request)));
    behind.reset();
    const InnerCall call = prepare(*staging);
    staging->ready()->synchronize();
    const WorkPtr inner = call();
    work->posted(inner);
    follow(inner, arrival(request, staging, work), failed);
  };
  queue_->push({nullptr, std::move(make), failed}, CallQueue::By::thread, std::move(turn.order));
  return keep(work);
}

WorkPtr Staged::run_point_to_point(const Request& request, const Prepare& prepare) {
  const auto device = device_of(request);
  if (!device) {
    HostStaging none;
    WorkPtr inner;
    const InnerCall call = prepare(none);
    if (make_at_once(*transfers_, inner, call)) return keep(std::move(inner));
  }
  const at::NoGradGuard no_grad;
  const c10::InferenceMode off(false);
  std::optional<c10::DeviceGuard> guard;
  if (device) guard.emplace(*device);
  const auto staging = device ? std::make_shared<HostStaging>(*device, streams(*device))
                              : std::make_shared<HostStaging>();
  InnerCall call = prepare(*staging);
  const auto work = make_point_to_point(request, device, staging);
  auto make = [work, call = std::move(call)] { work->posted(call()); };
  transfers_->push({staging->ready(), std::move(make), failing(work)},
                   CallQueue::By::whoever_is_free);
  return keep(work);
}

WorkPtr Staged::barrier(const c10d::BarrierOptions& opts) {
  return run({c10d::OpType::BARRIER, {}, {}, !opts.asyncOp}, [=, this](Staging&) {
    return [inner = inner(), opts] { return inner->barrier(opts); };
  });
}

// Its elements and indices are put together on the host, as the inner backend does it.
WorkPtr Staged::allreduce_sparse(const at::Tensor& tensor, const c10d::AllreduceOptions& opts) {
  const at::NoGradGuard no_grad;
  Tensors hosts{tensor.to(at::kCPU)};
  Request request{c10d::OpType::_ALLREDUCE_SPARSE, {}, {tensor}, !opts.asyncOp};
  request.finish = [tensor, host = hosts[0]] {
    at::Tensor(tensor).copy_(host.to(tensor.device()));
  };
  return run(request, [=, this](Staging&) {
    return [inner = inner(), hosts, opts]() mutable { return inner->allreduce(hosts, opts); };
  });
}

}  // namespace ocl::distributed
