// Products whose k is split into parts (split-K): how, and what adds up the parts' sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/gemm/plan.h"

namespace ocl::gemm {

/// Sets splits and split_k so that about `target` work-items run where `items` would, with no part
/// of k shorter than `least` and parts a multiple of `multiple`.
void split_k(Arguments& problem, int64_t items, int64_t target, int64_t least, int64_t multiple);
/// Bytes of the sums that a split product leaves; 0 if it is not split.
size_t split_bytes(const Plan& plan);
/// Adds up the sums and applies the epilogue. No work if k is not split.
void finish_split(const Plan& plan, const void* sums);

}  // namespace ocl::gemm
