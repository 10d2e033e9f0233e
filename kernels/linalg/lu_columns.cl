// The LU factors of panels on CPUs: a work-item has a matrix to itself, and vectors along its
// columns.
//
// Compile parameters: C and LANES (columns.clh), PIVOT (0: no rows are swapped).
#include "linalg/columns.clh"

#ifndef PIVOT
#define PIVOT 1
#endif

/// Elements are compared by this: |re| + |im| of complex numbers, in both lanes, as LAPACK does.
#define SIZES_real(v) fabs(v)
#define SIZES_complex(v) (fabs(v) + SWAPPED(fabs(v)))

/// lu_panel of lu.cl, for matrices whose row stride is 1 and of LANES rows or more. Global size:
/// batch.
kernel ITEM_BY_ITEM void lu_columns(global char* a, ulong a_offset, global char* pivots,
                                    ulong pivots_offset, global char* info, ulong info_offset,
                                    const Strides sa, uint rows, uint columns, uint first,
                                    uint pivot_stride) {
  const ulong z = get_global_id(0);
  global T* panel = MATRIX(a, a_offset, sa, z);
  global int* pivot = (global int*)(pivots + pivots_offset) + z * pivot_stride + first;
  global int* failed = (global int*)(info + info_offset) + z;
  const ulong stride = sa.column;
  const uint steps = min(rows, columns);
  for (uint j = 0; j < steps; j++) {
    global T* column = panel + j * stride;
    uint at = j;
#if PIVOT
    // The largest, the upper of equal ones, as LAPACK takes it; a NaN is never larger.
    V largest = (V)-1;
    M rows_of = (M)((MaskElement)(PARTS * rows));
    FOR_CHUNKS(i, PARTS * j, PARTS * rows, {
      const V size = SET((V)-1, OF_KIND(SIZES_)(GET(column, i)));
      const M larger = size >= largest;
      rows_of = select(rows_of, ROWS_AT(i), larger);
      largest = select(largest, size, larger);
    });
    const R most = largest_of(largest);
    if (most >= 0) {
      at = (uint)least_of(select((M)((MaskElement)(PARTS * rows)), rows_of, largest == (V)most)) /
           PARTS;
    }
    if (at != j) {
      for (uint c = 0; c < columns; c++) {
        global T* swapped = panel + c * stride;
        const T above = swapped[j];
        swapped[j] = swapped[at];
        swapped[at] = above;
      }
    }
#endif
    const T diagonal = column[j];
    const bool singular = REAL_OF(diagonal) == 0 && IMAG_OF(diagonal) == 0;
    pivot[j] = (int)(first + at + 1);
    if (singular && *failed == 0) *failed = (int)(first + j + 1);
    DECLARE_DIVISOR(diagonal);
    FOR_CHUNKS(i, PARTS * (j + 1), PARTS * rows, {
      V factor = GET(column, i);
      if (!singular) {
        factor = SET(factor, QUOTIENT(factor));
        PUT(factor, column, i);
      }
      DECLARE_MULTIPLES(factors, factor);
      for (uint c = j + 1; c < columns; c++) {
        global T* to = panel + c * stride;
        const V old = GET(to, i);
        const V updated = ADD_MULTIPLE(old, -to[j], factors);
        PUT(SET(old, updated), to, i);
      }
    });
  }
}
