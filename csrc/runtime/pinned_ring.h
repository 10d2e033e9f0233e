// Pinned host memory that copies go through in pieces (pipelining, double buffering).
#pragma once

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>

#include "opencl/ceil_div.h"
#include "opencl/event.h"
#include "runtime/host_allocator.h"

namespace ocl {

// A piece takes a device as long as a few launches. There is a slot for each thread that copies,
// and one on its way.
inline constexpr size_t kPiece = size_t{2} << 20, kSlots = 16;
// Threads that are worth waking: eight copy at the pace of a bus.
inline constexpr size_t kMostThreads = 8;

/// Pinned memory for kSlots pieces at a time. A slot is free again when its event is complete.
class PinnedRing {
 public:
  struct Slot {
    c10::DataPtr memory;
    Event event;
    std::atomic<size_t> turn{0};  // pieces that have been here
    char* data() { return static_cast<char*>(memory.get()); }
  };

  explicit PinnedRing(size_t bytes) : pieces_(ceil_div(bytes, kPiece)), bytes_(bytes) {
    for (size_t i = 0; i < std::min(pieces_, kSlots); ++i) {
      slots_[i].memory = pinned_allocator()->allocate(std::min(bytes, kPiece));
    }
  }
  /// An error leaves copies under way: their memory must outlive them.
  ~PinnedRing() {
    for (Slot& slot : slots_) {
      try {
        slot.event.synchronize();
      } catch (...) {  // the device failed, which whoever waits for results is told
      }
    }
  }
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  size_t pieces() const { return pieces_; }
  static size_t begin(size_t piece) { return piece * kPiece; }
  size_t size(size_t piece) const { return std::min(kPiece, bytes_ - begin(piece)); }
  Slot& slot(size_t piece) { return slots_[piece % kSlots]; }

  /// Calls body(piece) for all of them, in several threads. Each takes the next one, and waits
  /// until the piece before it has left its slot. Raises what the first one raised.
  template <class Body>
  void share_out(const Body& body) {
    const auto work = std::make_shared<Work>();
    work->left = pieces_;
    // A thread that comes too late finds no piece left, and touches neither the ring nor the body.
    const auto run = [this, &body, work, pieces = pieces_] {
      for (size_t i = work->next++; i < pieces; i = work->next++) {
        Slot& own = slot(i);
        for (size_t now = own.turn; now != i / kSlots; now = own.turn) own.turn.wait(now);
        if (!work->failed) work->attempt([&] { body(i); });
        ++own.turn;
        own.turn.notify_all();
        if (--work->left == 0) work->left.notify_all();
      }
    };
    const size_t threads =
        std::min({pieces_, kMostThreads, static_cast<size_t>(at::get_num_threads())});
    for (size_t i = 1; i < threads; ++i) at::launch(run);
    run();
    for (size_t now = work->left; now != 0; now = work->left) work->left.wait(now);
    if (work->error) std::rethrow_exception(work->error);
  }

 private:
  struct Work {
    template <class Function>
    void attempt(const Function& function) {
      try {
        function();
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
    std::atomic<size_t> next{0}, left{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
  };

  size_t pieces_, bytes_;
  std::array<Slot, kSlots> slots_;
};

}  // namespace ocl
