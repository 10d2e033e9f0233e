#include "runtime/host_allocator.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "opencl/event.h"
#include "opencl/platform.h"
#include "runtime/stream.h"
#include "runtime/stream_table.h"

namespace ocl {
namespace {

using c10::CachingAllocator::DurationStat;
using c10::CachingAllocator::Stat;

constexpr size_t kSmallest = 4096;  // a page: pinning works on whole pages
constexpr size_t kLargest = size_t{1} << 46;
constexpr size_t kClasses = 47;

// An allocation: a buffer the driver allocated on the host, mapped for as long as it lives.
struct PinnedBlock {
  cl_mem mem;
  char* address;
  size_t size;  // a power of two
  Device* owner;
  bool live = true;
  std::vector<Queue*> used_by;
  std::vector<std::unique_ptr<Event>> events;  // recorded when the block was freed

  bool contains(const void* pointer) const {
    return pointer >= address && pointer < address + size;
  }
  /// Marks the work now on the queues that used it. Those whose driver fails to stay in used_by.
  void record_uses() noexcept {
    std::erase_if(used_by, [this](Queue* queue) {
      auto event = std::make_unique<Event>();
      if (!event->try_record(*queue)) return false;
      events.push_back(std::move(event));
      return true;
    });
  }
  /// Whether all its uses are known to be over.
  bool idle() noexcept {
    if (!used_by.empty()) record_uses();
    std::erase_if(events, [](const auto& event) { return event->over(); });
    return used_by.empty() && events.empty();
  }
};

/// Adds the time of its life to a statistic.
class Timed {
 public:
  explicit Timed(DurationStat& stat) : stat_(stat) {}
  ~Timed() {
    const auto spent = std::chrono::steady_clock::now() - start_;
    stat_.increase(std::chrono::duration_cast<std::chrono::microseconds>(spent).count());
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  DurationStat& stat_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

size_t class_of(size_t size) { return std::bit_width(std::max(size, kSmallest) - 1); }

class PinnedCache {
 public:
  PinnedBlock* allocate(size_t size) {
    TORCH_CHECK_WITH(OutOfMemoryError, size <= kLargest, "can't pin ", size, " bytes of memory");
    Device& owner = device(current_device());
    const size_t index = class_of(size);
    std::lock_guard lock(mutex_);
    PinnedBlock* block = reuse(index, owner);
    if (!block) block = create(size_t{1} << index, owner);
    if (!block) {
      release_idle();
      block = create(size_t{1} << index, owner);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, block,
                     "OpenCL out of pinned host memory: could not allocate ", size,
                     " bytes: ", refusal_);
    block->live = true;
    live_.fetch_add(1, std::memory_order_relaxed);
    active_requests_.increase(1);
    active_bytes_.increase(block->size);
    return block;
  }

  void free(PinnedBlock* block) noexcept {
    std::lock_guard lock(mutex_);
    block->record_uses();
    block->live = false;
    live_.fetch_sub(1, std::memory_order_relaxed);
    active_requests_.decrease(1);
    active_bytes_.decrease(block->size);
    free_[class_of(block->size)].push_back(block);
  }

  bool owns(const void* pointer) {
    if (live_.load(std::memory_order_relaxed) == 0) return false;
    std::lock_guard lock(mutex_);
    return find(pointer) != nullptr;
  }

  bool record(const void* pointer, Queue& queue) {
    if (live_.load(std::memory_order_relaxed) == 0) return false;
    std::lock_guard lock(mutex_);
    PinnedBlock* block = find(pointer);
    if (!block) return false;
    auto& used_by = block->used_by;
    if (std::find(used_by.begin(), used_by.end(), &queue) == used_by.end()) {
      used_by.push_back(&queue);
    }
    return true;
  }

  void release() {
    std::lock_guard lock(mutex_);
    release_idle();
  }

  at::HostStats stats() {
    std::lock_guard lock(mutex_);
    at::HostStats stats;
    stats.active_requests = active_requests_;
    stats.active_bytes = active_bytes_;
    stats.allocations = allocations_;
    stats.allocated_bytes = allocated_bytes_;
    stats.host_alloc_time = alloc_time_;
    stats.host_free_time = free_time_;
    stats.num_host_alloc = allocations_.allocated;
    stats.num_host_free = allocations_.freed;
    return stats;
  }

  template <class Visit>
  void for_each_stat(Visit visit) {
    std::lock_guard lock(mutex_);
    for (Stat* stat : {&active_requests_, &active_bytes_, &allocations_, &allocated_bytes_}) {
      visit(*stat);
    }
    visit(alloc_time_);
    visit(free_time_);
  }

 private:
  PinnedBlock* find(const void* pointer) {
    auto entry = blocks_.upper_bound(static_cast<const char*>(pointer));
    if (entry == blocks_.begin()) return nullptr;
    PinnedBlock* block = std::prev(entry)->second.get();
    return block->live && block->contains(pointer) ? block : nullptr;
  }

  PinnedBlock* reuse(size_t index, const Device& device) {
    auto& candidates = free_[index];
    for (auto entry = candidates.rbegin(); entry != candidates.rend(); ++entry) {
      PinnedBlock* block = *entry;
      // Only the driver that allocated the pages copies from them without staging.
      if (block->owner != &device || !block->idle()) continue;
      candidates.erase(std::next(entry).base());
      return block;
    }
    return nullptr;
  }

  /// To map memory waits for what was enqueued before, so that no stream's queue will do.
  Queue& mapping_queue(Device& device) {
    std::unique_ptr<Queue>& queue = queues_[device.index()];
    if (!queue) queue = std::make_unique<Queue>(device);
    return *queue;
  }

  PinnedBlock* create(size_t size, Device& device) {
    const Timed timed(alloc_time_);
    cl_command_queue queue = mapping_queue(device).handle();
    cl_int code = CL_SUCCESS;
    cl_mem mem = api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                      size, nullptr, &code);
    if (code != CL_SUCCESS) return fail("clCreateBuffer", code, device);
    void* address = api().clEnqueueMapBuffer(queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                             size, 0, nullptr, nullptr, &code);
    if (code != CL_SUCCESS) {
      api().clReleaseMemObject(mem);
      return fail("clEnqueueMapBuffer", code, device);
    }
    auto block = std::make_unique<PinnedBlock>();
    block->mem = mem;
    block->address = static_cast<char*>(address);
    block->size = size;
    block->owner = &device;
    allocations_.increase(1);
    allocated_bytes_.increase(size);
    return (blocks_[block->address] = std::move(block)).get();
  }

  /// Null for "out of memory", which the caller may cure; throws for everything else.
  PinnedBlock* fail(const char* call, cl_int code, const Device& device) {
    const Error error(call, code, &device);
    if (!error.out_of_memory() && code != CL_INVALID_BUFFER_SIZE) throw error;
    refusal_ = error.what();
    return nullptr;
  }

  void release_idle() {
    for (auto& candidates : free_) {
      std::erase_if(candidates, [this](PinnedBlock* block) {
        if (!block->idle()) return false;
        const Timed timed(free_time_);
        api().clEnqueueUnmapMemObject(mapping_queue(*block->owner).handle(), block->mem,
                                      block->address, 0, nullptr, nullptr);
        api().clReleaseMemObject(block->mem);
        allocations_.decrease(1);
        allocated_bytes_.decrease(block->size);
        blocks_.erase(block->address);
        return true;
      });
    }
  }

  std::mutex mutex_;
  std::atomic<size_t> live_{0};  // lets owns() of ordinary memory skip the lock
  std::array<std::unique_ptr<Queue>, kMaxDevices> queues_;      // that memory is mapped on
  std::map<const char*, std::unique_ptr<PinnedBlock>> blocks_;  // live and cached
  std::array<std::vector<PinnedBlock*>, kClasses> free_;        // by class_of(size)
  Stat active_requests_, active_bytes_, allocations_, allocated_bytes_;
  DurationStat alloc_time_, free_time_;  // microseconds in the driver
  std::string refusal_;                  // what it said when it last had no memory
};

// Leaked: pinned tensors may outlive every static object.
PinnedCache& cache() {
  static auto* instance = new PinnedCache();
  return *instance;
}

/// Memory that others allocated, and registered.
class RegisteredMemory {
 public:
  bool add(const char* begin, size_t size) {
    const std::lock_guard lock(mutex_);
    const auto next = ends_.upper_bound(begin);
    if (next != ends_.end() && next->first < begin + size) return false;
    if (next != ends_.begin() && std::prev(next)->second > begin) return false;
    ends_.emplace(begin, begin + size);
    count_.store(ends_.size(), std::memory_order_release);
    return true;
  }

  bool remove(const char* begin) {
    const std::lock_guard lock(mutex_);
    const bool found = ends_.erase(begin) == 1;
    count_.store(ends_.size(), std::memory_order_release);
    return found;
  }

  bool owns(const void* pointer) {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    const auto* address = static_cast<const char*>(pointer);
    const std::lock_guard lock(mutex_);
    const auto next = ends_.upper_bound(address);
    return next != ends_.begin() && address < std::prev(next)->second;
  }

 private:
  std::mutex mutex_;
  std::atomic<size_t> count_{0};  // lets owns() skip the lock where nothing is registered
  std::map<const char*, const char*> ends_;  // by beginnings
};

RegisteredMemory& registered_memory() {
  static auto* instance = new RegisteredMemory();
  return *instance;
}

std::atomic<bool> exiting{false};

// See free_address in allocator.cpp: neither a forked child nor an exiting process calls the
// driver.
void free_pinned(void* context) {
  if (!context || process_was_forked() || exiting.load(std::memory_order_relaxed)) return;
  cache().free(static_cast<PinnedBlock*>(context));
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const c10::Device where(c10::DeviceType::CPU);
    if (size == 0) return {nullptr, nullptr, &free_pinned, where};
    PinnedBlock* block = cache().allocate(size);
    // After the driver's own handlers in registration order, hence before them at exit.
    static const bool registered = std::atexit([] { exiting = true; }) == 0;
    static_cast<void>(registered);
    return {block->address, block, &free_pinned, where};
  }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
  bool record_event(void* pointer, void*, c10::Stream stream) override {
    return cache().record(pointer, queue_of(stream));
  }
  void empty_cache() override { release_pinned_cache(); }
  at::HostStats get_stats() override { return cache().stats(); }
  void reset_accumulated_stats() override {
    cache().for_each_stat([](auto& stat) { stat.reset_accumulated(); });
  }
  void reset_peak_stats() override {
    cache().for_each_stat([](auto& stat) { stat.reset_peak(); });
  }
};

PinnedAllocator instance;
REGISTER_HOST_ALLOCATOR(kDeviceType, &instance);

}  // namespace

c10::Allocator* pinned_allocator() { return &instance; }

bool is_pinned(const void* pointer) noexcept {
  return !process_was_forked() && (cache().owns(pointer) || registered_memory().owns(pointer));
}

bool register_host_memory(const void* pointer, size_t size) {
  if (cache().owns(pointer)) return false;
  at::globalContext().lazyInitDevice(kDeviceType);  // nothing is pinned before
  return registered_memory().add(static_cast<const char*>(pointer), size);
}

bool unregister_host_memory(const void* pointer) {
  return registered_memory().remove(static_cast<const char*>(pointer));
}

void record_host_use(const void* pinned_pointer, Queue& queue) {
  cache().record(pinned_pointer, queue);
}

void release_pinned_cache() {
  if (!process_was_forked()) cache().release();
}

}  // namespace ocl
