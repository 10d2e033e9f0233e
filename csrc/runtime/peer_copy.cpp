#include "runtime/peer_copy.h"

#include <pthread.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "opencl/event.h"
#include "opencl/gate.h"
#include "opencl/graph.h"
#include "opencl/platform.h"
#include "runtime/pinned_ring.h"
#include "runtime/stream.h"
#include "runtime/stream_table.h"

namespace ocl {

namespace {

/// One side of a copy.
struct Side {
  Side(Queue& queue, const void* address)
      : queue(queue), place(queue.device().addresses().find(address)) {
    // The tensor may go before the copy is done. Its memory is then free for later work on the
    // queue, or is given back to the driver.
    OCL_CALL(&queue.device(), clRetainMemObject, place.mem);
    try {
      ready.record(queue);
      gate = std::make_unique<Gate>(queue);
    } catch (...) {
      api().clReleaseMemObject(place.mem);
      throw;
    }
  }
  ~Side() { api().clReleaseMemObject(place.mem); }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Queue& queue;
  Location place;
  Event ready;
  std::unique_ptr<Gate> gate;
};

struct Copy {
  Copy(Queue& to_queue, void* destination, Queue& from_queue, const void* source, size_t bytes)
      : to(to_queue, destination), from(from_queue, source), bytes(bytes) {}
  Side to, from;
  size_t bytes;
};

/// From one device to another: a thread, and a queue of its own on each. It lives until the process
/// ends, as other queues do.
class Channel {
 public:
  Channel(Device& to, Device& from) : to_(to), from_(from), thread_([this] { loop(); }) {
    thread_.detach();
  }

  void push(std::unique_ptr<Copy> copy) {
    const std::lock_guard lock(mutex_);
    copies_.push_back(std::move(copy));
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return copies_.empty(); });
  }

 private:
  void loop() {
    pthread_setname_np(pthread_self(), "pt_ocl_copies");
    set_device_unchecked(from_.index());  // whose driver gives the pinned memory
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !copies_.empty(); });
      Copy& copy = *copies_.front();
      lock.unlock();
      try {
        run(copy);
      } catch (...) {
        for (Side* side : {&copy.to, &copy.from}) side->queue.fail(std::current_exception());
      }
      lock.lock();
      copies_.pop_front();
      changed_.notify_all();
    }
  }

  void run(Copy& copy) {
    copy.from.ready.block(from_queue());
    copy.to.ready.block(to_queue());
    PinnedRing ring(copy.bytes);
    // Reads run ahead by half of the ring; the other half is being written.
    constexpr size_t kAhead = kSlots / 2;
    const auto start = [&](size_t i) {
      PinnedRing::Slot& slot = ring.slot(i);
      slot.event.synchronize();
      from_queue().read(slot.data(), copy.from.place.mem,
                        copy.from.place.offset + PinnedRing::begin(i), ring.size(i), false);
      slot.event.record(from_queue());
    };
    for (size_t i = 0; i < std::min(ring.pieces(), kAhead); ++i) start(i);
    for (size_t i = 0; i < ring.pieces(); ++i) {
      PinnedRing::Slot& slot = ring.slot(i);
      slot.event.synchronize();
      to_queue().write(copy.to.place.mem, copy.to.place.offset + PinnedRing::begin(i), slot.data(),
                       ring.size(i), false);
      slot.event.record(to_queue());
      if (i + kAhead < ring.pieces()) start(i + kAhead);
    }
    copy.from.gate.reset();  // all of it was read
    to_queue().finish();
  }

  // Made by the thread that uses them, where a failure belongs to a copy.
  Queue& to_queue() { return made(to_queue_, to_); }
  Queue& from_queue() { return made(from_queue_, from_); }
  static Queue& made(std::unique_ptr<Queue>& queue, Device& device) {
    if (!queue) queue = std::make_unique<Queue>(device, 0, kCopies);
    return *queue;
  }

  // The stream's number in profiles: no stream has that number.
  static constexpr int64_t kCopies = -1;
  Device &to_, &from_;
  std::unique_ptr<Queue> to_queue_, from_queue_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Copy>> copies_;  // the first one is under way
  std::thread thread_;
};

struct Channels {
  // Held while a copy is enqueued, too: of two threads' copies one comes first on all queues, or
  // each would wait for the other.
  std::mutex mutex;
  std::array<std::array<Channel*, kMaxDevices>, kMaxDevices> all{};
};

Channels& channels() {
  static auto* table = new Channels();
  return *table;
}

void drain_all() {
  if (process_was_forked()) return;
  for (auto& row : channels().all) {
    for (Channel* channel : row) {
      if (channel != nullptr) channel->drain();
    }
  }
}

/// Under the mutex of all.
Channel& channel(Device& to, Device& from) {
  // After the driver's own handlers in registration order, hence before them at exit.
  static const bool registered = std::atexit(drain_all) == 0;
  static_cast<void>(registered);
  Channel*& slot = channels().all[to.index()][from.index()];
  if (slot == nullptr) slot = new Channel(to, from);
  return *slot;
}

/// Small ones, where both queues are idle and a copy takes less time than to tell a thread.
bool copied_at_once(Queue& to, void* destination, Queue& from, const void* source, size_t bytes) {
  std::array<char, 4096> piece;
  if (bytes > piece.size() || from.immediate() == nullptr || to.immediate() == nullptr) {
    return false;
  }
  from.read(piece.data(), source, bytes, true);
  to.write(destination, piece.data(), bytes, true);
  return true;
}

}  // namespace

void peer_copy(Queue& to, void* destination, Queue& from, const void* source, size_t bytes) {
  if (bytes == 0) return;
  check_not_captured(to, "a copy from another device");
  check_not_captured(from, "a copy to another device");
  from.throw_failure();
  if (copied_at_once(to, destination, from, source, bytes)) return;
  const std::lock_guard lock(channels().mutex);
  Channel& way = channel(to.device(), from.device());
  way.push(std::make_unique<Copy>(to, destination, from, source, bytes));
}

}  // namespace ocl
