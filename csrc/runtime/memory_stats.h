// The allocator's statistics, kept under the keys c10::CachingDeviceAllocator::DeviceStats defines.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace ocl {

/// DeviceStats plus what to do to it when a block or segment changes state.
class MemoryStats {
 public:
  using Stats = c10::CachingDeviceAllocator::DeviceStats;
  using StatArray = c10::CachingAllocator::StatArray;
  using StatType = c10::CachingAllocator::StatType;

  const Stats& get() const { return stats_; }
  int64_t reserved() const { return current(stats_.reserved_bytes); }
  int64_t allocated() const { return current(stats_.allocated_bytes); }

  void on_allocate(bool small, size_t size, size_t requested) {
    increase(stats_.allocation, small, 1);
    increase(stats_.allocated_bytes, small, size);
    increase(stats_.requested_bytes, small, requested);
    increase(stats_.active, small, 1);
    increase(stats_.active_bytes, small, size);
  }
  /// The owner let go of a block; its memory may still be in use by a stream.
  void on_free(bool small, size_t size) {
    decrease(stats_.allocation, small, 1);
    decrease(stats_.allocated_bytes, small, size);
  }
  void on_inactive(bool small, size_t size, size_t requested) {
    decrease(stats_.requested_bytes, small, requested);
    decrease(stats_.active, small, 1);
    decrease(stats_.active_bytes, small, size);
  }
  void on_inactive_split(bool small, int64_t blocks, int64_t bytes) {
    change(stats_.inactive_split, small, blocks);
    change(stats_.inactive_split_bytes, small, bytes);
  }
  void on_segment_created(bool small, size_t size) {
    increase(stats_.segment, small, 1);
    increase(stats_.reserved_bytes, small, size);
    ++stats_.num_device_alloc;
  }
  void on_segment_released(bool small, size_t size) {
    decrease(stats_.segment, small, 1);
    decrease(stats_.reserved_bytes, small, size);
    ++stats_.num_device_free;
  }
  void on_retry() { ++stats_.num_alloc_retries; }
  void on_out_of_memory() { ++stats_.num_ooms; }
  void on_synchronize() { ++stats_.num_sync_all_streams; }

  void reset_accumulated();
  void reset_peak();

 private:
  static int64_t current(const StatArray& array) {
    return array[static_cast<size_t>(StatType::AGGREGATE)].current;
  }
  static size_t kind(bool small) {
    return static_cast<size_t>(small ? StatType::SMALL_POOL : StatType::LARGE_POOL);
  }
  static void increase(StatArray& array, bool small, size_t amount) {
    array[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
    array[kind(small)].increase(amount);
  }
  static void decrease(StatArray& array, bool small, size_t amount) {
    array[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
    array[kind(small)].decrease(amount);
  }
  static void change(StatArray& array, bool small, int64_t amount) {
    if (amount > 0) increase(array, small, static_cast<size_t>(amount));
    if (amount < 0) decrease(array, small, static_cast<size_t>(-amount));
  }
  template <class Visit>
  void for_each_array(Visit visit);

  Stats stats_;
};

}  // namespace ocl
