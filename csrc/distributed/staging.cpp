#include "distributed/staging.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "opencl/device.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::distributed {

bool is_lendable(const at::Tensor& tensor) {
  const DeviceProperties& properties = device(tensor.device().index()).properties();
  return properties.device_class == DeviceClass::cpu && properties.host_unified_memory &&
         tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor lend(const at::Tensor& tensor) {
  const auto& addresses = device(tensor.device().index()).addresses();
  auto* host = reinterpret_cast<void*>(addresses.find_host(tensor.const_data_ptr()));
  return at::from_blob(
      host, tensor.sizes(), tensor.strides(), [keep = tensor](void*) {},
      at::TensorOptions(tensor.scalar_type()).device(at::kCPU));
}

at::Tensor pinned_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(),
                   at::TensorOptions(tensor.scalar_type()).device(at::kCPU).pinned_memory(true));
}

void copy_on(c10::Stream stream, const at::Tensor& to, const at::Tensor& from) {
  // The thread that copies is not the caller's, whose mode allows it to write such a tensor.
  const c10::InferenceMode mode(to.is_inference());
  const c10::StreamGuard guard(stream);
  const at::Tensor target = to.is_inference() ? to : at::Tensor(to.variable_data());
  target.copy_(from, /*non_blocking=*/true);
}

EventPtr record(c10::Stream stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return event;
}

Staging::Staging(c10::Device device, const Streams& streams, SharedMemory* shared)
    : streams_(streams), shared_(shared), before_(record(current_stream(device.index()))) {}

at::Tensor Staging::host(const at::Tensor& tensor, Use use) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  if (shared_ != nullptr) return share(tensor, use);
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  if (is_lendable(tensor)) return lend(tensor);
  const c10::impl::VirtualGuardImpl impl(kDeviceType);
  if (!copies_) {
    before_->block(streams_->out);
    before_->block(streams_->in);  // what is written may be in use until then
    copies_ = true;
  }
  at::Tensor memory = pinned_like(tensor);
  if (use & kRead) {
    impl.recordDataPtrOnStream(tensor.storage().data_ptr(), streams_->out);
    copy_on(streams_->out, memory, tensor);
    reads_ = true;
  }
  if (use & kWritten) {
    impl.recordDataPtrOnStream(tensor.storage().data_ptr(), streams_->in);
    back_.emplace_back(tensor, memory);
  }
  return memory;
}

at::Tensor Staging::share(const at::Tensor& tensor, Use use) {
  const auto& [out, in] = *streams_;
  if (!copies_) {
    before_->block(out);
    before_->block(in);
    // Memory that calls before this one have used is handed out while it is copied from.
    record(in)->block(out);
    copies_ = reads_ = true;
  }
  const SharedMemory::Pair memory = shared_->like(tensor);
  if (tensor.numel() == 0) return memory.cuda;
  const c10::impl::VirtualGuardImpl impl(kDeviceType);
  if (use & kRead) {
    impl.recordDataPtrOnStream(tensor.storage().data_ptr(), out);
    copy_on(out, memory.ocl, tensor);
  }
  if (use & kWritten) {
    impl.recordDataPtrOnStream(tensor.storage().data_ptr(), in);
    back_.emplace_back(tensor, memory.ocl);
  }
  return memory.cuda;
}

Tensors Staging::host(const Tensors& tensors, Use use) {
  Tensors hosts;
  for (const at::Tensor& tensor : tensors) hosts.push_back(host(tensor, use));
  return hosts;
}

std::vector<Tensors> Staging::host(const std::vector<Tensors>& lists, Use use) {
  std::vector<Tensors> hosts;
  for (const Tensors& tensors : lists) hosts.push_back(host(tensors, use));
  return hosts;
}

EventPtr Staging::ready() const { return reads_ ? record(streams_->out) : before_; }

void Staging::bring_back() {
  for (auto& [device, host] : back_) copy_on(streams_->in, device, host);
  back_.clear();
}

}  // namespace ocl::distributed
