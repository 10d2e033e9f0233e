// Counts of the ops that left the device: CPU fallbacks and ops staged through the host on purpose.
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

}  // namespace ocl
