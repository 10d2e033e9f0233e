// The LU factors of panels of few columns, with row pivoting: what the recursion of
// csrc/engine/linalg/factor.cpp ends with; and what it does with the pivots.
//
// Compile parameters: C (matrix.clh), GROUP (the work-group's size), PIVOT (0: no rows are
// swapped).
#include "include/assert.clh"
#include "include/reduce.clh"
#include "linalg/matrix.clh"
#include "linalg/pivot.clh"

#ifndef GROUP
#define GROUP 16
#endif
#ifndef PIVOT
#define PIVOT 1
#endif

/// a: [batch, rows, columns] becomes L (unit diagonal, not stored) and U. pivots: [batch,
/// pivot_stride] ints: row j was swapped with row pivots[j] - 1; both count from the whole matrix,
/// whose row and column `first` the panel starts at. info: [batch] ints; the first zero pivot
/// leaves its number there, counted from 1. A work-group per matrix.
kernel void lu_panel(global char* a, ulong a_offset, global char* pivots, ulong pivots_offset,
                     global char* info, ulong info_offset, const Strides sa, uint rows,
                     uint columns, uint first, uint pivot_stride) {
  const ulong z = get_group_id(0);
  const uint lane = get_local_id(0);
  global T* panel = MATRIX(a, a_offset, sa, z);
  global int* pivot = (global int*)(pivots + pivots_offset) + z * pivot_stride + first;
  global int* failed = (global int*)(info + info_offset) + z;
  const uint steps = min(rows, columns);
#if PIVOT
  local Candidate scratch[GROUP];
#endif
  for (uint j = 0; j < steps; j++) {
#if PIVOT
    Candidate best = {(R)-1, UINT_MAX};
    for (uint i = j + lane; i < rows; i += GROUP) TAKE_LARGER(best, SIZE1(AT(panel, sa, i, j)), i);
    WORK_GROUP_REDUCE(scratch, lane, GROUP, best, LARGER);
    const uint at = best.row == UINT_MAX ? j : best.row;
    if (at != j) {
      for (uint c = lane; c < columns; c += GROUP) {
        const T above = AT(panel, sa, j, c);
        AT(panel, sa, j, c) = AT(panel, sa, at, c);
        AT(panel, sa, at, c) = above;
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
#else
    const uint at = j;
#endif
    const T diagonal = AT(panel, sa, j, j);
    const bool singular = REAL_OF(diagonal) == 0 && IMAG_OF(diagonal) == 0;
    if (lane == 0) {
      pivot[j] = (int)(first + at + 1);
      if (singular && *failed == 0) *failed = (int)(first + j + 1);
    }
    for (uint i = j + 1 + lane; i < rows; i += GROUP) {
      T factor = AT(panel, sa, i, j);
      if (!singular) {
        factor = DIV(factor, diagonal);
        AT(panel, sa, i, j) = factor;
      }
      for (uint c = j + 1; c < columns; c++)
        AT(panel, sa, i, c) = MAD(-factor, AT(panel, sa, j, c), AT(panel, sa, i, c));
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
}

/// Swaps row `first` + k of b with row pivots[first + k] - 1 for k = 0, 1, ... count - 1, or in the
/// opposite order. b: [batch, rows, columns]. The pivots may be a caller's: one out of range is
/// recorded. Work-groups: see COLUMN_OF_GROUP.
kernel void lu_swap_rows(global char* b, ulong b_offset, global const char* pivots,
                         ulong pivots_offset, const Strides sb, uint rows, uint columns, uint first,
                         uint count, uint pivot_stride, uint backwards, global int* asserts,
                         uint site) {
  COLUMN_OF_GROUP(z, column, columns);
  if (column >= columns) return;
  global T* to = MATRIX(b, b_offset, sb, z);
  global const int* pivot = (global const int*)(pivots + pivots_offset) + z * pivot_stride;
  for (uint k = 0; k < count; k++) {
    const uint row = first + (backwards ? count - 1 - k : k);
    if (!check_index((long)pivot[row] - 1, rows, asserts, site)) continue;
    const uint other = pivot[row] - 1;
    if (other == row) continue;
    const T value = AT(to, sb, row, column);
    AT(to, sb, row, column) = AT(to, sb, other, column);
    AT(to, sb, other, column) = value;
  }
}
