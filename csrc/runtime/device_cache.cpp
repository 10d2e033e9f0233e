#include "runtime/device_cache.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <stdexcept>

#include "opencl/ceil_div.h"
#include "opencl/event.h"
#include "opencl/log.h"
#include "runtime/counters.h"
#include "runtime/host_memory.h"
#include "runtime/memory_pools.h"
#include "runtime/segment_buffer.h"
#include "runtime/stream.h"
#include "runtime/stream_table.h"

namespace ocl {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallRequest = kMiB;  // up to here from small segments
constexpr size_t kSmallSegment = 16 * kMiB;
constexpr size_t kSharedRequest = 16 * kMiB;  // up to here several requests share a segment
constexpr size_t kSharedSegment = 64 * kMiB;

c10::Stream stream_of(const Device& device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device.index())), id);
}

}  // namespace

DeviceCache::DeviceCache(Device& device) : device_(device) {
  // A warm allocation must not rehash.
  live_.reserve(4096);
}

void DeviceCache::report(void* address, int64_t change) {
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
  c10::reportMemoryUsageToProfiler(
      address, change, stats_.allocated(), stats_.reserved(),
      c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device_.index())));
}

/// Takes the lock and, where a history is kept, notes who asks: gathered before, since that takes
/// Python's lock.
void DeviceCache::lock_recording(MemoryContexts at_least) {
  MemoryContext context = gather_memory_context(at_least);
  mutex_.lock();
  if (history_) history_->asked_from(std::move(context));
}

void* DeviceCache::allocate(size_t size, c10::StreamId stream) {
  const uint32_t modes = this->modes();
  if (C10_LIKELY(modes == 0)) {
    mutex_.lock();
  } else {
    lock_recording(MemoryContexts::live);
  }
  std::unique_lock lock(mutex_, std::adopt_lock);
  if (C10_UNLIKELY(size > kLargestRequest)) throw_out_of_memory(size, stream, std::move(lock));
  if (C10_UNLIKELY(!pending_.empty())) process_events();
  const size_t rounded = round_up(size, kBlockAlign);
  const bool small = rounded <= kSmallRequest;
  Block* block = nullptr;
  if (C10_LIKELY((modes & kUncachedMemory) == 0)) {
    block = take_apart(rounded, stream);
    if (C10_UNLIKELY(!block)) block = take(rounded, small, stream);
  }
  if (C10_UNLIKELY(!block)) block = create_segment(rounded, small, stream);
  if (C10_UNLIKELY(!block)) block = take_after_release(rounded, small, stream);
  if (C10_UNLIKELY(!block)) throw_out_of_memory(size, stream, std::move(lock));

  // A block out of a split segment stops being inactive; what is cut off it starts to be.
  const bool was_split = block->is_split();
  const int64_t whole = static_cast<int64_t>(block->size);
  const bool cut = block->size - rounded >= kBlockAlign && !block->segment->whole;
  if (cut) split(block, rounded);
  stats_.on_inactive_split(
      small, int64_t{cut} - int64_t{was_split},
      (cut ? whole - static_cast<int64_t>(rounded) : 0) - (was_split ? whole : 0));
  block->requested = size;
  stats_.on_allocate(small, block->size, size);
  live_.emplace(block->address, block);
  if (C10_UNLIKELY(modes != 0)) note(MemoryAction::alloc, block);
  report(block->address, static_cast<int64_t>(block->size));
  return block->address;
}

void DeviceCache::free(void* address) noexcept {
  const uint32_t modes = this->modes();
  if (C10_LIKELY(modes == 0)) {
    mutex_.lock();
  } else {
    lock_recording(MemoryContexts::all);
  }
  std::lock_guard lock(mutex_, std::adopt_lock);
  const auto entry = live_.find(address);
  if (entry == live_.end()) return;
  Block* block = entry->second;
  live_.erase(entry);
  stats_.on_free(block->segment->small, block->size);
  if (C10_UNLIKELY(modes != 0)) note(MemoryAction::free_requested, block);
  report(address, -static_cast<int64_t>(block->size));
  if (C10_UNLIKELY(block->used_by != nullptr)) {
    await_uses(block);
    return;
  }
  if (keep_apart(block)) return;
  make_free(block);
  if (C10_UNLIKELY((modes & kUncachedMemory) != 0)) release_uncached(block);
}

void DeviceCache::record_stream(const void* address, c10::StreamId stream) {
  std::lock_guard lock(mutex_);
  const auto entry = live_.find(address);
  if (entry == live_.end()) return;
  Block* block = entry->second;
  // In-order queue: the segment's own stream is safe without an event.
  if (stream == origin_of_pool(block->segment->stream).stream) return;
  if (!block->used_by) block->used_by = std::make_unique<std::vector<c10::StreamId>>();
  auto& streams = *block->used_by;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

void DeviceCache::release_cached(c10::MempoolId_t pool) {
  // Waiting comes first and without the lock: other threads may allocate meanwhile.
  finish_device(static_cast<c10::DeviceIndex>(device_.index()));
  lock_recording(MemoryContexts::all);
  std::lock_guard lock(mutex_, std::adopt_lock);
  // Memory may have been enqueued and freed since: a kernel that was given addresses holds no
  // buffer.
  const bool finished = finish_events();
  merge_last_freed();
  if (finished) release_unused_segments(pool);
}

DeviceCache::Pools& DeviceCache::pools_of(c10::StreamId stream) {
  const auto index = static_cast<size_t>(stream);
  if (C10_UNLIKELY(index >= pools_.size())) pools_.resize(index + 1);
  if (C10_UNLIKELY(!pools_[index])) {
    pools_[index] = std::make_unique<Pools>();
    const auto pool = origin_of_pool(stream).pool;
    pools_[index]->splits = !pool_options(pool).no_split;
  }
  return *pools_[index];
}

Block* DeviceCache::take(size_t size, bool small, c10::StreamId stream) {
  return pools_of(stream).of(small).take(size);
}

Block* DeviceCache::take_after_release(size_t size, bool small, c10::StreamId stream) {
  stats_.on_retry();
  if (C10_UNLIKELY(verbose(Verbose::memory))) {
    trace("memory: ocl:" + std::to_string(device_.index()) + ": none left for " +
          std::to_string(size) + " bytes, releasing what is cached");
  }
  merge_last_freed();
  // The device may hold on to released memory until the work that uses it is done; and kernels that
  // were given addresses may still write to what is released while they run.
  if (finish_events()) release_unused_segments();
  if (Block* block = take(size, small, stream)) return block;
  if (Block* block = create_segment(size, small, stream)) return block;
  return take_from_helping_pools(size, small, stream);
}

Block* DeviceCache::take_from_helping_pools(size_t size, bool small, c10::StreamId stream) {
  for (const c10::StreamId pool : helping_pools(origin_of_pool(stream).stream)) {
    if (pool == stream) continue;
    if (Block* block = take(size, small, pool)) return block;
  }
  return nullptr;
}

Block* DeviceCache::create_segment(size_t size, bool small, c10::StreamId stream) {
  refusal_.clear();
  const size_t largest = device_.properties().max_allocation;
  const size_t exact = round_up(size, AddressSpace::kGranule);
  size_t bytes = small ? kSmallSegment : size <= kSharedRequest ? kSharedSegment : exact;
  const bool whole = !pools_of(stream).splits || (modes() & kUncachedMemory) != 0;
  // Near the limit a request gets just what it needs.
  if (whole || bytes > largest || bytes > available()) bytes = exact;
  if (bytes > largest) bytes = size;  // the granule's rounding must not be what fails
  if (bytes > largest || bytes > available()) return nullptr;

  SegmentBuffer buffer;
  try {
    buffer = create_segment_buffer(device_, bytes);
  } catch (const Error& error) {
    if (!error.out_of_memory() && error.code() != CL_INVALID_BUFFER_SIZE) throw;
    refusal_ = error.what();
    return nullptr;
  }
  void* base = nullptr;
  try {
    base = device_.addresses().map(buffer.mem, bytes, buffer.host);
  } catch (const std::runtime_error&) {  // the address range is used up
    api().clReleaseMemObject(buffer.mem);
    return nullptr;
  }
  auto* segment = new Segment{buffer.mem, static_cast<char*>(base), bytes, stream, small, whole};
  Block* block = new_block();
  block->segment = segment;
  block->address = segment->base;
  block->size = bytes;
  stats_.on_segment_created(small, bytes);
  note_use();
  if (C10_UNLIKELY(modes() != 0)) note(MemoryAction::segment_alloc, block);
  if (C10_UNLIKELY(verbose(Verbose::memory))) trace_segment("took", bytes);
  return block;
}

void DeviceCache::release_segment(Block* block) {
  Segment* segment = block->segment;
  if (C10_UNLIKELY(modes() != 0)) note(MemoryAction::segment_free, block);
  pools_of(segment->stream).of(segment->small).remove(block);
  device_.addresses().unmap(segment->base);
  api().clReleaseMemObject(segment->mem);
  stats_.on_segment_released(segment->small, segment->size);
  if (C10_UNLIKELY(verbose(Verbose::memory))) trace_segment("gave back", segment->size);
  delete segment;
  recycle(block);
}

/// Where nothing is cached. What kernels of other streams use goes with the next empty_cache().
void DeviceCache::release_uncached(Block* block) noexcept {
  if (block->is_split()) return;
  try {
    if (finish_events()) release_segment(block);
  } catch (const std::exception&) {  // a device that fails says so at the next call
  }
}

void DeviceCache::release_unused_segments(c10::MempoolId_t pool) {
  for (size_t number = 0; number < pools_.size(); ++number) {
    if (!pools_[number]) continue;
    const auto of = origin_of_pool(static_cast<c10::StreamId>(number)).pool;
    const bool is_asked_for = of == pool || (pool == c10::MempoolId_t{0, 0} && pool_users(of) == 0);
    if (!is_asked_for) continue;
    for (BlockPool* blocks : {&pools_[number]->small, &pools_[number]->large}) {
      blocks->for_each_whole_segment([this](Block* block) { release_segment(block); });
    }
    // Its number isn't given again. Tensors that outlive it make another one as they are freed.
    if (of != c10::MempoolId_t{0, 0} && pools_[number]->empty()) pools_[number].reset();
  }
}

void DeviceCache::split(Block* block, size_t size) {
  Block* rest = new_block();
  rest->segment = block->segment;
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next) rest->next->previous = rest;
  block->next = rest;
  block->size = size;
  pools_of(block->segment->stream).of(block->segment->small).insert(rest);
}

bool DeviceCache::merge(Block* block, Block* neighbour) {
  if (!neighbour || !neighbour->free) return false;
  pools_of(block->segment->stream).of(block->segment->small).remove(neighbour);
  if (neighbour == block->previous) {
    block->address = neighbour->address;
    block->previous = neighbour->previous;
    if (block->previous) block->previous->next = block;
  } else {
    block->next = neighbour->next;
    if (block->next) block->next->previous = block;
  }
  block->size += neighbour->size;
  recycle(neighbour);
  return true;
}

void DeviceCache::make_free(Block* block) {
  stats_.on_inactive(block->segment->small, block->size, block->requested);
  if (C10_UNLIKELY(modes() != 0)) note(MemoryAction::free_completed, block);
  rejoin(block);
}

void DeviceCache::rejoin(Block* block) {
  const bool small = block->segment->small;
  const auto before = static_cast<int64_t>(block->size);
  int64_t merged = merge(block, block->previous);
  merged += merge(block, block->next);
  const int64_t absorbed = static_cast<int64_t>(block->size) - before;
  const bool split = block->is_split();
  stats_.on_inactive_split(small, int64_t{split} - merged,
                           (split ? static_cast<int64_t>(block->size) : 0) - absorbed);
  pools_of(block->segment->stream).of(small).insert(block);
}

/// Whether the block stays as it is, for the next request of its size.
bool DeviceCache::keep_apart(Block* block) {
  Block** place = pools_of(block->segment->stream).last_freed_of(block->size);
  if (place == nullptr || *place != nullptr || !block->is_split()) return false;
  stats_.on_inactive(block->segment->small, block->size, block->requested);
  stats_.on_inactive_split(block->segment->small, 1, static_cast<int64_t>(block->size));
  if (C10_UNLIKELY(modes() != 0)) note(MemoryAction::free_completed, block);
  *place = block;
  return true;
}

Block* DeviceCache::take_apart(size_t size, c10::StreamId stream) {
  Block** place = pools_of(stream).last_freed_of(size);
  return place != nullptr ? std::exchange(*place, nullptr) : nullptr;
}

void DeviceCache::merge_last_freed() {
  for (auto& pools : pools_) {
    if (!pools) continue;
    for (Block*& place : pools->last_freed) {
      if (Block* block = std::exchange(place, nullptr)) {
        stats_.on_inactive_split(block->segment->small, -1, -static_cast<int64_t>(block->size));
        rejoin(block);
      }
    }
  }
}

/// Keeps the block until the work now on the streams that used it is over.
void DeviceCache::await_uses(Block* block) {
  const auto streams = std::move(block->used_by);
  for (const c10::StreamId stream : *streams) {
    auto& frees = pending_[stream];
    frees.push_back({std::make_unique<Event>(), block});
    ++block->pending_events;
    record(*frees.back().event, stream);
  }
}

/// False if the driver failed: then nothing is known of the stream's work, and the event is
/// recorded later, which only waits for more.
bool DeviceCache::record(Event& event, c10::StreamId stream) noexcept {
  if (event.recorded()) return true;
  try {
    return event.try_record(queue_of(stream_of(device_, stream)));
  } catch (...) {  // the stream has no queue yet, and can't have one
    return false;
  }
}

void DeviceCache::process_events() {
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    auto& [stream, frees] = *entry;
    while (!frees.empty() && record(*frees.front().event, stream) && frees.front().event->over()) {
      take_first(frees);
    }
    entry = frees.empty() ? pending_.erase(entry) : std::next(entry);
  }
}

void DeviceCache::take_first(std::deque<PendingFree>& frees) {
  Block* block = frees.front().block;
  frees.pop_front();
  if (--block->pending_events == 0) make_free(block);
}

/// False if the driver failed, or a graph is captured: work may still be under way.
bool DeviceCache::finish_events() {
  stats_.on_synchronize();
  try {
    finish_device(static_cast<c10::DeviceIndex>(device_.index()));
  } catch (const std::exception&) {  // who waits for results gets the failure; a capture can't wait
    process_events();
    return false;
  }
  for (auto& [stream, frees] : pending_) {
    while (!frees.empty()) take_first(frees);
  }
  pending_.clear();
  return true;
}

size_t DeviceCache::limit() const {
  size_t total = device_.properties().global_memory;
  if (device_.properties().device_class == DeviceClass::cpu)
    total = std::min(total, host_memory_limit());
  return static_cast<size_t>(static_cast<double>(total) * fraction_);
}

size_t DeviceCache::available() const {
  const size_t total = limit();
  const size_t left = total - std::min(total, static_cast<size_t>(stats_.reserved()));
  // CPU drivers reserve address space and fail, or worse, at the first touch.
  const bool cpu = device_.properties().device_class == DeviceClass::cpu;
  return cpu ? std::min(left, available_host_memory()) : left;
}

Block* DeviceCache::new_block() {
  if (spare_.empty()) return new Block{};
  Block* block = spare_.back();
  spare_.pop_back();
  return block;
}

void DeviceCache::recycle(Block* block) {
  *block = Block{};
  spare_.push_back(block);
}

}  // namespace ocl
