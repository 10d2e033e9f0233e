// One element of the product per work-item: right for every dtype and stride, and the fastest where
// the matrices are tiny. Global size: n, m, batch or more.
#include "gemm/gemm.clh"

kernel void gemm_direct(OPERANDS) {
  const ulong column = get_global_id(0), row = get_global_id(1), z = get_global_id(2);
  if (column >= p.n || row >= p.m || z >= p.batch) return;
  ADVANCE_OPERANDS(z);
  // Sums of sums: the rounding error grows with the root of k's blocks, not with k.
  T total = (T)(0);
  for (ulong start = 0; start < p.k; start += 512) {
    const ulong end = min(start + 512, (ulong)p.k);
    T sum = (T)(0);
    for (ulong kk = start; kk < end; kk++) {
      const T x = A_AT(row, kk), y = B_AT(kk, column);
      sum = MAD(x, y, sum);
    }
    total += sum;
  }
  EPILOGUE(z, row, column, total);
}
