// Reports of a device's cache: statistics, snapshots, errors.
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>

#include "opencl/environment.h"
#include "opencl/log.h"
#include "runtime/device_cache.h"
#include "runtime/memory_pools.h"
#include "runtime/stream.h"

namespace ocl {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

BlockInfo::State state_of(const Block& block) {
  if (block.free) return BlockInfo::State::inactive;
  return block.pending_events > 0 ? BlockInfo::State::awaiting_free : BlockInfo::State::allocated;
}

size_t number_of(const void* address) { return reinterpret_cast<size_t>(address); }

/// Programs look for CUDA's name in the message, to try again with less.
const char* name_to_programs() {
  return switched_on("TORCH_OCL_AS_CUDA", false) ? "CUDA" : "OpenCL";
}

}  // namespace

void DeviceCache::throw_out_of_memory(size_t requested, c10::StreamId stream,
                                      std::unique_lock<std::mutex> lock) {
  using c10::CachingAllocator::format_size;
  stats_.on_out_of_memory();
  const size_t allocated = stats_.allocated();
  const size_t reserved = stats_.reserved();
  const size_t free = available();
  const size_t total = limit();
  const size_t largest = device_.properties().max_allocation;
  if (history_) {
    history_->add(MemoryAction::out_of_memory, reinterpret_cast<const void*>(free), requested,
                  stream);
  }
  const std::string refusal = refusal_.empty() ? "" : " The driver said: " + refusal_;
  lock.unlock();
  const c10::Device where(kDeviceType, static_cast<c10::DeviceIndex>(device_.index()));
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(std::min(requested, kLargestRequest)),
                                   allocated, reserved, where);
  tell_out_of_memory_observers(device_.index(), requested, total, free);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, name_to_programs(), " out of memory. Tried to allocate ",
      format_size(requested), " on device ", device_.index(), ", ", device_.description(),
      ", which has a capacity of ", format_size(total),
      fraction_ < 1.0 ? " (limited by the memory fraction that was set)" : "", " of which ",
      format_size(free), " is free. Allocated by tensors: ", format_size(allocated),
      "; reserved but unallocated: ", format_size(reserved - std::min(reserved, allocated)),
      "; largest possible buffer (CL_DEVICE_MAX_MEM_ALLOC_SIZE): ", format_size(largest),
      requested > largest ? ", which this request exceeds whatever is free" : "", ".", refusal);
}

MemoryStats::Stats DeviceCache::stats() {
  std::lock_guard lock(mutex_);
  merge_last_freed();  // they are the cache's own affair
  return stats_.get();
}

void DeviceCache::reset_accumulated_stats() {
  std::lock_guard lock(mutex_);
  stats_.reset_accumulated();
}

void DeviceCache::reset_peak_stats() {
  std::lock_guard lock(mutex_);
  stats_.reset_peak();
}

std::pair<size_t, size_t> DeviceCache::memory_info() {
  std::lock_guard lock(mutex_);
  return {available(), limit()};
}

void DeviceCache::set_memory_fraction(double fraction) {
  std::lock_guard lock(mutex_);
  fraction_ = fraction;
}

double DeviceCache::memory_fraction() const {
  std::lock_guard lock(mutex_);
  return fraction_;
}

void DeviceCache::trace_segment(const char* what, size_t bytes) const {
  trace("memory: ocl:" + std::to_string(device_.index()) + ": " + what + " a segment of " +
        std::to_string(bytes / kMiB) + " MiB, " +
        std::to_string(static_cast<size_t>(stats_.reserved()) / kMiB) + " MiB in all");
}

void DeviceCache::note(MemoryAction action, const Block* block) {
  if (!history_) return;
  const Segment& segment = *block->segment;
  const c10::StreamId pool = segment.stream;
  switch (action) {
    case MemoryAction::alloc:
      return history_->add_allocation(block->address, block->requested, pool);
    case MemoryAction::free_completed:
      history_->add(action, block->address, block->requested, pool);
      return history_->forget(block->address);
    case MemoryAction::segment_alloc:
      return history_->add_segment(segment.base, segment.size, pool);
    case MemoryAction::segment_free:
      history_->add(action, segment.base, segment.size, pool);
      return history_->forget_segment(segment.base);
    default:
      return history_->add(action, block->address, block->requested, pool);
  }
}

MemorySnapshot DeviceCache::snapshot() {
  lock_recording(MemoryContexts::all);
  std::lock_guard lock(mutex_, std::adopt_lock);
  merge_last_freed();                         // they are the cache's own affair
  std::map<const char*, const Block*> first;  // of each segment
  const auto see = [&first](const Block* block) {
    if (block->previous == nullptr) first.emplace(block->address, block);
  };
  for (const auto& [address, block] : live_) see(block);
  for (const auto& pools : pools_) {
    if (!pools) continue;
    pools->small.for_each(see);
    pools->large.for_each(see);
  }
  for (const auto& [stream, frees] : pending_) {
    for (const PendingFree& waiting : frees) see(waiting.block);
  }
  MemorySnapshot result;
  size_t active = 0;
  for (const auto& [address, start] : first) {
    const Segment& segment = *start->segment;
    SegmentInfo& info = result.segments.emplace_back();
    info = {number_of(segment.base), segment.size,  0,       0,
            segment.stream,          segment.small, nullptr, {}};
    if (history_) info.context = history_->of_segment(segment.base);
    for (const Block* block = start; block != nullptr; block = block->next) {
      const auto state = state_of(*block);
      const bool is_active = state != BlockInfo::State::inactive;
      info.blocks.push_back({number_of(block->address), block->size,
                             is_active ? block->requested : 0, state,
                             history_ && is_active ? history_->of_block(block->address) : nullptr});
      if (is_active) info.active += block->size;
      if (state == BlockInfo::State::allocated) info.allocated += block->size;
    }
    active += info.active;
  }
  if (history_) {
    history_->add(MemoryAction::snapshot, nullptr, active, 0);
    result.events = history_->events();
  }
  return result;
}

void DeviceCache::record_history(const MemoryRecording& recording) {
  std::lock_guard lock(mutex_);
  if (!recording.enabled) return history_.reset();
  if (!history_) history_ = std::make_unique<MemoryHistory>();
  history_->configure(recording);
}

MemoryContext DeviceCache::context_of(const void* address) const {
  std::lock_guard lock(mutex_);
  return history_ && live_.find(address) != live_.end() ? history_->of_block(address) : nullptr;
}

}  // namespace ocl
