// Matrix-vector products (GEMV), of few columns, with rows of a contiguous: dot products.
#include "include/item_by_item.clh"
#include "include/prefetch.clh"
#include "gemm/skinny.clh"

/// Needs a.column == 1 and b.row == 1 (gemm_copy_lines sees to that). A work-item's rows stay in
/// the nearer caches while they meet NQ columns at a time. Global size: m / ROWS, splits, batch or
/// more.
kernel ITEM_BY_ITEM void gemm_skinny_dot(OPERANDS PIECE_PARAMETERS) {
  const ulong row0 = get_global_id(0) * ROWS, split = get_global_id(1), z = get_global_id(2);
  if (row0 >= p.m) return;
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  // Rows and columns past the end repeat the last one, so that the loop has no conditions.
  global const char* x[ROWS];
#pragma unroll
  for (uint i = 0; i < ROWS; i++) {
    x[i] = ROW_OF_A(min(row0 + i, (ulong)p.m - 1));
  }
  const uint rows = min((ulong)ROWS, p.m - row0);
  for (uint column0 = 0; column0 < p.n; column0 += NQ) {
    global const char* y[NQ];
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      y[q] = b + min(column0 + q, p.n - 1) * p.b.column * STORAGE_SIZE(IN1);
    }
    V sum[ROWS][NQ];
#pragma unroll
    for (uint i = 0; i < ROWS; i++) {
#pragma unroll
      for (uint q = 0; q < NQ; q++) sum[i][q] = (V)(0);
    }
    ulong kk = start;
#if ROWS == 1 && NQ == 1
    // One sum would wait for each addition, and the processor's own prefetching stops at a page's
    // end.
    V others[3] = {(V)(0), (V)(0), (V)(0)};
    for (; kk + 4 * WIDTH <= end; kk += 4 * WIDTH) {
      PREFETCH_PAGE_AHEAD(IN0, 4 * WIDTH, x[0] + kk * STORAGE_SIZE(IN0), 0);
      PREFETCH_PAGE_AHEAD(IN1, 4 * WIDTH, y[0] + kk * STORAGE_SIZE(IN1), 0);
#pragma unroll
      for (uint u = 0; u < 4; u++) {
        V row = LOADV_AS(C, IN0, WIDTH, x[0] + kk * STORAGE_SIZE(IN0), u);
        V column = LOADV_AS(C, IN1, WIDTH, y[0] + kk * STORAGE_SIZE(IN1), u);
        row = CONJUGATE(row, p.flags & kConjugateA);
        column = CONJUGATE(column, p.flags & kConjugateB);
       private V* to = u == 0 ? &sum[0][0] : &others[u - 1];
        *to = MAD(row, column, *to);
      }
    }
    sum[0][0] = (sum[0][0] + others[0]) + (others[1] + others[2]);
#endif
    for (; kk + WIDTH <= end; kk += WIDTH) {
      V column[NQ];
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        column[q] = LOADV_AS(C, IN1, WIDTH, y[q] + kk * STORAGE_SIZE(IN1), 0);
        column[q] = CONJUGATE(column[q], p.flags & kConjugateB);
      }
#pragma unroll
      for (uint i = 0; i < ROWS; i++) {
        V row = LOADV_AS(C, IN0, WIDTH, x[i] + kk * STORAGE_SIZE(IN0), 0);
        row = CONJUGATE(row, p.flags & kConjugateA);
#pragma unroll
        for (uint q = 0; q < NQ; q++) sum[i][q] = MAD(row, column[q], sum[i][q]);
      }
    }
    T totals[ROWS * NQ];
#pragma unroll
    for (uint i = 0; i < ROWS; i++) {
#pragma unroll
      for (uint q = 0; q < NQ; q++) totals[i * NQ + q] = HSUM(WIDTH, sum[i][q]);
    }
    // Not unrolled: the epilogue is long, and compiling it many times would cost more than it
    // saves.
    const uint columns = min((uint)NQ, p.n - column0);
    for (uint i = 0; i < rows; i++) {
      for (uint q = 0; q < columns; q++) {
        T total = totals[i * NQ + q];
        for (ulong tail = kk; tail < end; tail++) {
          const T u = CONJUGATE(LOAD_AS(C, IN0, x[i], tail), p.flags & kConjugateA);
          const T w = B_AT(tail, (ulong)(column0 + q));
          total = MAD(u, w, total);
        }
        EPILOGUE_OR_SPLIT(z, split, row0 + i, (ulong)(column0 + q), total);
      }
    }
  }
}
