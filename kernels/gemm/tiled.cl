// The matrix product for devices with many work-items in flight (GPUs): a work-group brings tiles
// of a and b into local memory, a work-item keeps TM x TN sums in registers. Any dtype and strides.
//
// The next tiles travel from global memory into registers while the current ones are multiplied,
// and then into the other half of local memory: one barrier per tile. Where few tiles fill the
// device, several work-items share the same sums: each takes its slice of the tile's k.
//
// Compile parameters: those of gemm/tile_sizes.clh and gemm/fetch.clh; OUT_WIDTH (elements per
// store: above 1, out has the type computed with, and it, the addend and the parts' sums are
// contiguous and aligned along rows).
#include "gemm/gemm.clh"
#include "gemm/tiles.clh"
#include "gemm/tile_product.clh"
#include "gemm/fetch.clh"
#include "gemm/store_tiles.clh"

#ifndef OUT_WIDTH
#define OUT_WIDTH 1
#endif

// Rows of sums that go through local memory together.
#define ROWS_FIT(rows) (TM % (rows) == 0 && SLICES * (rows) * LM * BN <= 2 * STAGE)
#define ROWS (ROWS_FIT(16) ? 16 : ROWS_FIT(8) ? 8 : ROWS_FIT(4) ? 4 : ROWS_FIT(2) ? 2 : 1)

/// Stores OUT_WIDTH neighbouring elements from their sums, or keeps the sums where k is split.
#if OUT_WIDTH > 1
typedef TYPEV(C, OUT_WIDTH) Out;
static inline void finish(Out total, global const char* c, global char* out, global char* workspace,
                          const Arguments p, T alpha, T beta, ulong z, ulong split, ulong row,
                          ulong column, ulong at) {
  if (p.splits > 1) {
    *(global Out*)((global T*)workspace + ((split * p.batch + z) * p.m + row) * p.n + column) =
        total;
    return;
  }
  Out addend = (Out)(0);
  if (p.flags & kAddend) {
    addend = *(global const Out*)((global const T*)c + row * p.c.row + column);
  }
#pragma unroll
  for (uint j = 0; j < OUT_WIDTH; j++) {
   private T* value = (private T*)&total + j;
    *value = SCALE(alpha, *value, (T)(0));
    if (p.flags & kAddend) *value = SCALE(beta, ((private const T*)&addend)[j], *value);
    *value = ACTIVATE(*value);
  }
  *(global Out*)((global T*)out + at + column) = total;
}
#else
typedef T Out;
#endif

/// Global size: ITEMS * tiles * batch * splits.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tiled(
    OPERANDS WINDOWS_OPERAND) {
  local T memory[2 * STAGE] __attribute__((aligned(16)));
  const uint item = get_local_id(0);
  const Tile tile = tile_of(p, BM, BN);
  const uint row0 = tile.row * BM, column0 = tile.column * BN, z = tile.z, split = tile.split;
  const uint start = split * p.split_k, end = min(start + p.split_k, p.k);
  ADVANCE_OPERANDS((ulong)z);

  TilePlace place;
  place_in_group(&place, item);
  T sum[TM][TN];
#pragma unroll
  for (uint i = 0; i < TM; i++) {
#pragma unroll
    for (uint j = 0; j < TN; j++) sum[i][j] = (T)(0);
  }

  RAW_TILES(row0, column0, start, end, item);
  uint now = 0;
  if (left > 0) {
    FETCH_TILES(item, true);
    store_a(raw_a, memory, item, p.flags & kConjugateA);
    store_b(raw_b, memory + BK * A_LINE, item, p.flags & kConjugateB);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  while (left > 0) {
    FETCH_NEXT_TILES(item);
    multiply_tiles(sum, memory + now * STAGE, place);
    now ^= 1;
    if (left > 0) {
      store_a(raw_a, memory + now * STAGE, item, p.flags & kConjugateA);
      store_b(raw_b, memory + now * STAGE + BK * A_LINE, item, p.flags & kConjugateB);
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }

  // Through local memory, so that neighbouring work-items store neighbouring elements, slices are
  // added up and the epilogue is compiled once per step.
#pragma unroll
  for (uint first = 0; first < TM; first += ROWS) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
      const uint i = first + r;
      local T* to = memory + ((place.slice * ROWS + r) * LM + place.row) * BN + place.column * RUN;
#pragma unroll
      for (uint j = 0; j < TN / RUN; j++) {
        *(local Run*)(to + j * LN * RUN) = *((private const Run*)sum[i] + j);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = item * OUT_WIDTH; e < ROWS * LM * BN; e += ITEMS * OUT_WIDTH) {
      const uint line = e / BN, i = first + line / LM;
      const ulong row = row0 + i / RUN * LM * RUN + line % LM * RUN + i % RUN;
      const ulong column = column0 + e % BN;
      if (row >= p.m || column >= p.n) continue;
      Out total = *(local const Out*)(memory + e);
#pragma unroll
      for (uint other = 1; other < SLICES; other++) {
        total += *(local const Out*)(memory + other * ROWS * LM * BN + e);
      }
#if OUT_WIDTH > 1
      finish(total, c, out, workspace, p, alpha, beta, (ulong)z, (ulong)split, row, column,
             OUT_AT(row));
#else
      EPILOGUE_OR_SPLIT((ulong)z, (ulong)split, row, column, total);
#endif
    }
  }
}
