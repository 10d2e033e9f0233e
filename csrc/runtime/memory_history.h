// The record of torch.ocl.memory._record_memory_history: what the allocator did, and who asked for
// the memory that is in use.
//
// While nothing is recorded an allocation or a free reads one number beside its lock (MemoryMode),
// and nothing else.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ocl {

/// A stack of calls; null where none was gathered.
using MemoryContext = std::shared_ptr<c10::GatheredContext>;

/// The order is that of the names in csrc/python/memory_history.cpp.
enum class MemoryAction : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  snapshot,
  out_of_memory,
};
inline constexpr size_t kMemoryActions = 7;

struct MemoryEvent {
  MemoryAction action;
  size_t address;  // of out_of_memory: bytes that are free
  size_t size;
  c10::StreamId pool;    // as DeviceCache numbers them
  int64_t microseconds;  // since 1970
  MemoryContext context;
  std::string metadata;
};

/// How much is recorded; the values grow.
enum class MemoryContexts : uint8_t { none, live, allocations, all };

struct MemoryRecording {
  bool enabled = false;
  MemoryContexts contexts = MemoryContexts::none;
  bool cpp_frames = false;
  size_t max_events = 0;
  bool clear = false;
  uint32_t skipped = 0;  // a bit for each action
};

struct BlockInfo {
  enum class State : uint8_t { allocated, awaiting_free, inactive };
  size_t address, size, requested;
  State state;
  MemoryContext context;
};

struct SegmentInfo {
  size_t address, size, allocated, active;
  c10::StreamId pool;
  bool small;
  MemoryContext context;
  std::vector<BlockInfo> blocks;  // by address
};

struct MemorySnapshot {
  std::vector<SegmentInfo> segments;  // by address
  std::vector<MemoryEvent> events;    // the oldest first
};

/// Work of allocations and frees besides; none of it in nearly every process. Each device's cache
/// has a copy.
enum MemoryMode : uint32_t { kRecordsMemory = 1, kUncachedMemory = 2, kRoutedMemory = 4 };

/// The settings of the last record_memory_history, for devices to come.
MemoryRecording memory_recording();
void keep_memory_recording(const MemoryRecording& recording);

// The functions for all devices are in allocator.cpp.

void set_memory_mode(MemoryMode mode, bool on);
uint32_t memory_modes();
/// Sets what is recorded from now on. Disabling it drops the record.
void record_memory_history(const MemoryRecording& recording);
/// Empty if the device's memory isn't in use yet.
MemorySnapshot snapshot_memory(c10::DeviceIndex index);
/// Who allocated the block that begins there; null where nothing is known.
MemoryContext context_of_memory(const void* address);

/// The calls that led here, if at least that much is recorded. Takes Python's lock: never called
/// with one of the allocator's. Never throws.
MemoryContext gather_memory_context(MemoryContexts at_least) noexcept;

/// A text that events from now on carry.
void set_memory_metadata(const std::string& text);
std::string memory_metadata();

/// The events of one device. Not thread-safe.
class MemoryHistory {
 public:
  void configure(const MemoryRecording& recording);

  /// Who asks for what follows, until the next call.
  void asked_from(MemoryContext context) { context_ = std::move(context); }
  /// `address` is that of a block or segment, or a number of bytes.
  void add(MemoryAction action, const void* address, size_t size, c10::StreamId pool);
  void add_allocation(const void* address, size_t size, c10::StreamId pool);
  void add_segment(const void* address, size_t size, c10::StreamId pool);
  void forget(const void* address) { live_.erase(address); }
  void forget_segment(const void* address) { segments_.erase(address); }

  MemoryContext of_block(const void* address) const { return find(live_, address); }
  MemoryContext of_segment(const void* address) const { return find(segments_, address); }
  std::vector<MemoryEvent> events() const { return {events_.begin(), events_.end()}; }

 private:
  using Contexts = std::unordered_map<const void*, MemoryContext>;
  static MemoryContext find(const Contexts& contexts, const void* address) {
    const auto entry = contexts.find(address);
    return entry == contexts.end() ? nullptr : entry->second;
  }

  MemoryRecording recording_;
  MemoryContext context_;
  Contexts live_, segments_;
  std::deque<MemoryEvent> events_;
};

/// Called when memory can't be had, before the error is raised: device, bytes that were asked for,
/// bytes that the device has for this process, and how many of them are free.
using OutOfMemoryObserver = std::function<void(int64_t, size_t, size_t, size_t)>;
void attach_out_of_memory_observer(OutOfMemoryObserver observer);
void tell_out_of_memory_observers(int64_t device, size_t asked, size_t total, size_t free);

}  // namespace ocl
