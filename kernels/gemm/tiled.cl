// The matrix product for devices with many work-items in flight (GPUs): a work-group brings tiles
// of a and b into local memory, a work-item keeps TM x TN sums in registers. Any dtype and strides.
//
// Compile parameters besides gemm.clh's: LM x LN (the work-group: LN work-items along n, LM along
// m), TM x TN (sums per work-item), TK (depth of a tile). The tile: LM * TM rows x LN * TN columns.
#include "gemm/gemm.clh"

#ifndef LM
#define LM 16
#endif
#ifndef LN
#define LN 16
#endif
#ifndef TM
#define TM 4
#endif
#ifndef TN
#define TN 4
#endif
#ifndef TK
#define TK 16
#endif

#define BM (LM * TM)
#define BN (LN * TN)
#define ITEMS (LM * LN)
// One element of padding keeps a column of the tile off a single memory bank.
#define PADDED_M (BM + 1)
#define PADDED_N (BN + 1)

/// Global size: LN * (n / BN), LM * (m / BM), batch * splits.
kernel __attribute__((reqd_work_group_size(LN, LM, 1))) void gemm_tiled(OPERANDS) {
  local T x[TK * PADDED_M], y[TK * PADDED_N];
  const uint lx = get_local_id(0), ly = get_local_id(1), item = ly * LN + lx;
  const ulong column0 = get_group_id(0) * BN, row0 = get_group_id(1) * BM;
  const ulong z = get_global_id(2) % p.batch, split = get_global_id(2) / p.batch;
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  // Neighbouring work-items read along the direction that is contiguous in memory.
  const bool a_by_k = p.a_column <= p.a_row, b_by_k = p.b_row < p.b_column;
  T sum[TM][TN];
#pragma unroll
  for (uint i = 0; i < TM; i++) {
#pragma unroll
    for (uint j = 0; j < TN; j++) sum[i][j] = (T)(0);
  }
  for (ulong k0 = start; k0 < end; k0 += TK) {
    for (uint e = item; e < BM * TK; e += ITEMS) {
      const uint kk = a_by_k ? e % TK : e / BM, i = a_by_k ? e / TK : e % BM;
      T value = (T)(0);
      if (row0 + i < p.m && k0 + kk < end) value = A_AT(row0 + i, k0 + kk);
      x[kk * PADDED_M + i] = value;
    }
    for (uint e = item; e < BN * TK; e += ITEMS) {
      const uint kk = b_by_k ? e % TK : e / BN, j = b_by_k ? e / TK : e % BN;
      T value = (T)(0);
      if (column0 + j < p.n && k0 + kk < end) value = B_AT(k0 + kk, column0 + j);
      y[kk * PADDED_N + j] = value;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 4
    for (uint kk = 0; kk < TK; kk++) {
      T row[TM], column[TN];
#pragma unroll
      for (uint i = 0; i < TM; i++) row[i] = x[kk * PADDED_M + ly + i * LM];
#pragma unroll
      for (uint j = 0; j < TN; j++) column[j] = y[kk * PADDED_N + lx + j * LN];
#pragma unroll
      for (uint i = 0; i < TM; i++) {
#pragma unroll
        for (uint j = 0; j < TN; j++) sum[i][j] = MAD(row[i], column[j], sum[i][j]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (uint i = 0; i < TM; i++) {
    const ulong r = row0 + ly + i * LM;
#pragma unroll
    for (uint j = 0; j < TN; j++) {
      const ulong s = column0 + lx + j * LN;
      if (r < p.m && s < p.n) FINISH_OR_SPLIT(z, split, r, s, sum[i][j]);
    }
  }
}
