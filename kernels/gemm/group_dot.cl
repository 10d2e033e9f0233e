// Few columns, on devices where neighbouring work-items should read neighbouring elements: a
// work-group per row. Compile parameters besides skinny.clh's: LOCAL (its size, a power of 2).
#include "gemm/skinny.clh"

#ifndef LOCAL
#define LOCAL 64
#endif

/// Any strides. Global size: LOCAL * m, splits, batch.
kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void gemm_group_dot(OPERANDS) {
  local T parts[LOCAL];
  const ulong row = get_group_id(0), split = get_global_id(1), z = get_global_id(2);
  const uint item = get_local_id(0);
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  T sum[NQ];
#pragma unroll
  for (uint q = 0; q < NQ; q++) sum[q] = (T)(0);
  for (ulong kk = start + item; kk < end; kk += LOCAL) {
    const T u = A_AT(row, kk);
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      const T w = B_AT(kk, (ulong)min(q, p.n - 1));
      sum[q] = MAD(u, w, sum[q]);
    }
  }
#pragma unroll
  for (uint q = 0; q < NQ; q++) {
    parts[item] = sum[q];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = LOCAL / 2; half_size > 0; half_size /= 2) {
      if (item < half_size) parts[item] += parts[item + half_size];
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item == 0 && q < p.n) FINISH_OR_SPLIT(z, split, row, (ulong)q, parts[0]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
