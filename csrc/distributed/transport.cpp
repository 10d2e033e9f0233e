#include "distributed/transport.h"

#include <c10/core/StreamGuard.h>

#include "runtime/stream.h"

namespace ocl::distributed {

std::optional<c10::Device> device_of(const Request& request) {
  std::optional<c10::Device> first;
  bool several = false, ours = false;
  for (const Tensors* tensors : {&request.inputs, &request.outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined()) continue;
      if (!first) first = tensor.device();
      several |= tensor.device() != *first;
      ours |= tensor.device().type() == kDeviceType;
    }
  }
  TORCH_CHECK(!several || !ours, c10d::opTypeToString(request.type),
              ": expected all tensors to be on the same device");
  return ours ? first : std::nullopt;
}

Transport::Transport(Inner inner)
    : inner_(std::move(inner)), rank_(inner_->getRank()), size_(inner_->getSize()) {}

std::unique_ptr<Transport> Transport::split(const c10::intrusive_ptr<c10d::Store>&,
                                            const std::vector<int>&,
                                            const c10::intrusive_ptr<c10d::Backend::Options>&) {
  TORCH_CHECK(false, inner_->getBackendName(),
              " can't split a group of ocl tensors; use new_group()");
}

WorkPtr Transport::run_rows(const Request& request, const RowsRequest&, const RowsCall&,
                            const Prepare& prepare) {
  return run(request, prepare);
}

WorkPtr Transport::allgather_uneven(const Request& request, const c10d::AllgatherOptions&,
                                    const Prepare& prepare) {
  return run(request, prepare);
}

WorkPtr Transport::allreduce_sparse(const at::Tensor&, const c10d::AllreduceOptions&) {
  TORCH_CHECK(false, "all_reduce: ", inner_->getBackendName(),
              " takes no sparse tensors of ocl; a group of gloo does");
}

Streams& Transport::streams(c10::Device device) {
  std::lock_guard lock(streams_mutex_);
  auto& slot = streams_[device.index()];
  if (!slot) {
    slot.emplace(
        Streams{stream_from_pool(device.index(), -1), stream_from_pool(device.index(), -1)});
  }
  return *slot;
}

c10::intrusive_ptr<Work> Transport::make_work(const Request& request,
                                              std::optional<c10::Device> device) {
  std::vector<c10::Device> devices;
  if (device) devices.push_back(*device);
  return c10::make_intrusive<Work>(rank_, request.type, request.outputs, devices, ++number_);
}

c10::intrusive_ptr<PointToPoint> Transport::make_point_to_point(
    const Request& request, std::optional<c10::Device> device,
    const std::shared_ptr<Staging>& staging) {
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
  return work;
}

std::function<void()> Transport::arrival(const Request& request,
                                         const std::shared_ptr<Staging>& staging,
                                         const c10::intrusive_ptr<Work>& work) {
  return [work, staging, in = streams(staging->device()).in, finish = request.finish] {
    const at::NoGradGuard no_grad;
    const c10::StreamGuard on(in);
    staging->bring_back();
    if (finish) finish();
    work->complete();
  };
}

std::function<void(std::exception_ptr)> Transport::failing(
    const c10::intrusive_ptr<Work>& work) const {
  return [failed = failed_, work](std::exception_ptr error) {
    *failed = true;
    work->fail(error);
  };
}

}  // namespace ocl::distributed
