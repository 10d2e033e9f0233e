// The QR factors of panels of few columns by Householder reflections: what the blocked algorithm of
// csrc/engine/linalg_householder.cpp does to each panel.
//
// Compile parameters: C (matrix.clh), GROUP (the work-group's size).
#include "include/reduce.clh"
#include "linalg/matrix.clh"

#ifndef GROUP
#define GROUP 16
#endif

#define SMALLEST_f32 (FLT_MIN / FLT_EPSILON)
#define SMALLEST_f64 (DBL_MIN / DBL_EPSILON)
#define SMALLEST_c64 SMALLEST_f32
#define SMALLEST_c128 SMALLEST_f64

/// a: [batch, rows, columns] becomes R on and above the diagonal and, below it, the vectors v of the
/// reflections 1 - tau v v^H whose first element, 1, isn't stored. tau: [batch, tau_stride].
/// A work-group per matrix.
kernel void householder_panel(global char *a, ulong a_offset, global char *tau, ulong tau_offset,
                              const Strides sa, uint rows, uint columns, uint tau_stride) {
  const ulong z = get_group_id(0);
  const uint lane = get_local_id(0);
  global T *panel = MATRIX(a, a_offset, sa, z);
  global T *taus = (global T *)(tau + tau_offset) + z * tau_stride;
  local T sums[GROUP];
  local R sizes[GROUP];
  const uint steps = min(rows, columns);
  for (uint j = 0; j < steps; j++) {
    // The norm of the column below the diagonal, scaled so that no square overflows or vanishes.
    R largest = 0;
    for (uint i = j + 1 + lane; i < rows; i += GROUP)
      largest = fmax(largest, SIZE1(AT(panel, sa, i, j)));
    WORK_GROUP_REDUCE(sizes, lane, GROUP, largest, fmax);
    const T alpha = AT(panel, sa, j, j);
    const bool nothing_below = largest == 0 && IMAG_OF(alpha) == 0;
    const R scale = fmax(fmax(largest, SIZE1(alpha)), PASTE2(SMALLEST_, C));
    R squares = 0;
    for (uint i = j + 1 + lane; i < rows; i += GROUP) {
      const T x = AT(panel, sa, i, j) / scale;
      squares += REAL_OF(MUL(x, CONJ(x)));
    }
    WORK_GROUP_REDUCE(sizes, lane, GROUP, squares, COMBINE_SUM);
    const T scaled = alpha / scale;
    // The sign that adds up: alpha - beta must not cancel.
    const R beta = -copysign(sqrt(squares + REAL_OF(MUL(scaled, CONJ(scaled)))), REAL_OF(scaled));
    T factor = FROM_REAL((R)0);
    if (!nothing_below) {
      factor = (FROM_REAL(beta) - scaled) / beta;
      const T divisor = scaled - FROM_REAL(beta);
      for (uint i = j + 1 + lane; i < rows; i += GROUP)
        AT(panel, sa, i, j) = DIV(AT(panel, sa, i, j) / scale, divisor);
    }
    // Every work-item has read alpha.
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (lane == 0) {
      taus[j] = factor;
      if (!nothing_below) AT(panel, sa, j, j) = FROM_REAL(beta * scale);
    }
    // (1 - tau v v^H)^H to the columns on the right.
    for (uint c = j + 1; c < columns; c++) {
      T sum = lane == 0 ? AT(panel, sa, j, c) : FROM_REAL((R)0);
      for (uint i = j + 1 + lane; i < rows; i += GROUP)
        sum = MAD(CONJ(AT(panel, sa, i, j)), AT(panel, sa, i, c), sum);
      WORK_GROUP_REDUCE(sums, lane, GROUP, sum, COMBINE_SUM);
      sum = MUL(CONJ(factor), sum);
      if (lane == 0) AT(panel, sa, j, c) -= sum;
      for (uint i = j + 1 + lane; i < rows; i += GROUP)
        AT(panel, sa, i, c) = MAD(-sum, AT(panel, sa, i, j), AT(panel, sa, i, c));
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
}
