#include "distributed/staging.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "opencl/ceil_div.h"
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

Staging::Staging(c10::Device device, const Streams& streams, std::shared_ptr<BlockPool> pool)
    : Staging(device, streams) {
  pool_ = std::move(pool);
}

void Staging::start_copies() {
  if (copies_) return;
  before_->block(streams_->out);
  before_->block(streams_->in);  // what is written may be in use until then
  copies_ = true;
}

/// Where in the last block there is room for as many bytes; a new one if there is none.
size_t Staging::place(size_t bytes) {
  constexpr size_t kAlign = 512;  // as what allocators give, which kernels are made for
  const size_t aligned = round_up(bytes, kAlign);
  if (blocks_.empty() || used_ + bytes > blocks_.back()->bytes) {
    blocks_.push_back(pool_->take(streams_->out.device_index(), bytes));
    if (blocks_.back()->last_use) blocks_.back()->last_use->block(streams_->out);
    used_ = 0;
  }
  return std::exchange(used_, used_ + aligned);
}

/// A tensor of the inner backend's, which has the block as long as that lives.
at::Tensor Staging::share(const at::Tensor& tensor, Use use) {
  const c10::Device other = pool_->memory().other(tensor.device().index());
  const auto view = [&](void* address, c10::Device where, const auto& block) {
    return at::for_blob(address, tensor.sizes())
        .deleter([block](void*) {})
        .options(at::TensorOptions(tensor.scalar_type()).device(where))
        .target_device(where)
        .make_tensor();
  };
  if (tensor.numel() == 0) return view(nullptr, other, nullptr);
  start_copies();
  const size_t offset = place(tensor.nbytes());
  const auto& block = blocks_.back();
  const at::Tensor ours = view(block->ours + offset, tensor.device(), block);
  reads_ = true;  // an earlier call's copies from the block end before it is written, too
  if (use & kRead) copy_on(streams_->out, ours, tensor);
  if (use & kWritten) back_.emplace_back(tensor, ours);
  const c10::impl::VirtualGuardImpl impl(kDeviceType);
  const auto& memory = tensor.storage().data_ptr();
  if (use & kRead) impl.recordDataPtrOnStream(memory, streams_->out);
  if (use & kWritten) impl.recordDataPtrOnStream(memory, streams_->in);
  return view(block->theirs + offset, other, block);
}

at::Tensor Staging::host(const at::Tensor& tensor, Use use) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  if (pool_) return share(tensor, use);
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  if (is_lendable(tensor)) return lend(tensor);
  const c10::impl::VirtualGuardImpl impl(kDeviceType);
  start_copies();
  at::Tensor memory = pinned_.emplace_back(pinned_like(tensor));
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
  for (auto& [device, from] : back_) copy_on(streams_->in, device, from);
  if (!blocks_.empty() && !back_.empty()) {
    const EventPtr done = record(streams_->in);
    for (const auto& block : blocks_) block->last_use = done;
  }
  back_.clear();
  blocks_.clear();
  for (const at::Tensor& memory : pinned_) release(memory);
  pinned_.clear();
}

}  // namespace ocl::distributed
