#include "runtime/memory_history.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

namespace ocl {
namespace {

// The settings of set_memory_recording, for gathering without a lock and for devices to come.
struct Shared {
  std::mutex mutex;
  MemoryRecording recording;
  std::string metadata;
  std::vector<OutOfMemoryObserver> observers;
};
Shared& shared() {
  static auto* instance = new Shared;  // tensors are freed while the process ends, too
  return *instance;
}
std::atomic<MemoryContexts> contexts{MemoryContexts::none};
std::atomic<bool> cpp_frames{false};

int64_t now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

}  // namespace

MemoryRecording memory_recording() {
  const std::lock_guard lock(shared().mutex);
  return shared().recording;
}

void keep_memory_recording(const MemoryRecording& recording) {
  const std::lock_guard lock(shared().mutex);
  shared().recording = recording;
  contexts = recording.enabled ? recording.contexts : MemoryContexts::none;
  cpp_frames = recording.cpp_frames;
}

MemoryContext gather_memory_context(MemoryContexts at_least) noexcept {
  const MemoryContexts wanted = contexts.load(std::memory_order_relaxed);
  if (wanted == MemoryContexts::none || wanted < at_least) return nullptr;
  try {
    return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, cpp_frames);
  } catch (...) {
    return nullptr;
  }
}

void set_memory_metadata(const std::string& text) {
  const std::lock_guard lock(shared().mutex);
  shared().metadata = text;
}

std::string memory_metadata() {
  const std::lock_guard lock(shared().mutex);
  return shared().metadata;
}

void MemoryHistory::configure(const MemoryRecording& recording) {
  recording_ = recording;
  if (recording.clear) events_.clear();
  while (events_.size() > recording.max_events) events_.pop_front();
}

void MemoryHistory::add(MemoryAction action, const void* address, size_t size, c10::StreamId pool) {
  if (recording_.max_events == 0) return;
  if ((recording_.skipped >> static_cast<uint32_t>(action) & 1) != 0) return;
  MemoryContext context;
  if (recording_.contexts >= MemoryContexts::allocations) {
    context = context_ ? context_ : of_block(address);  // of a free, where it was allocated
  }
  if (events_.size() >= recording_.max_events) events_.pop_front();
  events_.push_back({action, reinterpret_cast<size_t>(address), size, pool, now(),
                     std::move(context), memory_metadata()});
}

void MemoryHistory::add_allocation(const void* address, size_t size, c10::StreamId pool) {
  if (context_) live_[address] = context_;
  add(MemoryAction::alloc, address, size, pool);
}

void MemoryHistory::add_segment(const void* address, size_t size, c10::StreamId pool) {
  if (context_) segments_[address] = context_;
  add(MemoryAction::segment_alloc, address, size, pool);
}

void attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  const std::lock_guard lock(shared().mutex);
  shared().observers.push_back(std::move(observer));
}

void tell_out_of_memory_observers(int64_t device, size_t asked, size_t total, size_t free) {
  std::vector<OutOfMemoryObserver> observers;
  {
    const std::lock_guard lock(shared().mutex);
    observers = shared().observers;
  }
  for (const OutOfMemoryObserver& observer : observers) observer(device, asked, total, free);
}

}  // namespace ocl
