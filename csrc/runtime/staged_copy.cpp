#include "runtime/staged_copy.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "opencl/event.h"
#include "runtime/host_allocator.h"

namespace ocl {

namespace {

// A piece takes a device as long as a few launches, and several fit the host's caches.
constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kSlots = 4;
// What one thread copies at a time, and threads that are worth waking.
constexpr size_t kGrain = size_t{512} << 10, kMostThreads = 8;

/// A copy on the host that threads share: each takes the next part that nobody has.
struct SharedCopy {
  SharedCopy(char* to_, const char* from_, size_t bytes_)
      : to(to_), from(from_), bytes(bytes_), parts((bytes + kGrain - 1) / kGrain), left(parts) {}

  void work() {
    for (size_t part = next++; part < parts; part = next++) {
      const size_t begin = part * kGrain;
      std::memcpy(to + begin, from + begin, std::min(kGrain, bytes - begin));
      if (--left == 0) left.notify_all();
    }
  }
  /// Until all parts are done; those that no other thread has begun are the caller's by then.
  void wait() {
    for (size_t now = left; now != 0; now = left) left.wait(now);
  }

  char* const to;
  const char* const from;
  const size_t bytes, parts;
  std::atomic<size_t> next{0}, left;
};

// at::parallel_for() is serial in libraries that are built without OpenMP, and linking OpenMP's
// library would bring a second one next to torch's.
void copy_on_host(char* to, const char* from, size_t bytes) {
  const auto copy = std::make_shared<SharedCopy>(to, from, bytes);
  const size_t threads =
      std::min({copy->parts, kMostThreads, static_cast<size_t>(at::get_num_threads())});
  // A thread that comes too late finds no part left, and touches neither operand.
  for (size_t i = 1; i < threads; ++i) at::launch([copy] { copy->work(); });
  copy->work();
  copy->wait();
}

/// The ring: slot i is free again when its event is complete.
class Ring {
 public:
  struct Slot {
    c10::DataPtr memory;
    Event event;
    char* data() { return static_cast<char*>(memory.get()); }
  };

  explicit Ring(size_t bytes) : pieces_((bytes + kPiece - 1) / kPiece), bytes_(bytes) {
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

 private:
  size_t pieces_, bytes_;
  std::array<Slot, kSlots> slots_;
};

char* advance(void* address, size_t bytes) { return static_cast<char*>(address) + bytes; }
const char* advance(const void* address, size_t bytes) {
  return static_cast<const char*>(address) + bytes;
}

}  // namespace

bool takes_staged_copy(const Device& device, size_t bytes) {
  return !device.is_cpu() && !device.properties().host_unified_memory && bytes >= 2 * kPiece;
}

void staged_write(Queue& queue, void* address, const void* source, size_t bytes) {
  Ring ring(bytes);
  for (size_t i = 0; i < ring.pieces(); ++i) {
    Ring::Slot& slot = ring.slot(i);
    slot.event.synchronize();
    copy_on_host(slot.data(), advance(source, Ring::begin(i)), ring.size(i));
    queue.write(advance(address, Ring::begin(i)), slot.data(), ring.size(i), false);
    slot.event.record(queue);
    queue.flush();
  }
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
  for (size_t i = 0; i < ring.pieces(); ++i) {
    Ring::Slot& slot = ring.slot(i);
    slot.event.synchronize();
    copy_on_host(advance(destination, Ring::begin(i)), slot.data(), ring.size(i));
    if (i + kSlots < ring.pieces()) start(i + kSlots);
  }
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
