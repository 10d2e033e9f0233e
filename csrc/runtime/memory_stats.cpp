#include "runtime/memory_stats.h"

namespace ocl {

template <class Visit>
void MemoryStats::for_each_array(Visit visit) {
  for (StatArray* array :
       {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
        &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
        &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
    for (auto& stat : *array) visit(stat);
  }
  visit(stats_.oversize_allocations);
  visit(stats_.oversize_segments);
}

void MemoryStats::reset_accumulated() {
  for_each_array([](auto& stat) { stat.reset_accumulated(); });
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
  stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = 0;
  stats_.num_device_free = 0;
}

void MemoryStats::reset_peak() {
  for_each_array([](auto& stat) { stat.reset_peak(); });
}

}  // namespace ocl
