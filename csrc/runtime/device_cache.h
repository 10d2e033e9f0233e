// The cached memory of one device: what allocator.cpp dispatches to.
//
// Requests up to 1 MiB come from 16 MiB segments, those up to 16 MiB from 64 MiB segments, larger
// ones get a segment of their own (2 MiB multiples). Segments are larger than other backends'
// because a kernel argument is a cl_mem: operands that share a segment share the argument, which
// the launch path then need not set again, and creating a cl_mem costs more than an address range
// does.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "opencl/device.h"
#include "opencl/event.h"
#include "opencl/queue.h"
#include "runtime/block_pool.h"
#include "runtime/memory_history.h"
#include "runtime/memory_stats.h"

namespace ocl {

class DeviceCache {
 public:
  explicit DeviceCache(Device& device);

  /// `size` > 0 bytes for use on `stream`, or from a pool of a graph's. Throws
  /// c10::OutOfMemoryError.
  void* allocate(size_t size, c10::StreamId stream);
  /// Never throws and, when no other stream used the block, makes no driver call.
  void free(void* address) noexcept;
  /// The block is not reused before the work now on `stream` is done. Ignores foreign addresses.
  void record_stream(const void* address, c10::StreamId stream);
  /// Waits for the device and gives segments without live blocks back to the driver: those of a
  /// pool (memory_pools.h), or of the streams and of pools that nobody uses.
  void release_cached(c10::MempoolId_t pool = {0, 0});

  /// The segments and their blocks, and what was recorded.
  MemorySnapshot snapshot();
  void record_history(const MemoryRecording& recording);
  /// A sum of MemoryMode.
  void set_modes(uint32_t modes) { modes_.store(modes, std::memory_order_relaxed); }
  uint32_t modes() const { return modes_.load(std::memory_order_relaxed); }
  /// Who allocated a block that is in use.
  MemoryContext context_of(const void* address) const;

  bool owns(const void* address) const { return device_.addresses().contains(address); }
  MemoryStats::Stats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();
  /// {free, total} bytes, both within the limit of set_memory_fraction.
  std::pair<size_t, size_t> memory_info();
  void set_memory_fraction(double fraction);
  double memory_fraction() const;

 private:
  static constexpr size_t kLargestRequest = size_t{1} << 40;  // the address space of a device

  struct Pools {
    BlockPool small, large;
    // The last freed block of each of the smallest sizes, which is given out again as it is:
    // merging and splitting would take most of a small allocation's time.
    std::array<Block*, 8> last_freed{};
    bool splits = true;  // segments into blocks
    bool empty() const {
      return small.empty() && large.empty() &&
             std::ranges::all_of(last_freed, [](const Block* block) { return block == nullptr; });
    }
    BlockPool& of(bool is_small) { return is_small ? small : large; }
    /// Its place among them; null for other sizes.
    Block** last_freed_of(size_t size) {
      const size_t index = size / kBlockAlign - 1;
      return index < last_freed.size() ? &last_freed[index] : nullptr;
    }
  };
  struct PendingFree {
    std::unique_ptr<Event> event;  // not recorded where the driver failed to
    Block* block;
  };

  void lock_recording(MemoryContexts at_least);
  /// Adds to the history, if there is one.
  void note(MemoryAction action, const Block* block);
  void release_uncached(Block* block) noexcept;
  Block* take_from_helping_pools(size_t size, bool small, c10::StreamId stream);

  Pools& pools_of(c10::StreamId stream);
  Block* take(size_t size, bool small, c10::StreamId stream);
  Block* take_after_release(size_t size, bool small, c10::StreamId stream);
  Block* create_segment(size_t size, bool small, c10::StreamId stream);
  /// For TORCH_OCL_VERBOSE=memory.
  void trace_segment(const char* what, size_t bytes) const;
  void release_segment(Block* block);
  void release_unused_segments(c10::MempoolId_t pool = {0, 0});
  void split(Block* block, size_t size);
  void make_free(Block* block);
  void rejoin(Block* block);
  bool keep_apart(Block* block);
  Block* take_apart(size_t size, c10::StreamId stream);
  void merge_last_freed();
  bool merge(Block* block, Block* neighbour);
  void await_uses(Block* block);
  bool record(Event& event, c10::StreamId stream) noexcept;
  void process_events();
  void take_first(std::deque<PendingFree>& frees);
  bool finish_events();
  size_t limit() const;
  size_t available() const;
  void report(void* address, int64_t change);
  [[noreturn]] void throw_out_of_memory(size_t requested, c10::StreamId stream,
                                        std::unique_lock<std::mutex> lock);

  Block* new_block();
  void recycle(Block* block);

  Device& device_;
  mutable std::mutex mutex_;
  std::atomic<uint32_t> modes_{0};             // beside the lock, which is needed anyway
  std::vector<std::unique_ptr<Pools>> pools_;  // by stream id
  ska::flat_hash_map<const void*, Block*> live_;
  // By the stream whose work they wait for, which completes it in order.
  std::map<c10::StreamId, std::deque<PendingFree>> pending_;
  std::vector<Block*> spare_;  // Block objects to reuse
  MemoryStats stats_;
  std::unique_ptr<MemoryHistory> history_;  // null while nothing is recorded
  double fraction_ = 1.0;
  std::string refusal_;  // what the driver said to the last segment that was asked for
};

}  // namespace ocl
