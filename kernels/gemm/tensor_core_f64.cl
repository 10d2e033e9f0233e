// The matrix product in double precision by NVIDIA's tensor cores, which round as fma() does.
//
// Tiles travel as in tiled.cl. Each sub-group of 32 (warp) takes WM x WN sums of the work-group's
// BM x BN, in pieces of 8 x 8: lane 4 r + c has elements (r, 2 c) and (r, 2 c + 1) of a piece.
//
// Compile parameters besides gemm/fetch.clh's: WM x WN, MMA_K (4; 8 for Hopper's larger
// instruction, which takes two pieces above each other).
#ifndef IN0
#define IN0 f64
#define IN1 f64
#define OUT f64
#define C f64
#endif
#include "gemm/gemm.clh"
#include "gemm/tiles.clh"

#ifndef BM
#define BM 64
#define BN 64
#define BK 8
#endif
#ifndef WM
#define WM 32
#define WN 32
#endif
#ifndef MMA_K
#define MMA_K 4
#endif

#define WARPS_M (BM / WM)
#define WARPS_N (BN / WN)
#define ITEMS (WARPS_M * WARPS_N * 32)
// With this padding a half-warp reads a 4 x 4 piece without bank conflicts.
#define A_LINE (BM + 4)
#define B_LINE (BN + 4)
#define STAGE (BK * (A_LINE + B_LINE))
#include "gemm/fetch.clh"
#include "gemm/store_tiles.clh"

#define FM (WM / 8)
#define FN (WN / 8)

/// Adds the product of column i of pieces of a and row j of pieces of b (lane 4 r + c: a (r, c), b
/// (c, r)).
#define MULTIPLY_4(sum, i, j, u, v)                                                         \
  __asm__("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" \
          : "+d"(sum[i][j][0]), "+d"(sum[i][j][1])                                          \
          : "d"(u[0][i]), "d"(v[0][j]))
/// Multiplies pieces i and i + 1, with 8 of k.
#define MULTIPLY_8(sum, i, j, u, v)                                                            \
  __asm__(                                                                                     \
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "                    \
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                          \
      : "+d"(sum[i][j][0]), "+d"(sum[i][j][1]), "+d"(sum[i + 1][j][0]), "+d"(sum[i + 1][j][1]) \
      : "d"(u[0][i]), "d"(u[0][i + 1]), "d"(u[1][i]), "d"(u[1][i + 1]), "d"(v[0][j]),          \
        "d"(v[1][j]))
#define MULTIPLY PASTE2(MULTIPLY_, MMA_K)
#define PIECES_AT_ONCE (MMA_K / 4)

/// Global size: ITEMS * tiles * batch * splits.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tensor_core_f64(OPERANDS) {
  local T memory[2 * STAGE] __attribute__((aligned(16)));
  const uint item = get_local_id(0), lane = item % 32, warp = item / 32;
  const Tile tile = tile_of(p, BM, BN);
  const uint row0 = tile.row * BM, column0 = tile.column * BN, z = tile.z, split = tile.split;
  const uint start = split * p.split_k, end = min(start + p.split_k, p.k);
  ADVANCE_OPERANDS((ulong)z);
  const uint warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;

  T sum[FM][FN][2];
#pragma unroll
  for (uint i = 0; i < FM; i++) {
#pragma unroll
    for (uint j = 0; j < FN; j++) sum[i][j][0] = sum[i][j][1] = 0;
  }

  RAW_TILES(row0, column0, start, end, item);
  uint now = 0;
  if (left > 0) {
    FETCH_TILES(item, true);
    store_a(raw_a, memory, item, 0);
    store_b(raw_b, memory + BK * A_LINE, item, 0);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  while (left > 0) {
    FETCH_NEXT_TILES(item);
    local const T* x = memory + now * STAGE + lane % 4 * A_LINE + warp_m + lane / 4;
    local const T* y = memory + now * STAGE + BK * A_LINE + lane % 4 * B_LINE + warp_n + lane / 4;
#pragma unroll
    for (uint kk = 0; kk < BK; kk += MMA_K) {
      T u[MMA_K / 4][FM], v[MMA_K / 4][FN];
#pragma unroll
      for (uint h = 0; h < MMA_K / 4; h++) {
#pragma unroll
        for (uint i = 0; i < FM; i++) u[h][i] = x[(kk + h * 4) * A_LINE + i * 8];
#pragma unroll
        for (uint j = 0; j < FN; j++) v[h][j] = y[(kk + h * 4) * B_LINE + j * 8];
      }
#pragma unroll
      for (uint i = 0; i < FM; i += PIECES_AT_ONCE) {
#pragma unroll
        for (uint j = 0; j < FN; j++) MULTIPLY(sum, i, j, u, v);
      }
    }
    now ^= 1;
    if (left > 0) {
      store_a(raw_a, memory + now * STAGE, item, 0);
      store_b(raw_b, memory + now * STAGE + BK * A_LINE, item, 0);
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }

  // Through local memory, a row of every warp's pieces at a time, so that neighbouring work-items
  // store neighbouring elements.
#pragma unroll
  for (uint i = 0; i < FM; i++) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint j = 0; j < FN; j++) {
      local T* to = memory + (warp / WARPS_N * 8 + lane / 4) * BN + warp_n + j * 8 + lane % 4 * 2;
      to[0] = sum[i][j][0];
      to[1] = sum[i][j][1];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = item; e < WARPS_M * 8 * BN; e += ITEMS) {
      const uint line = e / BN;
      const ulong row = row0 + line / 8 * WM + i * 8 + line % 8, column = column0 + e % BN;
      if (row < p.m && column < p.n) {
        const T total = memory[e];
        EPILOGUE_OR_SPLIT((ulong)z, (ulong)split, row, column, total);
      }
    }
  }
}
