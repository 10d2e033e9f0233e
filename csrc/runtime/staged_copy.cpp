#include "runtime/staged_copy.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>

#include "opencl/ceil_div.h"
#include "opencl/event.h"
#include "runtime/host_allocator.h"

namespace ocl {

namespace {

// A piece takes a device as long as a few launches. There is a slot for each thread that copies,
// and one on its way.
constexpr size_t kPiece = size_t{2} << 20, kSlots = 16;
constexpr size_t kLeastBytes = size_t{8} << 20;
// Threads that are worth waking: eight copy at the pace of a bus.
constexpr size_t kMostThreads = 8;

/// Pinned memory for kSlots pieces at a time. A slot is free again when its event is complete.
class Ring {
 public:
  struct Slot {
    c10::DataPtr memory;
    Event event;
    std::atomic<size_t> turn{0};  // pieces that have been here
    char* data() { return static_cast<char*>(memory.get()); }
  };

  explicit Ring(size_t bytes) : pieces_(ceil_div(bytes, kPiece)), bytes_(bytes) {
    for (size_t i = 0; i < std::min(pieces_, kSlots); ++i) {
      slots_[i].memory = pinned_allocator()->allocate(std::min(bytes, kPiece));
    }
  }
  /// An error leaves copies under way: their memory must outlive them.
  ~Ring() {
    for (Slot& slot : slots_) {
      try {
        slot.event.synchronize();
      } catch (...) {  // the device failed, which whoever waits for results is told
      }
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

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

char* advance(void* address, size_t bytes) { return static_cast<char*>(address) + bytes; }
const char* advance(const void* address, size_t bytes) {
  return static_cast<const char*>(address) + bytes;
}

}  // namespace

bool takes_staged_copy(const Device& device, size_t bytes) {
  return !device.is_cpu() && !device.properties().host_unified_memory && bytes >= kLeastBytes;
}

// at::parallel_for() is serial in libraries that are built without OpenMP, and linking OpenMP's
// library would bring a second one next to torch's: share_out() takes torch's other threads.
void staged_write(Queue& queue, void* address, const void* source, size_t bytes) {
  Ring ring(bytes);
  ring.share_out([&](size_t i) {
    Ring::Slot& slot = ring.slot(i);
    slot.event.synchronize();
    std::memcpy(slot.data(), advance(source, Ring::begin(i)), ring.size(i));
    queue.write(advance(address, Ring::begin(i)), slot.data(), ring.size(i), false);
    slot.event.record(queue);
    queue.flush();
  });
}

void staged_read(Queue& queue, void* destination, const void* address, size_t bytes) {
  Ring ring(bytes);
  const auto start = [&](size_t i) {
    Ring::Slot& slot = ring.slot(i);
    queue.read(slot.data(), advance(address, Ring::begin(i)), ring.size(i), false);
    slot.event.record(queue);
    queue.flush();
  };
  for (size_t i = 0; i < std::min(ring.pieces(), kSlots); ++i) start(i);
  ring.share_out([&](size_t i) {
    Ring::Slot& slot = ring.slot(i);
    slot.event.synchronize();
    std::memcpy(advance(destination, Ring::begin(i)), slot.data(), ring.size(i));
    if (i + kSlots < ring.pieces()) start(i + kSlots);
  });
}

void staged_copy(Queue& to, void* destination, Queue& from, const void* source, size_t bytes) {
  Ring ring(bytes);
  // Reads run ahead by half of the ring; the other half is being written.
  constexpr size_t kAhead = kSlots / 2;
  const auto start = [&](size_t i) {
    Ring::Slot& slot = ring.slot(i);
    slot.event.synchronize();
    from.read(slot.data(), advance(source, Ring::begin(i)), ring.size(i), false);
    slot.event.record(from);
    from.flush();
  };
  for (size_t i = 0; i < std::min(ring.pieces(), kAhead); ++i) start(i);
  for (size_t i = 0; i < ring.pieces(); ++i) {
    Ring::Slot& slot = ring.slot(i);
    slot.event.synchronize();
    to.write(advance(destination, Ring::begin(i)), slot.data(), ring.size(i), false);
    slot.event.record(to);
    to.flush();
    if (i + kAhead < ring.pieces()) start(i + kAhead);
  }
}

}  // namespace ocl
