// How the inner backend, which knows the host's memory only, or CUDA's, gets at a call's tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

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
/// An event behind all that is enqueued on the stream so far.
EventPtr record(c10::Stream stream);

/// One call's tensors on the inner backend's side, and the way back. Each transport has its own.
/// Tensors of other devices are taken as they are.
class Staging {
 public:
  enum Use { kRead = 1, kWritten = 2, kBoth = 3 };

  virtual ~Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// The inner backend's tensor for one of the call's.
  at::Tensor stage(const at::Tensor& tensor, Use use);
  Tensors stage(const Tensors& tensors, Use use);
  std::vector<Tensors> stage(const std::vector<Tensors>& lists, Use use);

  /// The device of a call that has one.
  c10::Device device() const { return streams_->out.device(); }
  /// The stream that was current when the call was made.
  c10::Stream callers_stream() const { return *callers_stream_; }
  /// The event that the host waits for before it uses them; null if there is none. Call it after
  /// all of stage().
  EventPtr ready() const;
  /// Enqueues the copies back, on the stream for them, and gives memory back.
  virtual void bring_back();

 protected:
  /// For a call on CPU tensors.
  Staging() = default;
  /// For a call on a device's tensors: they are used after what the current stream has so far.
  Staging(c10::Device device, const Streams& streams);

  virtual at::Tensor stage_ours(const at::Tensor& tensor, Use use) = 0;
  /// Orders the streams for copies behind the caller's.
  void start_copies();
  /// Has the inner backend's memory, of which `ours` is our tensor, filled and copied back.
  void copy_through(const at::Tensor& tensor, const at::Tensor& ours, Use use);

  std::optional<Streams> streams_;
  bool reads_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;  // device, what it gets

 private:
  std::optional<c10::Stream> callers_stream_;
  EventPtr before_;
  bool copies_ = false;
};

}  // namespace ocl::distributed
