#include "runtime/host_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "opencl/ceil_div.h"

namespace ocl {
namespace {

// The value in the file, or "unknown" if it is missing or says "max". cgroup v1 writes a number
// near 2^63 for "no limit", which min() with anything else drops.
size_t read_bytes(const char* path) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : kUnknownHostMemory;
}

size_t mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (size_t kib = 0; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return kUnknownHostMemory;
}

// inactive_file pages are cache the kernel gives back on demand, so they count as available.
size_t cgroup_reclaimable(const char* path) {
  std::ifstream file(path);
  std::string key;
  for (size_t value = 0; file >> key >> value;) {
    if (key == "inactive_file" || key == "total_inactive_file") return value;
  }
  return 0;
}

struct Cgroup {
  const char *limit, *usage, *stat;
};
constexpr Cgroup kCgroups[] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
     "/sys/fs/cgroup/memory/memory.stat"},
};

/// `ulimit -v`, which counts what is reserved too.
size_t address_space_limit() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? static_cast<size_t>(limit.rlim_cur) : kUnknownHostMemory;
}

size_t address_space_used() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  return file >> pages ? pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

// glibc maps anything larger by itself, so that the advice goes with the memory when it is freed.
constexpr size_t kMapped = size_t{32} << 20;
// MADV_POPULATE_WRITE; headers older than Linux 5.14 lack the name.
constexpr int kPopulateWrite = 23;

}  // namespace

void populate_host_memory(void* begin, size_t bytes) {
  if (bytes < kMapped) return;
  const size_t page = sysconf(_SC_PAGESIZE);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = round_up(address, page);
  const uintptr_t last = (address + bytes) / page * page;
  // Advice: what the system does not take changes nothing.
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  madvise(reinterpret_cast<void*>(first), last - first, kPopulateWrite);
}

size_t host_memory_limit() {
  size_t limit = address_space_limit();
  for (const Cgroup& group : kCgroups) limit = std::min(limit, read_bytes(group.limit));
  return limit;
}

size_t available_host_memory() {
  size_t available = mem_available();
  if (const size_t limit = address_space_limit(); limit != kUnknownHostMemory) {
    available = std::min(available, limit - std::min(limit, address_space_used()));
  }
  for (const Cgroup& group : kCgroups) {
    const size_t limit = read_bytes(group.limit);
    const size_t usage = read_bytes(group.usage);
    if (limit == kUnknownHostMemory || usage == kUnknownHostMemory) continue;
    const size_t used = usage - std::min(usage, cgroup_reclaimable(group.stat));
    available = std::min(available, limit - std::min(limit, used));
  }
  return available;
}

}  // namespace ocl
