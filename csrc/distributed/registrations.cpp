// The functions that torch.distributed asks of a device beside its backend.
#include <torch/library.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "distributed/work.h"
#include "runtime/stream.h"

namespace ocl::distributed {
namespace {

/// DistributedDataParallel's times (ddp_logging_data): when the host came to a point, as on CPUs.
class Timer final : public c10d::Timer {
 public:
  explicit Timer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const int64_t from = getTimeRef(start), to = getTimeRef(end);
    if (from == c10d::kUnsetTime || to < from) return std::nullopt;
    return to - from;
  }
};

// Upstream sends sparse tensors of the devices in a list of its own to the group's backend.
std::tuple<Tensors, WorkPtr> allreduce_sparse(at::TensorList tensors,
                                              const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                              const c10::intrusive_ptr<c10d::ReduceOp>& op,
                                              const std::optional<at::Tensor>&, bool async_op,
                                              int64_t timeout) {
  Tensors all = tensors.vec();
  c10d::AllreduceOptions options;
  options.reduceOp = *op;
  options.timeout = std::chrono::milliseconds(timeout);
  options.asyncOp = async_op;
  WorkPtr work = group->getBackend(kDeviceType)->allreduce(all, options);
  return {std::move(all), std::move(work)};
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) { m.impl("allreduce_", allreduce_sparse); }

}  // namespace
}  // namespace ocl::distributed

namespace c10d {
namespace {
using OclTimer = ocl::distributed::Timer;
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, OclTimer)
}  // namespace
}  // namespace c10d
