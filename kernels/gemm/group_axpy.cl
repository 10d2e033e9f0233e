// Few columns, columns of a contiguous, on devices where neighbouring work-items should read
// neighbouring elements: ROW_ITEMS of them share WIDTH * ROW_ITEMS rows, DEPTH groups of those take
// turns along k and are added up in local memory.
//
// Compile parameters besides skinny.clh's: ROW_ITEMS, DEPTH (a power of 2), IN_FLIGHT (loads that
// are under way per work-item). With WIDTH above 1 rows are aligned to that many elements, and m is
// a multiple of it.
#include "gemm/skinny.clh"

#ifndef ROW_ITEMS
#define ROW_ITEMS 32
#endif
#ifndef DEPTH
#define DEPTH 8
#endif
#ifndef IN_FLIGHT
#define IN_FLIGHT 2
#endif

/// Needs a.row == 1; b may have any strides.
/// Global size: ROW_ITEMS * DEPTH * m / (ROW_ITEMS * WIDTH), splits, batch.
kernel __attribute__((reqd_work_group_size(ROW_ITEMS * DEPTH, 1, 1))) void gemm_group_axpy(
    OPERANDS) {
  local V parts[ROW_ITEMS * DEPTH];
  const uint lane = get_local_id(0) % ROW_ITEMS, turn = get_local_id(0) / ROW_ITEMS;
  const ulong row = ((ulong)get_group_id(0) * ROW_ITEMS + lane) * WIDTH;
  const ulong split = get_global_id(1), z = get_global_id(2);
  const uint start = split * p.split_k, end = min(start + p.split_k, p.k);
  ADVANCE_OPERANDS(z);
  // Work-items past the last row read it too.
  a += (row < p.m ? row : p.m - WIDTH) * STORAGE_SIZE(IN0);
  V sum[NQ];
#pragma unroll
  for (uint q = 0; q < NQ; q++) sum[q] = (V)(0);
  uint kk = start + turn;
  for (; kk + (IN_FLIGHT - 1) * DEPTH < end; kk += IN_FLIGHT * DEPTH) {
    V column[IN_FLIGHT];
#pragma unroll
    for (uint i = 0; i < IN_FLIGHT; i++) {
      column[i] = LOADV_AS(C, IN0, WIDTH, a + (kk + i * DEPTH) * p.a.column * STORAGE_SIZE(IN0), 0);
    }
#pragma unroll
    for (uint i = 0; i < IN_FLIGHT; i++) {
      column[i] = CONJUGATE(column[i], p.flags & kConjugateA);
    }
    // Sums of sums: of a long k one after the other would lose digits.
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      V some = (V)(0);
#pragma unroll
      for (uint i = 0; i < IN_FLIGHT; i++) {
        const T scale = B_AT((ulong)(kk + i * DEPTH), (ulong)min(q, p.n - 1));
        some = MAD(column[i], (V)(scale), some);
      }
      sum[q] += some;
    }
  }
  for (; kk < end; kk += DEPTH) {
    V column = LOADV_AS(C, IN0, WIDTH, a + kk * p.a.column * STORAGE_SIZE(IN0), 0);
    column = CONJUGATE(column, p.flags & kConjugateA);
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      const T scale = B_AT((ulong)kk, (ulong)min(q, p.n - 1));
      sum[q] = MAD(column, (V)(scale), sum[q]);
    }
  }
#pragma unroll
  for (uint q = 0; q < NQ; q++) {
    parts[get_local_id(0)] = sum[q];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = DEPTH / 2; half_size > 0; half_size /= 2) {
      if (turn < half_size) {
        parts[get_local_id(0)] += parts[get_local_id(0) + half_size * ROW_ITEMS];
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (turn == 0 && q < p.n && row < p.m) {
      for (uint i = 0; i < WIDTH; i++) {
        const T total = ((local const T*)(parts + lane))[i];
        EPILOGUE_OR_SPLIT(z, split, row + i, (ulong)q, total);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
