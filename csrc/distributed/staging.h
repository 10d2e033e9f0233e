// How the inner backend, which knows the host's memory only, or CUDA's, gets at a call's tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "distributed/shared_memory.h"
#include "distributed/work.h"

namespace ocl::distributed {

/// Streams for copies of a group's calls: they overlap with what the program computes.
struct Streams {
  c10::Stream out, in;  // device to host, host to device
};

/// Whether the host may read and write the tensor's own memory: that of a CPU device is the
/// process's. Only contiguous tensors: of others ranks may have different layouts.
bool is_lendable(const at::Tensor& tensor);
/// A CPU tensor with the memory of such a tensor, which it keeps alive.
at::Tensor lend(const at::Tensor& tensor);
/// Pinned memory for a tensor's elements, in their logical order.
at::Tensor pinned_like(const at::Tensor& tensor);
/// Gives the memory of pinned_like() back, whoever has the tensor still: the inner backend's works
/// have it as long as the program has them. What is enqueued goes on.
void release(const at::Tensor& pinned);
/// Copies on the stream, without waiting. Results of a collective have no version to count up.
void copy_on(c10::Stream stream, const at::Tensor& to, const at::Tensor& from);

using EventPtr = std::shared_ptr<c10::Event>;
/// What is enqueued on the stream so far.
EventPtr record(c10::Stream stream);

/// One call's tensors on the inner backend's side: lent, or copied to pinned or shared memory and
/// back. Tensors of other devices are taken as they are.
class Staging {
 public:
  enum Use { kRead = 1, kWritten = 2, kBoth = 3 };

  /// Of a call on CPU tensors.
  Staging() = default;
  /// Of a call on tensors of a device: the host uses them after what the current stream has so far.
  Staging(c10::Device device, const Streams& streams);
  /// The same through shared memory: all copies stay on the device.
  Staging(c10::Device device, const Streams& streams, std::shared_ptr<BlockPool> pool);

  at::Tensor host(const at::Tensor& tensor, Use use);
  Tensors host(const Tensors& tensors, Use use);
  std::vector<Tensors> host(const std::vector<Tensors>& lists, Use use);

  /// Of a call on tensors of a device.
  c10::Device device() const { return streams_->out.device(); }
  /// The stream that was current when the call was made.
  c10::Stream callers_stream() const { return *callers_stream_; }
  /// What the host waits for before it uses them; null: nothing. Call it after all of host().
  EventPtr ready() const;
  /// Enqueues the copies back, on the stream for them, and gives pinned memory back.
  void bring_back();

 private:
  void start_copies();
  at::Tensor share(const at::Tensor& tensor, Use use);
  size_t place(size_t bytes);

  std::optional<Streams> streams_;
  std::optional<c10::Stream> callers_stream_;
  EventPtr before_;
  std::shared_ptr<BlockPool> pool_;
  std::vector<std::shared_ptr<SharedBlock>> blocks_;  // small tensors share the last one
  size_t used_ = 0;                                   // bytes of the last one
  bool copies_ = false, reads_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;  // device, what it gets
  Tensors pinned_;
};

}  // namespace ocl::distributed
