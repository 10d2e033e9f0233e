// The QR factors of panels of few columns by Householder reflections: what the blocked algorithm of
// csrc/ops/linalg/BatchLinearAlgebraQR.cpp does to each panel.
//
// Compile parameters: C (matrix.clh), GROUP (the work-group's size).
#ifndef GROUP
#define GROUP 16
#endif
#include "linalg/reflection.clh"

/// a: [batch, rows, columns] becomes R on and above the diagonal and, below it, the vectors v of
/// the reflections 1 - tau v v^H whose first element, 1, isn't stored. tau: [batch, tau_stride]. A
/// work-group per matrix.
kernel void householder_panel(global char* a, ulong a_offset, global char* tau, ulong tau_offset,
                              const Strides sa, uint rows, uint columns, uint tau_stride) {
  const ulong z = get_group_id(0);
  const uint lane = get_local_id(0);
  global T* panel = MATRIX(a, a_offset, sa, z);
  global T* taus = (global T*)(tau + tau_offset) + z * tau_stride;
  local T sums[GROUP];
  local R sizes[GROUP];
  const uint steps = min(rows, columns);
  for (uint j = 0; j < steps; j++) {
    const Reflection reflection =
        make_reflection(&AT(panel, sa, j, j), sa.row, rows - j, lane, sizes);
    if (lane == 0) {
      taus[j] = reflection.tau;
      AT(panel, sa, j, j) = FROM_REAL(reflection.beta);
    }
    // (1 - tau v v^H)^H to the columns on the right.
    for (uint c = j + 1; c < columns; c++) {
      T sum = lane == 0 ? AT(panel, sa, j, c) : FROM_REAL((R)0);
      for (uint i = j + 1 + lane; i < rows; i += GROUP)
        sum = MAD(CONJ(AT(panel, sa, i, j)), AT(panel, sa, i, c), sum);
      WORK_GROUP_REDUCE(sums, lane, GROUP, sum, COMBINE_SUM);
      sum = MUL(CONJ(reflection.tau), sum);
      if (lane == 0) AT(panel, sa, j, c) -= sum;
      for (uint i = j + 1 + lane; i < rows; i += GROUP)
        AT(panel, sa, i, c) = MAD(-sum, AT(panel, sa, i, j), AT(panel, sa, i, c));
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
}
