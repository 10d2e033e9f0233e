// Few columns, columns of a contiguous: sums of scaled columns.
//
// k is summed in blocks of KC, whose sums are added up: a single chain of additions would round
// more the longer it is.
#include "include/item_by_item.clh"
#include "gemm/skinny.clh"

#ifndef KC
#define KC 256
#endif

/// Adds to `tile` the sums of N vectors of rows from `row` on over [start, end) of k.
#define SUM_COLUMNS(N, row)                                                            \
  for (ulong block = start; block < end; block += KC) {                                \
    const ulong block_end = min(block + KC, end);                                      \
    V sum[N][NQ];                                                                      \
    _Pragma("unroll") for (uint i = 0; i < N; i++) {                                   \
      _Pragma("unroll") for (uint q = 0; q < NQ; q++) sum[i][q] = (V)(0);              \
    }                                                                                  \
    for (ulong kk = block; kk < block_end; kk++) {                                     \
      T scale[NQ];                                                                     \
      _Pragma("unroll") for (uint q = 0; q < NQ; q++) {                                \
        scale[q] = B_AT(kk, (ulong)min(q, p.n - 1));                                   \
      }                                                                                \
      global const char* x = a + ((row) + kk * p.a.column) * STORAGE_SIZE(IN0);        \
      _Pragma("unroll") for (uint i = 0; i < N; i++) {                                 \
        V column = LOADV_AS(C, IN0, WIDTH, x, i);                                      \
        column = CONJUGATE(column, p.flags & kConjugateA);                             \
        _Pragma("unroll") for (uint q = 0; q < NQ; q++) {                              \
          sum[i][q] = MAD(column, (V)(scale[q]), sum[i][q]);                           \
        }                                                                              \
      }                                                                                \
    }                                                                                  \
    _Pragma("unroll") for (uint i = 0; i < N; i++) {                                   \
      _Pragma("unroll") for (uint q = 0; q < NQ; q++) tile[q * ROWS + i] += sum[i][q]; \
    }                                                                                  \
  }

/// Needs a.row == 1 and m >= ROWS * WIDTH; b may have any strides.
/// Global size: m / (ROWS * WIDTH), splits, batch or more.
kernel ITEM_BY_ITEM void gemm_skinny_axpy(OPERANDS) {
  ulong first = get_global_id(0) * ROWS * WIDTH;
  const ulong split = get_global_id(1), z = get_global_id(2);
  if (first >= p.m) return;
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  // A few last rows are summed by vectors, more of them as a whole tile: both along with rows
  // before them, which are another's to store.
  const bool few = 4 * (p.m - first) <= ROWS * WIDTH;
  const uint rows = few ? WIDTH : ROWS * WIDTH;
  do {
    const ulong row0 = min(first, (ulong)(p.m - rows));
    V tile[ROWS * NQ];
#pragma unroll
    for (uint i = 0; i < ROWS * NQ; i++) tile[i] = (V)(0);
    if (few) {
      SUM_COLUMNS(1, row0);
    } else {
      SUM_COLUMNS(ROWS, row0);
    }
   private const T* totals = (private const T*)tile;
    for (uint q = 0; q < p.n; q++) {
      for (uint i = first - row0; i < rows; i++) {
        const T total = totals[q * ROWS * WIDTH + i];
        EPILOGUE_OR_SPLIT(z, split, row0 + i, (ulong)q, total);
      }
    }
    first = row0 + rows;
  } while (few && first < p.m);
}
