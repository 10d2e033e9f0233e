// What the host can still give: CPU devices allocate from the same memory, lazily, and their
// drivers report success past its end.
#pragma once

#include <cstddef>
#include <limits>

namespace ocl {

inline constexpr size_t kUnknownHostMemory = std::numeric_limits<size_t>::max();

/// Bytes this process may still take without swapping, by /proc/meminfo and its memory cgroup;
/// kUnknownHostMemory where the system does not say.
size_t available_host_memory();
/// The memory cgroup's limit in bytes, kUnknownHostMemory without one.
size_t host_memory_limit();

}  // namespace ocl
