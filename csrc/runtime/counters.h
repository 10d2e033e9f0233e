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

/// Has the first note_use() and note_op() from now on make an empty file each, in this process and
/// in those that it forks: `prefix` and ".ocl", `prefix` and ".cpu".
void announce_use(std::string prefix);
/// For the moments at which a process takes memory of a device or makes an empty tensor there.
void note_use() noexcept;
/// For the first op of a process, on whatever device.
void note_op() noexcept;
/// Whether there was such a moment.
bool was_used();
bool op_ran();

}  // namespace ocl
