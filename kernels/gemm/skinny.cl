// Products with few columns (matrix times vector, dot, a linear layer on a small batch): bound by
// reading the large matrix a, which happens once, in order.
//
// Compile parameters besides gemm.clh's: WIDTH (1 for a complex C), NQ (columns, n rounded up to 1, 2,
// 4 or 8), ROWS (rows, or vectors of rows, per work-item), LOCAL (gemm_group_dot's work-group).
#include "gemm/gemm.clh"

#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef NQ
#define NQ 1
#endif
#ifndef ROWS
#define ROWS 4
#endif

#ifndef LOCAL
#define LOCAL 64
#endif

typedef TYPEV(C, WIDTH) V;

/// Copies a to the workspace as T[z][m][k], for gemm_skinny_dot. Global size: k, m, batch or more.
kernel void gemm_gather_rows(OPERANDS) {
  const ulong kk = get_global_id(0), row = get_global_id(1), z = get_global_id(2);
  if (kk >= p.k) return;
  ADVANCE_OPERANDS(z);
  ((global T *)workspace)[(z * p.m + row) * p.k + kk] = A_AT(row, kk);
}

/// Copies b to the workspace as T[z][n][k]. Global size: k, n, batch or more.
kernel void gemm_gather_columns(OPERANDS) {
  const ulong kk = get_global_id(0), column = get_global_id(1), z = get_global_id(2);
  if (kk >= p.k) return;
  ADVANCE_OPERANDS(z);
  ((global T *)workspace)[(z * p.n + column) * p.k + kk] = B_AT(kk, column);
}

/// a's rows are contiguous (a_column == 1), and so are b's columns (b_row == 1): dot products.
/// Global size: m / ROWS, splits, batch or more.
kernel void gemm_skinny_dot(OPERANDS) {
  const ulong row0 = get_global_id(0) * ROWS, split = get_global_id(1), z = get_global_id(2);
  if (row0 >= p.m) return;
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  global const char *x[ROWS], *y[NQ];
  // Rows and columns past the end repeat the last one, so that the loop has no conditions.
#pragma unroll
  for (uint i = 0; i < ROWS; i++) {
    x[i] = a + min(row0 + i, (ulong)p.m - 1) * p.a_row * STORAGE_SIZE(IN0);
  }
#pragma unroll
  for (uint q = 0; q < NQ; q++) {
    y[q] = b + min(q, p.n - 1) * p.b_column * STORAGE_SIZE(IN1);
  }
  V sum[ROWS][NQ];
#pragma unroll
  for (uint i = 0; i < ROWS; i++) {
#pragma unroll
    for (uint q = 0; q < NQ; q++) sum[i][q] = (V)(0);
  }
  ulong kk = start;
  for (; kk + WIDTH <= end; kk += WIDTH) {
    V column[NQ];
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      column[q] = LOADV_AS(C, IN1, WIDTH, y[q] + kk * STORAGE_SIZE(IN1), 0);
      column[q] = CONJUGATE(column[q], p.flags & FLAG_CONJUGATE_B);
    }
#pragma unroll
    for (uint i = 0; i < ROWS; i++) {
      V row = LOADV_AS(C, IN0, WIDTH, x[i] + kk * STORAGE_SIZE(IN0), 0);
      row = CONJUGATE(row, p.flags & FLAG_CONJUGATE_A);
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
  // Not unrolled: the epilogue is long, and compiling it many times would cost more than it saves.
  const uint rows = min((ulong)ROWS, p.m - row0);
  for (uint i = 0; i < rows; i++) {
    for (uint q = 0; q < p.n; q++) {
      T total = totals[i * NQ + q];
      for (ulong tail = kk; tail < end; tail++) {
        const T u = A_AT(row0 + i, tail), w = B_AT(tail, (ulong)q);
        total = MAD(u, w, total);
      }
      FINISH_OR_SPLIT(z, split, row0 + i, (ulong)q, total);
    }
  }
}

/// a's columns are contiguous (a_row == 1): sums of scaled columns. b may have any strides.
/// Global size: m / (ROWS * WIDTH), splits, batch or more.
kernel void gemm_skinny_axpy(OPERANDS) {
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

/// As gemm_skinny_dot, any strides, one work-group per row and split: neighbouring work-items read
/// neighbouring elements. Global size: LOCAL * m, splits, batch.
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
