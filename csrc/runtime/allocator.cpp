#include "runtime/allocator.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "opencl/platform.h"
#include "runtime/counters.h"
#include "runtime/device_cache.h"
#include "runtime/graph.h"
#include "runtime/memory_history.h"
#include "runtime/memory_pools.h"
#include "runtime/stream.h"
#include "runtime/stream_table.h"

namespace ocl {
namespace {

// One cache per device, created by the first use of its memory and never destroyed: tensors held by
// static objects are freed after everything else.
std::array<std::atomic<DeviceCache*>, kMaxDevices> caches{};
std::atomic<bool> exiting{false};

double initial_fraction() {
  const char* setting = std::getenv("TORCH_OCL_MEMORY_FRACTION");
  if (!setting || !*setting) return 1.0;
  char* end = nullptr;
  const double fraction = std::strtod(setting, &end);
  TORCH_CHECK_VALUE(*end == '\0' && fraction > 0.0 && fraction <= 1.0,
                    "TORCH_OCL_MEMORY_FRACTION must be in (0, 1], got '", setting, "'");
  return fraction;
}

// Guards their creation and the modes that all have.
std::mutex caches_mutex;
uint32_t modes_of_all = 0;

DeviceCache& create_cache(c10::DeviceIndex index) {
  Device& owner = device(index);  // raises if there is no such device, or in a forked child
  // Until then nothing is pinned for this kind of device: Context::isPinnedPtr().
  at::globalContext().lazyInitDevice(kDeviceType);
  std::lock_guard lock(caches_mutex);
  if (DeviceCache* cache = caches[index].load()) return *cache;
  // After the driver's own handlers in registration order, hence before them at exit.
  static const bool registered = std::atexit([] { exiting = true; }) == 0;
  static_cast<void>(registered);
  auto cache = std::make_unique<DeviceCache>(owner);
  cache->set_memory_fraction(initial_fraction());
  cache->record_history(memory_recording());
  cache->set_modes(modes_of_all);
  caches[index].store(cache.get(), std::memory_order_release);
  return *cache.release();
}

DeviceCache& cache_of(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  if (C10_LIKELY(index < kMaxDevices && !process_was_forked())) {
    if (DeviceCache* cache = caches[index].load(std::memory_order_acquire)) return *cache;
  }
  return create_cache(index);
}

DeviceCache* find_cache(const void* address) noexcept {
  for (auto& slot : caches) {
    DeviceCache* cache = slot.load(std::memory_order_acquire);
    if (cache && cache->owns(address)) return cache;
  }
  return nullptr;
}

// The deleter of every DataPtr. Takes no GIL and raises nothing. In a forked child the memory is
// the parent's and the lock may be held by a thread that no longer exists; at exit the driver may
// be gone: in both cases the process's end frees the memory.
void free_address(void* address) {
  if (!address || process_was_forked() || exiting.load(std::memory_order_relaxed)) return;
  DeviceCache* cache = find_cache(address);
  if (!cache) return;
  cache->free(address);
}

/// Memory of a graph's kernels is the graph's, whatever pool the program has asked for.
c10::StreamId pool_of(c10::DeviceIndex index, c10::StreamId stream) {
  const c10::StreamId of_graph = Queue::captures() ? pool_of_capture(index, stream) : stream;
  return of_graph != stream ? of_graph : routed_pool(index, stream);
}

class OclAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const c10::DeviceIndex index = current_device();
    DeviceCache& cache = cache_of(index);
    const c10::Device where(kDeviceType, index);
    if (size == 0) {
      note_use();
      return {nullptr, nullptr, &free_address, where};
    }
    const c10::StreamId stream = current_stream(index).id();
    const bool elsewhere = C10_UNLIKELY(Queue::captures() || (cache.modes() & kRoutedMemory) != 0);
    void* address = cache.allocate(size, elsewhere ? pool_of(index, stream) : stream);
    return {address, address, &free_address, where};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_address; }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    if (bytes == 0) return;
    const auto index = device_of_pointer(destination);
    TORCH_CHECK(index && index == device_of_pointer(source),
                "copy_data: both addresses must lie in the memory of one ocl device");
    current_queue(*index).copy(destination, source, bytes);
  }

  bool initialized() override { return is_initialized() && !process_was_forked(); }

  void emptyCache(c10::MempoolId_t pool) override {
    if (process_was_forked() || exiting.load(std::memory_order_relaxed)) return;
    for (auto& slot : caches) {
      if (DeviceCache* cache = slot.load(std::memory_order_acquire)) cache->release_cached(pool);
    }
  }

  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    const void* address = pointer.get_context() ? pointer.get_context() : pointer.get();
    if (!address) return;
    TORCH_CHECK(stream.device_type() == kDeviceType,
                "record_stream: expected a stream of an ocl device, got ", stream);
    // A stream of another device can't use this memory; its host-side copies wait for themselves.
    if (DeviceCache* cache = find_cache(address);
        cache && device_of_pointer(address) == stream.device_index()) {
      cache->record_stream(address, stream.id());
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    return cache_of(index).stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    cache_of(index).reset_accumulated_stats();
  }
  void resetPeakStats(c10::DeviceIndex index) override { cache_of(index).reset_peak_stats(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    return cache_of(index).memory_info();
  }
};

OclAllocator instance;
REGISTER_ALLOCATOR(kDeviceType, &instance);

}  // namespace

c10::DeviceAllocator* allocator() { return &instance; }

std::optional<c10::DeviceIndex> device_of_pointer(const void* pointer) noexcept {
  for (c10::DeviceIndex index = 0; index < kMaxDevices; ++index) {
    DeviceCache* cache = caches[index].load(std::memory_order_acquire);
    if (cache && cache->owns(pointer)) return index;
  }
  return std::nullopt;
}

void set_memory_fraction(c10::DeviceIndex index, double fraction) {
  TORCH_CHECK_VALUE(fraction > 0.0 && fraction <= 1.0,
                    "the memory fraction must be in (0, 1], got ", fraction);
  cache_of(index).set_memory_fraction(fraction);
}

double memory_fraction(c10::DeviceIndex index) { return cache_of(index).memory_fraction(); }

void* allocate_memory(c10::DeviceIndex index, size_t size, c10::StreamId stream) {
  return size == 0 ? nullptr : cache_of(index).allocate(size, stream);
}

void release_memory(void* address) { free_address(address); }

void set_memory_mode(MemoryMode mode, bool on) {
  std::lock_guard lock(caches_mutex);
  modes_of_all = on ? modes_of_all | mode : modes_of_all & ~uint32_t{mode};
  for (auto& slot : caches) {
    if (DeviceCache* cache = slot.load(std::memory_order_acquire)) cache->set_modes(modes_of_all);
  }
}

uint32_t memory_modes() {
  std::lock_guard lock(caches_mutex);
  return modes_of_all;
}

void record_memory_history(const MemoryRecording& recording) {
  keep_memory_recording(recording);
  for (auto& slot : caches) {
    if (DeviceCache* cache = slot.load(std::memory_order_acquire)) cache->record_history(recording);
  }
  set_memory_mode(kRecordsMemory, recording.enabled);
}

MemorySnapshot snapshot_memory(c10::DeviceIndex index) {
  DeviceCache* cache = caches.at(index).load(std::memory_order_acquire);
  return cache != nullptr && !process_was_forked() ? cache->snapshot() : MemorySnapshot{};
}

MemoryContext context_of_memory(const void* address) {
  DeviceCache* cache = find_cache(address);
  return cache != nullptr ? cache->context_of(address) : nullptr;
}

}  // namespace ocl
