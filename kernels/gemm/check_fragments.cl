// Whether a wave multiplies as its instructions are documented (fragments.clh): a tile of a times
// one of b, and beside it the same sums one by one.
//
// out[item] is how many of the work-item's sums are right, and out[SIZE + item] how many are where
// a is subnormal in half: some instructions take such numbers for 0. out[2 * SIZE + item] is how
// many are of a product whose operand b are sums of another one (chained.clh).
//
// Compile parameters: fragments_of.clh's, and BK. There is one sub-group, of WM x WN sums, and one
// work-group.
#ifndef IN0
#define IN0 f16
#define IN1 f16
#define OUT f16
#endif
#include "gemm/gemm.clh"
#include "gemm/tiles.clh"

#ifndef WM
#define WM 32
#endif
#ifndef WN
#define WN 32
#endif
#ifndef BK
#define BK 32
#endif
#ifndef SIZE
#define SIZE 32
#endif
#ifndef FRAGMENTS
#define FRAGMENTS 6  // for who reads this file alone: DOT2
#endif
#define BM WM
#define BN WN
#define ITEMS SIZE
#include "gemm/fragments_of.clh"
#include "gemm/fetch.clh"
#include "gemm/fragments.clh"

/// An element of line `line` (rows of a, then columns of b): small integers, so that sums are
/// exact.
static inline float element(uint line, uint k) {
  const uint mixed = (line * BK + k + 1) * 2654435761u;
  return (float)((int)(mixed >> 28) - 7);
}

// The largest power of two of which half has no such integers but subnormal ones.
#define SUBNORMAL 0x1p-24f

#define KEEP_f16(x) encode_f16(x)
#define KEEP_bf16(x) encode_bf16(x)
#if AS_FLOATS
#define KEEP(x) (x)
#else
#define KEEP(x) PASTE2(KEEP_, IN0)(x)
#endif

/// The work-item's sums that are right, of a times `factor`.
static ALWAYS_INLINE uint right_sums(local Stored* tile, uint item,
                                     float factor REGISTERS_PARAMETER) {
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint e = item; e < (BM + BN) * BK; e += ITEMS) {
    const uint line = e / BK, k = e % BK;
    tile[AT_PLACE(line, k)] = KEEP(element(line, k) * (line < BM ? factor : 1.0f));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint lane = LANE(item);
  Sums sum[FM * FN];
  for (uint i = 0; i < FM * FN; i++) sum[i] = (Sums)(0);
  KEEP_SUMS(sum, FM * FN);
  for (uint k = 0; k < BK; k += PIECE_K) {
    multiply_piece(sum, tile, tile + A_ELEMENTS, k, lane REGISTERS_PASSED);
    KEEP_SUMS(sum, FM * FN);
  }
  uint right = 0;
  for (uint e = 0; e < FM * FN * SUMS; e++) {
    const uint piece = e / SUMS, r = e % SUMS;
    const uint row = piece / FN * PIECE_M + SUM_ROW(lane, r);
    const uint column = piece % FN * PIECE_N + SUM_COLUMN(lane, r);
    float expected = 0;
    for (uint k = 0; k < BK; k++) {
      expected = fma(element(row, k) * factor, element(BM + column, k), expected);
    }
    right += ((private const float*)(sum + piece))[r] == expected;
  }
  return right;
}

// Attention's products.
#define CHAINED (FRAGMENTS != DOT2 && (FRAGMENTS < MFMA_GFX908 || WM == 32))
#if CHAINED
#include "gemm/fragments/chained.clh"

/// A number that bfloat16 keeps, of a sum.
#define SMALL(sum) ((float)((int)(sum) & 7))
/// Element (row, column) of a product of elements.
static inline float small_sum(uint row, uint column) {
  float sum = 0;
  for (uint k = 0; k < BK; k++) sum = fma(element(row, k), element(BM + column, k), sum);
  return SMALL(sum);
}

/// The work-item's sums that are right, of other elements times the small sums of a and b.
static ALWAYS_INLINE uint right_chained_sums(local Stored* tile, uint item REGISTERS_PARAMETER) {
  const uint lane = LANE(item);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint e = item; e < (BM + BN) * BK; e += ITEMS) {
    const uint line = e / BK, k = e % BK;
    tile[AT_PLACE(line < BM ? LINE_OF(line) : line, k)] = KEEP(element(line, k));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  Sums sum = (Sums)(0), next = (Sums)(0);
  UNROLL_LANES
  for (uint k = 0; k < BK; k += PIECE_K) {
    sum = multiply(fragment_at(tile, 0, k, lane), fragment_at(tile, BM, k, lane),
                   sum REGISTERS_PASSED);
  }
  UNROLL_LANES
  for (uint r = 0; r < SUMS; r++) {
   private float* one = (private float*)&sum + r;
    *one = SMALL(*one);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint e = item; e < BM * BM; e += ITEMS) {
    tile[AT_PLACE(e / BM, e % BM)] = KEEP(element(BM + BN + e / BM, e % BM));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL_LANES
  for (uint i = 0; i < BM / PIECE_K; i++) {
    next = multiply(fragment_at(tile, 0, i * PIECE_K, lane),
                    operand_of_sums(sum, i, lane REGISTERS_PASSED), next REGISTERS_PASSED);
  }
  uint right = 0;
  for (uint r = 0; r < SUMS; r++) {
    const uint row = BM + BN + SUM_ROW(lane, r), column = SUM_COLUMN(lane, r);
    float expected = 0;
    for (uint k = 0; k < BM; k++) expected = fma(element(row, k), small_sum(k, column), expected);
    right += ((private const float*)&next)[r] == expected;
  }
  return right;
}
#endif

/// Global size: SIZE.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void gemm_check_fragments(
    global char* out, ulong out_offset) {
  local Stored tile[(BM + BN) * BK] __attribute__((aligned(16)));
#ifdef REGISTERS
  local uint registers[REGISTERS];
#endif
  const uint item = get_local_id(0);
  global uint* to = (global uint*)(out + out_offset);
  to[item] = right_sums(tile, item, 1.0f REGISTERS_PASSED);
  to[SIZE + item] = right_sums(tile, item, SUBNORMAL REGISTERS_PASSED);
#if CHAINED
  to[2 * SIZE + item] = right_chained_sums(tile, item REGISTERS_PASSED);
#endif
}
