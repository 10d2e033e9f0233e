// Memory that the host can still give: CPU devices allocate from the same memory, lazily, and their
// drivers report success past its end.
#pragma once

#include <cstddef>
#include <limits>

namespace ocl {

inline constexpr size_t kUnknownHostMemory = std::numeric_limits<size_t>::max();

/// Bytes this process may still take without swapping, by /proc/meminfo, its memory cgroup and its
/// limit of address space (RLIMIT_AS, `ulimit -v`); kUnknownHostMemory where the system does not
/// say.
size_t available_host_memory();
/// Takes the pages of a large piece of host memory that is about to be overwritten from the system
/// at once, huge ones where it has them; what is there already stays. A driver's copy into fresh
/// memory would take them one by one: three times the time of the copy. Nothing happens below 32
/// MiB, where memory comes from a heap that has its pages, and on systems before Linux 5.14.
void populate_host_memory(void* begin, size_t bytes);
/// The smaller of the memory cgroup's limit and that of address space in bytes, kUnknownHostMemory
/// without either.
size_t host_memory_limit();

}  // namespace ocl
