// The matrix product in half, bfloat16 or TF32, summed in float, or in integers of 8 bits, summed
// in 32, by tensor cores, with software pipelining.
//
// Up to STAGES - 1 tiles of a and b are prefetched from global to local memory. Each sub-group of
// 32 (warp) takes WM x WN sums of the work-group's BM x BN; with WARPGROUP, Hopper's instructions
// for 4 of them (64 x BN sums) read both operands from local memory and run while the next tile is
// waited for.
//
// Compile parameters besides gemm.clh's: BM x BN x BK, WM x WN, STAGES, LAG (1 or, of WARPGROUP, 2:
// a tile's place is taken that many tiles later, and with 2 the work-group meets once per tile),
// PREFETCHED (STAGES - LAG - 1) and LINE_BYTES (of BK elements), as literals, A_BY_K and B_BY_K (1:
// an operand is contiguous along k, 0: along its rows or columns), WARPGROUP, OCL_PTX_LOCAL (see
// opencl/retarget.h: STAGES * STAGE_BYTES, where that is more than the compiler allows), WINDOWS
// (of a convolution, one of the operands: copy_windows.clh). IN0 = IN1 = OUT is f16, bf16 or f32,
// or, with WARPGROUP, IN0 = IN1 is i8 or u8. What isn't of 16 bits needs A_BY_K and B_BY_K for
// WARPGROUP, which takes of a float what TF32 has and cuts off the rest; else floats are rounded.
// With EXACT_TERMS = 6, IN0 = IN1 is bf16, OUT is f32, and an operand's elements are sums of three
// parts that lie apart (bfloat16x3.cl): of their nine terms six count, all but
// the smallest, so that what is left out is less than single precision has. Needs both operands
// aligned to 16 bytes, with the other strides multiples of that, and k above 0.
#ifndef IN0
#define IN0 f16
#define IN1 f16
#define OUT f16
#endif
#include "gemm/gemm.clh"
#include "gemm/tiles.clh"
#include "gemm/tensor_core.clh"

#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 32
#endif
#ifndef WM
#define WM 64
#endif
#ifndef WN
#define WN 64
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef LAG
#define LAG 1
#endif
#ifndef PREFETCHED
#define PREFETCHED 1
#endif
#ifndef LINE_BYTES
#define LINE_BYTES 64
#endif
#ifndef A_BY_K
#define A_BY_K 1
#endif
#ifndef B_BY_K
#define B_BY_K 0
#endif
#ifndef WARPGROUP
#define WARPGROUP 0
#endif
#ifndef WINDOWS
#define WINDOWS 0
#endif
#ifndef EXACT_TERMS
#define EXACT_TERMS 1
#endif

#define WARPS_N (BN / WN)
#define ITEMS (BM / WM * WARPS_N * 32)
#define FM (WM / 16)  // 16 x 16 pieces of a
#define FN (WN / 8)   // 16 x 8 pieces of b
// The sums of the piece (i, j).
#define SUM(i, j) (sum + ((i) * FN + (j)) * 4)

#include "gemm/tensor_core_copies.clh"
#include "gemm/tensor_core_results.clh"

#if !WARPGROUP

#if ELEMENT == 4
/// The float of line k and column m of a tile that doesn't lie by k.
static inline uint float_at(uint tile, uint k, uint m, const uint size) {
  return *(local const uint*)(size_t)(tile + k * LINE_PITCH(size) + m * 4);
}
#define ROUNDED(piece)                                                                     \
  (uint4)(round_to_tf32((piece).s0), round_to_tf32((piece).s1), round_to_tf32((piece).s2), \
          round_to_tf32((piece).s3))
#else
#define ROUNDED(piece) (piece)
#endif

/// The piece of a (16 x 16; 16 x 8 floats) at row m0 of a tile, k0 times 16 bits deep.
static inline uint4 piece_of_a(uint tile, uint m0, uint k0, uint lane) {
  if (A_BY_K) {
    return ROUNDED(load_matrices(tile + tile_offset(m0 + lane % 16, k0 / 8 + lane / 16, true, BM)));
  }
#if ELEMENT == 4
  const uint k = k0 / 2 + lane % 4, m = m0 + lane / 4;
  return ROUNDED((uint4)(float_at(tile, k, m, BM), float_at(tile, k, m + 8, BM),
                         float_at(tile, k + 4, m, BM), float_at(tile, k + 4, m + 8, BM)));
#else
  return load_matrices_transposed(
      tile + tile_offset(k0 + lane / 16 * 8 + lane % 8, m0 / 8 + lane / 8 % 2, false, BM));
#endif
}

/// Two pieces of b (16 x 8; 8 x 8 floats) at column n0: (b0, b1) of the first, then of the second.
static inline uint4 pieces_of_b(uint tile, uint n0, uint k0, uint lane) {
  if (B_BY_K) {
    return ROUNDED(load_matrices(
        tile + tile_offset(n0 + lane / 16 * 8 + lane % 8, k0 / 8 + lane / 8 % 2, true, BN)));
  }
#if ELEMENT == 4
  const uint k = k0 / 2 + lane % 4, n = n0 + lane / 4;
  return ROUNDED((uint4)(float_at(tile, k, n, BN), float_at(tile, k + 4, n, BN),
                         float_at(tile, k, n + 8, BN), float_at(tile, k + 4, n + 8, BN)));
#else
  return load_matrices_transposed(tile +
                                  tile_offset(k0 + lane % 16, n0 / 8 + lane / 16, false, BN));
#endif
}

/// sum += a tile of a times one of b, at `tile` in local memory: pieces are loaded 16 deep ahead of
/// those that are multiplied.
static ALWAYS_INLINE void multiply_tile(uint tile, uint warp_m, uint warp_n, uint lane,
                                        private T* sum) {
  uint4 u[2][FM], v[2][FN / 2];
#pragma unroll
  for (uint kk = 0; kk <= DEPTH; kk += 16) {
    if (kk < DEPTH) {
#pragma unroll
      for (uint i = 0; i < FM; i++) {
        u[kk / 16 % 2][i] = piece_of_a(tile, warp_m + i * 16, kk, lane);
      }
#pragma unroll
      for (uint j = 0; j < FN / 2; j++) {
        v[kk / 16 % 2][j] = pieces_of_b(tile + A_BYTES, warp_n + j * 16, kk, lane);
      }
    }
    if (kk == 0) continue;
    const uint old = (kk / 16 - 1) % 2;
#pragma unroll
    for (uint i = 0; i < FM; i++) {
#pragma unroll
      for (uint j = 0; j < FN / 2; j++) {
        MULTIPLY(IN0, SUM(i, 2 * j), u[old][i], v[old][j].s0, v[old][j].s1);
        MULTIPLY(IN0, SUM(i, 2 * j + 1), u[old][i], v[old][j].s2, v[old][j].s3);
      }
    }
  }
}
#endif

#if EXACT_TERMS > 1
#define ADDS multiplied
#else
#define ADDS 1
#endif

/// Global size: ITEMS * tiles * batch * splits.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tensor_core(
    OPERANDS WINDOWS_OPERAND) {
#ifdef OCL_PTX_LOCAL
  local uchar memory[1024] __attribute__((aligned(1024)));
#else
  local uchar memory[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
#endif
  const uint item = get_local_id(0), lane = item % 32, warp = item / 32;
  const Tile tile = tile_of(p, BM, BN);
  const uint start = tile.split * p.split_k, end = min(start + p.split_k, p.k);
  ADVANCE_OPERANDS((ulong)tile.z);
  const uint warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;
  const uint stages = local_address_of_any(memory);
  Copies copies;
  begin_copies(&copies, a, b, p, tile, start, end, stages, item WINDOWS_ADDRESS);

  T sum[FM * FN * 4];
#pragma unroll
  for (uint i = 0; i < FM * FN * 4; i++) sum[i] = 0;
#if EXACT_TERMS > 1
  T total[FM * FN * 4];
#pragma unroll
  for (uint i = 0; i < FM * FN * 4; i++) total[i] = 0;
  uint multiplied = 0;
#endif
#pragma unroll
  for (uint s = 0; s < STAGES - LAG; s++) copy_next(&copies, p);
  // At least once, even for the compiler: a way around the loop would set sums beside it, and then
  // it waits after every multiplication.
  uint k0 = start, from = 0;
  do {
    // This work-item's part of the oldest tile is there; after the barrier, everyone's is.
    WAIT_COPIES(PREFETCHED);
#if WARPGROUP
    publish_tiles();
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong a_tile = descriptor(stages + from + warp / 4 * 64 * BK * ELEMENT, A_BY_K, DEPTH);
    const ulong b_tile = descriptor(stages + from + A_BYTES, B_BY_K, DEPTH);
    MULTIPLY_TILE(sum, a_tile, b_tile, ADDS);  // behind those of the tile before
#if LAG == 2
    // Since the barrier no one reads the tile before the one before any more.
    copy_next(&copies, p);
    WAIT_MULTIPLY(1);
#else
    // No one reads the tile before any more, so it can be overwritten.
    WAIT_MULTIPLY(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    copy_next(&copies, p);
#endif
#else
    // No one reads the tile before any more, so it can be overwritten.
    barrier(CLK_LOCAL_MEM_FENCE);
    copy_next(&copies, p);
    multiply_tile(stages + from, warp_m, warp_n, lane, sum);
#endif
    from = next_stage(from);
#if EXACT_TERMS > 1
    if (++multiplied < EXACT_TERMS) continue;
    multiplied = 0;
    // The units cut off little where their sums are short.
#if WARPGROUP
    WAIT_SUMS(sum);
#endif
#pragma unroll
    for (uint i = 0; i < FM * FN * 4; i++) {
      total[i] += sum[i];
      if (!WARPGROUP) sum[i] = 0;
    }
#endif
    k0 += BK;
  } while (k0 < end);
#if EXACT_TERMS > 1
#pragma unroll
  for (uint i = 0; i < FM * FN * 4; i++) sum[i] = total[i];
#elif WARPGROUP
  WAIT_SUMS(sum);
#endif
  WAIT_COPIES(0);

  local T* lines = (local T*)(size_t)stages;
#pragma unroll 1
  for (uint first = 0; first < BM; first += OUT_ROWS) {
    barrier(CLK_LOCAL_MEM_FENCE);
    share_sums(lines, sum, first, warp_m, warp_n, lane);
    barrier(CLK_LOCAL_MEM_FENCE);
#ifdef FINISHES_WIDE
    if (p.flags & kWide) {
      store_wide(lines, first, item, RESULT_PASSED);
      continue;
    }
#endif
    store_rows(lines, first, item, RESULT_PASSED);
  }
}
