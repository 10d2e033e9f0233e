// Memory: statistics, cache control, addresses.
#include <ATen/core/CachingHostAllocator.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <string>

#include "opencl/device.h"
#include "opencl/platform.h"
#include "python/bindings.h"
#include "runtime/allocator.h"
#include "runtime/host_allocator.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

void add(py::dict& out, const std::string& key, const Stat& stat) {
  out[py::str(key + ".current")] = stat.current;
  out[py::str(key + ".peak")] = stat.peak;
  out[py::str(key + ".allocated")] = stat.allocated;
  out[py::str(key + ".freed")] = stat.freed;
}

void add(py::dict& out, const std::string& key, const StatArray& stats) {
  static constexpr const char* kPools[] = {".all", ".small_pool", ".large_pool"};
  for (size_t pool = 0; pool < stats.size(); ++pool) add(out, key + kPools[pool], stats[pool]);
}

// The keys of torch.cuda.memory_stats().
py::dict stats_dict(const DeviceStats& stats) {
  py::dict out;
  add(out, "allocation", stats.allocation);
  add(out, "segment", stats.segment);
  add(out, "active", stats.active);
  add(out, "inactive_split", stats.inactive_split);
  add(out, "allocated_bytes", stats.allocated_bytes);
  add(out, "reserved_bytes", stats.reserved_bytes);
  add(out, "active_bytes", stats.active_bytes);
  add(out, "inactive_split_bytes", stats.inactive_split_bytes);
  add(out, "requested_bytes", stats.requested_bytes);
  add(out, "oversize_allocations", stats.oversize_allocations);
  add(out, "oversize_segments", stats.oversize_segments);
  out["num_alloc_retries"] = stats.num_alloc_retries;
  out["num_ooms"] = stats.num_ooms;
  out["num_sync_all_streams"] = stats.num_sync_all_streams;
  out["num_device_alloc"] = stats.num_device_alloc;
  out["num_device_free"] = stats.num_device_free;
  out["max_split_size"] = stats.max_split_size;
  return out;
}

void add(py::dict& out, const std::string& key, const c10::CachingAllocator::DurationStat& stat) {
  out[py::str(key + ".total")] = stat.total;
  out[py::str(key + ".max")] = stat.max;
  out[py::str(key + ".min")] = stat.min;
  out[py::str(key + ".count")] = stat.count;
  out[py::str(key + ".avg")] = stat.count == 0 ? 0 : stat.total / stat.count;
}

// The keys of torch.cuda.host_memory_stats().
py::dict host_stats_dict(const at::HostStats& stats) {
  py::dict out;
  add(out, "active_requests", stats.active_requests);
  add(out, "active_bytes", stats.active_bytes);
  add(out, "allocations", stats.allocations);
  add(out, "allocated_bytes", stats.allocated_bytes);
  add(out, "host_alloc_time", stats.host_alloc_time);
  add(out, "host_free_time", stats.host_free_time);
  out["num_host_alloc"] = stats.num_host_alloc;
  out["num_host_free"] = stats.num_host_free;
  return out;
}

c10::DeviceIndex index_of(int index) { return static_cast<c10::DeviceIndex>(index); }

template <class Run>
double nanoseconds_per_run(int64_t runs, Run run) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < runs; ++i) run();
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / static_cast<double>(runs);
}

}  // namespace

void bind_memory(py::module_& module) {
  module.def("register_host_memory", [](uintptr_t pointer, size_t size) {
    return register_host_memory(reinterpret_cast<const void*>(pointer), size);
  });
  module.def("unregister_host_memory", [](uintptr_t pointer) {
    return unregister_host_memory(reinterpret_cast<const void*>(pointer));
  });
  module.def("memory_stats", [](int index) {
    DeviceStats stats;
    if (is_initialized() && !process_was_forked()) {
      py::gil_scoped_release release;
      stats = allocator()->getDeviceStats(index_of(index));
    }
    return stats_dict(stats);
  });
  module.def(
      "reset_peak_memory_stats", [](int index) { allocator()->resetPeakStats(index_of(index)); },
      release_gil());
  module.def(
      "reset_accumulated_memory_stats",
      [](int index) { allocator()->resetAccumulatedStats(index_of(index)); }, release_gil());
  module.def("host_memory_stats", [] {
    at::HostStats stats;
    if (is_initialized() && !process_was_forked()) {
      py::gil_scoped_release release;
      stats = at::getHostAllocator(kDeviceType)->get_stats();
    }
    return host_stats_dict(stats);
  });
  module.def(
      "reset_peak_host_memory_stats", [] { at::getHostAllocator(kDeviceType)->reset_peak_stats(); },
      release_gil());
  module.def(
      "reset_accumulated_host_memory_stats",
      [] { at::getHostAllocator(kDeviceType)->reset_accumulated_stats(); }, release_gil());
  module.def("empty_cache", [] { allocator()->emptyCache(); }, release_gil());
  module.def("empty_host_cache", &release_pinned_cache, release_gil());
  module.def(
      "mem_get_info", [](int index) { return allocator()->getMemoryInfo(index_of(index)); },
      release_gil());
  module.def(
      "set_memory_fraction",
      [](int index, double fraction) { set_memory_fraction(index_of(index), fraction); },
      release_gil());
  module.def(
      "memory_fraction", [](int index) { return memory_fraction(index_of(index)); }, release_gil());

  // For tests and benchmarks of the warm paths.
  module.def(
      "benchmark_allocator",
      [](size_t bytes, int64_t runs) {
        return nanoseconds_per_run(runs, [bytes] { allocator()->allocate(bytes).clear(); });
      },
      py::arg("bytes"), py::arg("runs"), release_gil(),
      "Nanoseconds that one allocation of `bytes` and its free take.");
  module.def(
      "benchmark_address_lookup",
      [](uint64_t address, int64_t runs) {
        const auto* pointer = reinterpret_cast<const void*>(address);
        const auto index = device_of_pointer(pointer);
        if (!index) throw py::value_error("not an address of an ocl device");
        const AddressSpace& space = device(*index).addresses();
        uint64_t sum = 0;
        const double spent = nanoseconds_per_run(runs, [&] {
          sum += space.find(pointer).offset;
          asm volatile("" : "+r"(pointer), "+r"(sum));
        });
        return spent;
      },
      py::arg("address"), py::arg("runs"), release_gil(),
      "Nanoseconds that finding the buffer and offset of a device address takes.");
  module.def("benchmark_current_queue", [](int64_t runs) {
    uintptr_t sum = 0;
    return nanoseconds_per_run(runs, [&] {
      sum += reinterpret_cast<uintptr_t>(&current_queue(0));
      asm volatile("" : "+r"(sum));
    });
  });
}

}  // namespace ocl::python
