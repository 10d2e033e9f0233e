// Few columns, columns of a contiguous: sums of scaled columns.
#include "include/item_by_item.clh"
#include "gemm/skinny.clh"

/// Needs a_row == 1; b may have any strides.
/// Global size: m / (ROWS * WIDTH), splits, batch or more.
kernel ITEM_BY_ITEM void gemm_skinny_axpy(OPERANDS) {
  const ulong row0 = get_global_id(0) * ROWS * WIDTH;
  const ulong split = get_global_id(1), z = get_global_id(2);
  if (row0 >= p.m) return;
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  if (row0 + ROWS * WIDTH > p.m) {
    for (ulong row = row0; row < p.m; row++) {
      for (ulong q = 0; q < p.n; q++) {
        T total = (T)(0);
        for (ulong kk = start; kk < end; kk++) {
          const T u = A_AT(row, kk), w = B_AT(kk, q);
          total = MAD(u, w, total);
        }
        FINISH_OR_SPLIT(z, split, row, q, total);
      }
    }
    return;
  }
  V sum[ROWS][NQ];
#pragma unroll
  for (uint i = 0; i < ROWS; i++) {
#pragma unroll
    for (uint q = 0; q < NQ; q++) sum[i][q] = (V)(0);
  }
  for (ulong kk = start; kk < end; kk++) {
    T scale[NQ];
#pragma unroll
    for (uint q = 0; q < NQ; q++) scale[q] = B_AT(kk, (ulong)min(q, p.n - 1));
    global const char *x = a + (row0 + kk * p.a_column) * STORAGE_SIZE(IN0);
#pragma unroll
    for (uint i = 0; i < ROWS; i++) {
      V column = LOADV_AS(C, IN0, WIDTH, x, i);
      column = CONJUGATE(column, p.flags & FLAG_CONJUGATE_A);
#pragma unroll
      for (uint q = 0; q < NQ; q++) sum[i][q] = MAD(column, (V)(scale[q]), sum[i][q]);
    }
  }
  V tile[ROWS * NQ];
#pragma unroll
  for (uint i = 0; i < ROWS; i++) {
#pragma unroll
    for (uint q = 0; q < NQ; q++) tile[q * ROWS + i] = sum[i][q];
  }
  private const T *totals = (private const T *)tile;
  for (uint q = 0; q < p.n; q++) {
    for (uint i = 0; i < ROWS * WIDTH; i++) {
      const T total = totals[q * ROWS * WIDTH + i];
      FINISH_OR_SPLIT(z, split, row0 + i, (ulong)q, total);
    }
  }
}
