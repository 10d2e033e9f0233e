// Whether a group's large tensors travel in chunks, so that copies to and from the device overlap
// with the network. All ranks must do the same, also those whose tensors lie on the CPU.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ocl::distributed {

class Chunks {
 public:
  /// `bytes` is the size of a chunk, which must be the same on all ranks; 0: no chunks. `store` is
  /// the group's; null: no chunks.
  Chunks(c10d::Backend& inner, c10::intrusive_ptr<c10d::Store> store, int64_t bytes);

  int64_t bytes() const { return bytes_; }
  /// Whether so many bytes may be sent in chunks. All ranks give the same answer, whatever their
  /// devices are.
  bool may_apply(int64_t bytes) const { return state_ != whole && bytes > bytes_; }
  /// Whether they are, which the ranks agree on with the group's first large tensors: if one of
  /// them copies. On the queue's thread only. Throws what the inner backend does where a rank is
  /// missing.
  bool apply(bool copies);
  /// Whether it may come to chunks at all, whatever the size.
  bool possible() const { return state_ != whole; }
  /// The largest of the ranks' numbers. On the queue's thread, after apply().
  int64_t largest(int64_t mine);

 private:
  bool all_present();
  at::Tensor largest(at::Tensor mine);

  c10d::Backend& inner_;
  c10::intrusive_ptr<c10d::Store> store_;
  int64_t bytes_;
  enum State { unknown, whole, chunked };
  std::atomic<State> state_{unknown};
};

}  // namespace ocl::distributed
