#include "runtime/staged_copy.h"

#include <cstring>

#include "runtime/pinned_ring.h"

namespace ocl {

namespace {

constexpr size_t kLeastBytes = size_t{8} << 20;

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
  PinnedRing ring(bytes);
  ring.share_out([&](size_t i) {
    PinnedRing::Slot& slot = ring.slot(i);
    slot.event.synchronize();
    std::memcpy(slot.data(), advance(source, PinnedRing::begin(i)), ring.size(i));
    queue.write(advance(address, PinnedRing::begin(i)), slot.data(), ring.size(i), false);
    slot.event.record(queue);
    queue.flush();
  });
}

void staged_read(Queue& queue, void* destination, const void* address, size_t bytes) {
  PinnedRing ring(bytes);
  const auto start = [&](size_t i) {
    PinnedRing::Slot& slot = ring.slot(i);
    queue.read(slot.data(), advance(address, PinnedRing::begin(i)), ring.size(i), false);
    slot.event.record(queue);
    queue.flush();
  };
  for (size_t i = 0; i < std::min(ring.pieces(), kSlots); ++i) start(i);
  ring.share_out([&](size_t i) {
    PinnedRing::Slot& slot = ring.slot(i);
    slot.event.synchronize();
    std::memcpy(advance(destination, PinnedRing::begin(i)), slot.data(), ring.size(i));
    if (i + kSlots < ring.pieces()) start(i + kSlots);
  });
}

}  // namespace ocl
