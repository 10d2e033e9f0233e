// The matrix product by sub-groups: each takes WM x WN sums of the work-group's tile, piece by
// piece, as fragments.clh says. Intel's GPUs have sub-groups of a size that the kernel may ask for;
// AMD's have waves.
//
// As in tiled.cl, the next tiles travel from global memory into registers while the current ones
// are multiplied, and then into the other half of local memory.
//
// Compile parameters: fetch.clh's and fragments.clh's. C is not complex.
#include "gemm/gemm.clh"
#include "gemm/tiles.clh"

#ifndef BM
#define BM 32
#endif
#ifndef BN
#define BN 32
#endif
#ifndef BK
#define BK 16
#endif
#ifndef WM
#define WM 8
#endif
#ifndef WN
#define WN 16
#endif
#ifndef SIZE
#define SIZE 16
#endif

#define GROUPS_N (BN / WN)
#define GROUPS_M (BM / WM)
#define ITEMS (GROUPS_M * GROUPS_N * SIZE)
#include "gemm/fragments_of.clh"
#include "gemm/fetch.clh"
#include "gemm/fragments.clh"

#define STAGE (A_ELEMENTS + BN * BK)
// The epilogue's lines: a piece's rows of every sub-group.
#define OUT_ELEMENTS (GROUPS_M * PIECE_M * BN)
#define MEMORY_BYTES                                                                \
  (2 * STAGE * KEPT_BYTES > OUT_ELEMENTS * STORAGE_SIZE(C) ? 2 * STAGE * KEPT_BYTES \
                                                           : OUT_ELEMENTS * STORAGE_SIZE(C))

/// Global size: ITEMS * tiles * batch * splits.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void gemm_subgroup(
    OPERANDS WINDOWS_OPERAND) {
  local uchar memory[MEMORY_BYTES] __attribute__((aligned(16)));
#ifdef REGISTERS
  local uint registers[REGISTERS];
#endif
  local Stored* tiles = (local Stored*)memory;
  const uint item = get_local_id(0), lane = LANE(item);
  const uint place_m = SUB_GROUP(item) / GROUPS_N, place_n = SUB_GROUP(item) % GROUPS_N;
  const Tile tile = tile_of(p, BM, BN);
  const uint row0 = tile.row * BM, column0 = tile.column * BN, z = tile.z, split = tile.split;
  const uint start = split * p.split_k, end = min(start + p.split_k, p.k);
  ADVANCE_OPERANDS((ulong)z);

  Sums sum[FM * FN];
#pragma unroll
  for (uint i = 0; i < FM * FN; i++) sum[i] = (Sums)(0);

  KEEP_SUMS(sum, FM * FN);
  RAW_TILES(row0, column0, start, end, item);
  uint now = 0;
  if (left > 0) {
    FETCH_TILES(item, true);
    store_a(raw_a, tiles, item);
    store_b(raw_b, tiles + A_ELEMENTS, item);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  while (left > 0) {
    FETCH_NEXT_TILES(item);
    local const Stored* x = tiles + now * STAGE + A_AT_PLACE(place_m * WM, 0);
    local const Stored* y = tiles + now * STAGE + A_ELEMENTS + B_AT_PLACE(place_n * WN, 0);
    UNROLL_PIECES
    for (uint k = 0; k < BK; k += PIECE_K) multiply_piece(sum, x, y, k, lane REGISTERS_PASSED);
    KEEP_SUMS(sum, FM * FN);
    now ^= 1;
    if (left > 0) {
      store_a(raw_a, tiles + now * STAGE, item);
      store_b(raw_b, tiles + now * STAGE + A_ELEMENTS, item);
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }

  // Through local memory, so that the epilogue is compiled once per piece.
  local T* lines = (local T*)memory;
#pragma unroll
  for (uint i = 0; i < FM; i++) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint j = 0; j < FN; j++) {
#pragma unroll
      for (uint r = 0; r < SUMS; r++) {
        const uint row = place_m * PIECE_M + SUM_ROW(lane, r);
        lines[row * BN + place_n * WN + j * PIECE_N + SUM_COLUMN(lane, r)] =
            ((private const T*)(sum + i * FN + j))[r];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = item; e < OUT_ELEMENTS; e += ITEMS) {
      const uint line = e / BN;
      const ulong row = row0 + line / PIECE_M * WM + i * PIECE_M + line % PIECE_M;
      const ulong column = column0 + e % BN;
      if (row < p.m && column < p.n) {
        EPILOGUE_OR_SPLIT((ulong)z, (ulong)split, row, column, lines[e]);
      }
    }
  }
}
