// Split-K: adds up the sums of the parts of k and applies the epilogue. Global size: m * n, batch
// or more.
#include "gemm/gemm.clh"

kernel void gemm_split_k(OPERANDS) {
  const ulong i = get_global_id(0), z = get_global_id(1);
  if (i >= (ulong)p.m * p.n || z >= p.batch) return;
  ADVANCE_OPERANDS(z);
  global const T* sums = (global const T*)workspace;
  T total = (T)(0);
#ifdef OCL_DEVICE_GPU
#pragma unroll 8  // that many loads under way
#endif
  for (ulong split = 0; split < p.splits; split++) {
    total += sums[(split * p.batch + z) * p.m * p.n + i];
  }
  EPILOGUE(i / p.n, i % p.n, total);
}
