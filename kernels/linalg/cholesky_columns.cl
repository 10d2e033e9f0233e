// The Cholesky factor on CPUs: a work-item has a matrix to itself, and vectors along its columns.
//
// Compile parameters: C and LANES (columns.clh).
#include "linalg/columns.clh"

/// Columns that are brought up to date together.
#define BLOCK 8

/// cholesky_block of cholesky.cl for matrices of any size of LANES rows or more whose row stride
/// is 1. What is above the diagonal is written, not used. Global size: batch.
kernel ITEM_BY_ITEM void cholesky_columns(global char* a, ulong a_offset, global char* info,
                                          ulong info_offset, const Strides sa, uint n, uint first) {
  const ulong z = get_global_id(0);
  global T* matrix = MATRIX(a, a_offset, sa, z);
  global int* failed = (global int*)(info + info_offset) + z;
  if (*failed != 0) return;
  for (uint block = 0; block < n; block += BLOCK) {
    const uint end = min(block + BLOCK, n);
    // Less what the columns before account for. Columns past the last are the last once more.
    uint columns[BLOCK];
    for (uint q = 0; q < BLOCK; q++) columns[q] = min(block + q, n - 1);
    if (block > 0) {
      FOR_CHUNKS(i, PARTS * block, PARTS * n, {
        V old[BLOCK];
        V sum[BLOCK];
        _Pragma("unroll") for (uint q = 0; q < BLOCK; q++) {
          old[q] = GET(matrix + columns[q] * sa.column, i);
          sum[q] = old[q];
        }
        for (uint k = 0; k < block; k++) {
          global const T* column = matrix + k * sa.column;
          DECLARE_MULTIPLES(x, GET(column, i));
          _Pragma("unroll") for (uint q = 0; q < BLOCK; q++) {
            sum[q] = ADD_MULTIPLE(sum[q], -CONJ(column[columns[q]]), x);
          }
        }
        _Pragma("unroll") for (uint q = 0; q < BLOCK; q++) {
          PUT(SET(old[q], sum[q]), matrix + columns[q] * sa.column, i);
        }
      });
    }
    for (uint j = block; j < end; j++) {
      global T* column = matrix + j * sa.column;
      const R pivot = REAL_OF(column[j]);
      // Not `pivot <= 0`: a NaN fails too.
      if (!(pivot > 0)) {
        *failed = (int)(first + j + 1);
        return;
      }
      const R root = sqrt(pivot);
      column[j] = FROM_REAL(root);
      FOR_CHUNKS(i, PARTS * (j + 1), PARTS * n, {
        const V old = GET(column, i);
        PUT(SET(old, old / root), column, i);
      });
      FOR_CHUNKS(i, PARTS * (j + 1), PARTS * n, {
        DECLARE_MULTIPLES(x, GET(column, i));
        for (uint c = j + 1; c < end; c++) {
          global T* to = matrix + c * sa.column;
          const V old = GET(to, i);
          PUT(SET(old, ADD_MULTIPLE(old, -CONJ(column[c]), x)), to, i);
        }
      });
    }
  }
}
