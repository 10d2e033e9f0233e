// gemm_split_k for few elements of many parts: a work-group adds up those of one, side by side.
// Compile parameter: LOCAL (its work-items, a power of 2).
#include "gemm/gemm.clh"

#ifndef LOCAL
#define LOCAL 128
#endif

/// Global size: LOCAL * m * n, batch.
kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void gemm_split_k_group(OPERANDS) {
  local T totals[LOCAL];
  const ulong i = get_group_id(0), z = get_group_id(1);
  const uint item = get_local_id(0);
  ADVANCE_OPERANDS(z);
  global const T* sums = (global const T*)workspace;
  T total = (T)(0);
  for (ulong split = item; split < p.splits; split += LOCAL) {
    total += sums[(split * p.batch + z) * p.m * p.n + i];
  }
  totals[item] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = LOCAL / 2; half_size > 0; half_size /= 2) {
    if (item < half_size) totals[item] += totals[item + half_size];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (item == 0) EPILOGUE(z, i / p.n, i % p.n, totals[0]);
}
