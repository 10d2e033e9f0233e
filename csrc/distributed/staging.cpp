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

void release(const at::Tensor& pinned) { pinned.storage().unsafeGetStorageImpl()->reset(); }

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

Staging::Staging(c10::Device device, const Streams& streams)
    : streams_(streams),
      callers_stream_(current_stream(device.index())),
      before_(record(*callers_stream_)) {}

void Staging::start_copies() {
  if (copies_) return;
  before_->block(streams_->out);
  before_->block(streams_->in);  // what is written may be in use until then
  copies_ = true;
}

void Staging::copy_through(const at::Tensor& tensor, const at::Tensor& ours, Use use) {
  const c10::impl::VirtualGuardImpl impl(kDeviceType);
  const auto& memory = tensor.storage().data_ptr();
  if (use & kRead) {
    impl.recordDataPtrOnStream(memory, streams_->out);
    copy_on(streams_->out, ours, tensor);
    reads_ = true;
  }
  if (use & kWritten) {
    impl.recordDataPtrOnStream(memory, streams_->in);
    back_.emplace_back(tensor, ours);
  }
}

at::Tensor Staging::stage(const at::Tensor& tensor, Use use) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  return stage_ours(tensor, use);
}

Tensors Staging::stage(const Tensors& tensors, Use use) {
  Tensors staged;
  for (const at::Tensor& tensor : tensors) staged.push_back(stage(tensor, use));
  return staged;
}

std::vector<Tensors> Staging::stage(const std::vector<Tensors>& lists, Use use) {
  std::vector<Tensors> staged;
  for (const Tensors& tensors : lists) staged.push_back(stage(tensors, use));
  return staged;
}

EventPtr Staging::ready() const { return reads_ ? record(streams_->out) : before_; }

void Staging::bring_back() {
  for (auto& [device, from] : back_) copy_on(streams_->in, device, from);
  back_.clear();
}

}  // namespace ocl::distributed
