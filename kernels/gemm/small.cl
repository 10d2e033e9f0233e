// Small products in one launch: a work-item takes ROWS rows and WIDTH columns of the product, and
// reads the operands as they lie. Global size: ceil(n / WIDTH), ceil(m / ROWS), batch or more.
//
// Compile parameters, besides gemm.clh's: ROWS, WIDTH (1 for complex C, which has no vectors).
#include "include/item_by_item.clh"
#include "gemm/gemm.clh"

#ifndef ROWS
#define ROWS 4
#endif
#ifndef WIDTH
#define WIDTH 8
#endif

#include "gemm/store_lanes.clh"

typedef TYPEV(C, WIDTH) V;

#define UPDATE(columns)                                 \
  do {                                                  \
    const V y_ = columns;                               \
    _Pragma("unroll") for (uint i = 0; i < ROWS; i++) { \
      const T x_ = A_AT(rows[i], kk);                   \
      sum[i] = MAD((V)(x_), y_, sum[i]);                \
    }                                                   \
  } while (0)

kernel ITEM_BY_ITEM void gemm_small(OPERANDS) {
  const ulong column0 = get_global_id(0) * WIDTH, row0 = get_global_id(1) * ROWS;
  const ulong z = get_global_id(2);
  if (column0 >= p.n || row0 >= p.m || z >= p.batch) return;
  ADVANCE_OPERANDS(z);
  // Rows past the end repeat the last one, so that the loop has no conditions.
  ulong rows[ROWS];
  V sum[ROWS];
#pragma unroll
  for (uint i = 0; i < ROWS; i++) {
    rows[i] = min(row0 + i, (ulong)p.m - 1);
    sum[i] = (V)(0);
  }
#if WIDTH > 1
  const bool whole = column0 + WIDTH <= p.n;
  if (whole && p.b.column == 1) {
    for (ulong kk = 0; kk < p.k; kk++) {
      UPDATE(LOADV_AS(C, IN1, WIDTH, b + (kk * p.b.row + column0) * STORAGE_SIZE(IN1), 0));
    }
  } else {
    for (ulong kk = 0; kk < p.k; kk++) {
      T lanes[WIDTH];
#pragma unroll
      for (uint j = 0; j < WIDTH; j++) lanes[j] = B_AT(kk, min(column0 + j, (ulong)p.n - 1));
      UPDATE(PASTE2(vload, WIDTH)(0, lanes));
    }
  }
#if ACTIVATION == 0
  if (whole && p.out.column == 1 && (!(p.flags & kAddend) || p.c.column == 1) && LANES_STORE) {
    for (uint i = 0; i < ROWS && row0 + i < p.m; i++) {
      V value = MAD((V)(alpha), sum[i], (V)(0));
      if (p.flags & kAddend) {
        const V addend =
            LOADV_AS(C, OUT, WIDTH, c + ((row0 + i) * p.c.row + column0) * STORAGE_SIZE(OUT), 0);
        value = MAD((V)(beta), addend, value);
      }
      STORE_LANES(z, row0 + i, column0,
                  out + ((row0 + i) * p.out.row + column0) * STORAGE_SIZE(OUT), value);
    }
    return;
  }
#endif
  T totals[ROWS * WIDTH];
#pragma unroll
  for (uint i = 0; i < ROWS; i++) PASTE2(vstore, WIDTH)(sum[i], i, totals);
#else
  for (ulong kk = 0; kk < p.k; kk++) UPDATE(B_AT(kk, column0));
  const T* totals = sum;
#endif
  for (uint i = 0; i < ROWS && row0 + i < p.m; i++) {
    for (uint j = 0; j < WIDTH && column0 + j < p.n; j++) {
      EPILOGUE(z, row0 + i, column0 + j, totals[i * WIDTH + j]);
    }
  }
}
