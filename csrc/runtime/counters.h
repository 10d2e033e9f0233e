// Counts of the ops that left the device: CPU fallbacks and ops staged through the host on purpose.
// And a file by which another process knows that this one has used a device.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ocl {

/// Records one run of `op` on the CPU because it has no kernel here (TORCH_OCL_FALLBACK=1). Returns
/// the new count, so that the caller can warn the first time. Thread-safe.
uint64_t count_fallback(std::string_view op);
/// Records one run of an op whose kernel computes on the host by design (LAPACK). Thread-safe.
uint64_t count_host_staged(std::string_view op);

/// Snapshots, op name -> runs.
std::map<std::string, uint64_t> fallback_counts();
std::map<std::string, uint64_t> host_staged_counts();
void reset_fallback_counts();
void reset_host_staged_counts();

/// Has note_use() make an empty file, once, in this process and in those that it forks.
void announce_use(std::string file);
/// For the moment at which a process takes memory of a device.
void note_use() noexcept;

}  // namespace ocl
