// The matrix product by sub-groups of a size that the kernel may ask for (Intel's GPUs): a
// sub-group takes WM x WN sums, of which a work-item keeps a column of 8 or more and so needs an
// element of a that another one has. Either Intel's matrix instructions hand it over
// (cl_intel_subgroup_matrix_multiply_accumulate: half and bfloat16, 16 k at a time), or broadcasts
// do, which are no instructions of their own on these devices (cl_khr_subgroups: the types that can
// be broadcast).
//
// As in tiled.cl, the next tiles travel from global memory into registers while the current ones
// are multiplied, and then into the other half of local memory.
//
// Compile parameters besides fetch.clh's: WM x WN (a sub-group's sums, multiples of 8 and SIZE),
// SIZE (of a sub-group), MATRIX (0: broadcasts, 1: matrix instructions, 2: the same by broadcasts,
// to test what surrounds them where there are none). IN0 = IN1 is f16 or bf16 if MATRIX is not 0; C
// is not complex.
#ifdef cl_khr_subgroups  // else they are a feature of OpenCL C 3.0
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
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
#ifndef MATRIX
#define MATRIX 0
#endif

#define GROUPS_N (BN / WN)
#define GROUPS_M (BM / WM)
#define ITEMS (GROUPS_M * GROUPS_N * SIZE)
#define FM (WM / 8)     // pieces of 8 rows
#define FN (WN / SIZE)  // and of SIZE columns
#include "gemm/fetch.clh"

// Local memory keeps a row after row, and of b the columns of a k. The instructions
// want b in pairs of neighbouring k.
#if MATRIX
typedef ushort Stored;
#define TO_STORED(tag, width, raw) (raw)
#define KEPT_BYTES 2
#define DEPTH_OF_PIECE 16
#define B_AT_PLACE(column, k) (((k) / 2 * BN + (column)) * 2 + (k) % 2)
#else
typedef T Stored;
#define TO_STORED(tag, width, raw) DECODE_AS(C, tag, width, raw)
#define KEPT_BYTES STORAGE_SIZE(C)
#define DEPTH_OF_PIECE SIZE
#define B_AT_PLACE(column, k) ((k) * BN + (column))
#endif
// The padding keeps 16-byte alignment, and spreads the stores along k over the banks.
#define A_LINE (BK + 16 / KEPT_BYTES)
#define A_AT_PLACE(row, k) ((row) * A_LINE + (k))
#define STAGE (BM * A_LINE + BK * BN)
// The epilogue's lines: 8 rows of every sub-group.
#define OUT_ELEMENTS (GROUPS_M * 8 * BN)
#define MEMORY_BYTES                                                                \
  (2 * STAGE * KEPT_BYTES > OUT_ELEMENTS * STORAGE_SIZE(C) ? 2 * STAGE * KEPT_BYTES \
                                                           : OUT_ELEMENTS * STORAGE_SIZE(C))

// store_a and store_b: from registers to local memory.
#define DEFINE_STORE(name, tag, width, loads, size, by_k, AT)                                    \
  static inline void name(private const RAW(tag, width) * raw, local Stored * tile, uint item) { \
    _Pragma("unroll") for (uint i = 0; i < loads; i++) {                                         \
      const uint e = item + i * ITEMS;                                                           \
      if (size * BK / width % ITEMS != 0 && e >= size * BK / width) continue;                    \
      const uint2 place = place_of(e, by_k, size, width);                                        \
      const PASTE2(Stored, width) values = TO_STORED(tag, width, raw[i]);                        \
      _Pragma("unroll") for (uint j = 0; j < width; j++) {                                       \
        const uint line = place.x + (by_k ? 0 : j), k = place.y + (by_k ? j : 0);                \
        tile[AT(line, k)] = ((private const Stored*)&values)[j];                                 \
      }                                                                                          \
    }                                                                                            \
  }
#if MATRIX
typedef ushort Stored1;
typedef ushort2 Stored2;
typedef ushort4 Stored4;
#else
typedef T Stored1;
typedef TYPEV(C, 2) Stored2;
typedef TYPEV(C, 4) Stored4;
#endif
DEFINE_STORE(store_a, IN0, A_WIDTH, A_LOADS, BM, A_BY_K, A_AT_PLACE)
DEFINE_STORE(store_b, IN1, B_WIDTH, B_LOADS, BN, B_BY_K, B_AT_PLACE)

typedef TYPEV(C, 8) Sums;  // of 8 rows and a work-item's column

// A CPU, which runs this kernel in tests, has no names for lanes that would ask for literals, and
// takes a minute to compile what a GPU wants unrolled.
#ifdef OCL_DEVICE_CPU
#define UNROLL_LANES _Pragma("unroll 1")
#else
#define UNROLL_LANES _Pragma("unroll")
#endif

#if MATRIX
// A work-item has the elements of a in its column of k: one, or, with sub-groups of 8, a pair.
#if SIZE == 8
typedef int8 PieceOfA;
#else
typedef short8 PieceOfA;
#endif
#if MATRIX == 1
#define MATRIX_MAD_f16 intel_sub_group_f16_f16_matrix_mad_k16
#define MATRIX_MAD_bf16 intel_sub_group_bf16_bf16_matrix_mad_k16
#define MULTIPLY(u, v, sums) PASTE2(MATRIX_MAD_, IN0)(u, v, sums)
#else
#define ELEMENT(bits) DECODE_AS(f32, IN0, 1, (ushort)(bits))
/// Does what the instructions are specified to do.
static inline float8 multiply(PieceOfA u, int8 v, float8 sums) {
  UNROLL_LANES
  for (uint pair = 0; pair < 8; pair++) {
    const uint y = ((private const uint*)&v)[pair];
    UNROLL_LANES
    for (uint r = 0; r < 8; r++) {
#if SIZE == 8
      const uint x = sub_group_broadcast(((private const uint*)&u)[r], pair);
      const ushort low = x & 0xffff, high = x >> 16;
#else
      const uint x = ((private const ushort*)&u)[r];
      const ushort low = sub_group_broadcast(x, 2 * pair);
      const ushort high = sub_group_broadcast(x, 2 * pair + 1);
#endif
     private float* sum = (private float*)&sums + r;
      *sum = fma(ELEMENT(low), ELEMENT(y & 0xffff), *sum);
      *sum = fma(ELEMENT(high), ELEMENT(y >> 16), *sum);
    }
  }
  return sums;
}
#define MULTIPLY(u, v, sums) multiply(u, v, sums)
#endif

/// Multiplies the piece of depth 16 at k.
static inline void multiply_piece(private Sums* sum, local const Stored* x, local const Stored* y,
                                  uint k, uint lane) {
  PieceOfA u[FM];
  UNROLL_LANES
  for (uint i = 0; i < FM; i++) {
    UNROLL_LANES
    for (uint r = 0; r < 8; r++) {
#if SIZE == 8
      ((private int*)(u + i))[r] = *(local const int*)(x + A_AT_PLACE(i * 8 + r, k + 2 * lane));
#else
      ((private ushort*)(u + i))[r] = x[A_AT_PLACE(i * 8 + r, k + lane)];
#endif
    }
  }
  UNROLL_LANES
  for (uint j = 0; j < FN; j++) {
    int8 v;
    UNROLL_LANES
    for (uint pair = 0; pair < 8; pair++) {
      ((private int*)&v)[pair] = *(local const int*)(y + B_AT_PLACE(j * SIZE + lane, k + 2 * pair));
    }
    UNROLL_LANES
    for (uint i = 0; i < FM; i++) sum[i * FN + j] = MULTIPLY(u[i], v, sum[i * FN + j]);
  }
}
#else
/// Multiplies the piece of depth SIZE at k.
static inline void multiply_piece(private Sums* sum, local const Stored* x, local const Stored* y,
                                  uint k, uint lane) {
  T u[WM];
#pragma unroll
  for (uint r = 0; r < WM; r++) u[r] = x[A_AT_PLACE(r, k + lane)];
  UNROLL_LANES
  for (uint kk = 0; kk < SIZE; kk++) {
#pragma unroll
    for (uint j = 0; j < FN; j++) {
      const T v = y[B_AT_PLACE(j * SIZE + lane, k + kk)];
#pragma unroll
      for (uint r = 0; r < WM; r++) {
       private T* to = (private T*)(sum + r / 8 * FN + j) + r % 8;
        *to = MAD(sub_group_broadcast(u[r], kk), v, *to);
      }
    }
  }
}
#endif

/// Global size: ITEMS * tiles * batch * splits.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
__attribute__((intel_reqd_sub_group_size(SIZE))) void
gemm_subgroup(OPERANDS WINDOWS_OPERAND) {
  local uchar memory[MEMORY_BYTES] __attribute__((aligned(16)));
  local Stored* tiles = (local Stored*)memory;
  const uint item = get_local_id(0), lane = get_sub_group_local_id();
  const uint place_m = get_sub_group_id() / GROUPS_N, place_n = get_sub_group_id() % GROUPS_N;
  const Tile tile = tile_of(p, BM, BN);
  const uint row0 = tile.row * BM, column0 = tile.column * BN, z = tile.z, split = tile.split;
  const uint start = split * p.split_k, end = min(start + p.split_k, p.k);
  ADVANCE_OPERANDS((ulong)z);

  Sums sum[FM * FN];
#pragma unroll
  for (uint i = 0; i < FM * FN; i++) sum[i] = (Sums)(0);

  RAW_TILES(row0, column0, start, end, item);
  uint now = 0;
  if (left > 0) {
    FETCH_TILES(item, true);
    store_a(raw_a, tiles, item);
    store_b(raw_b, tiles + BM * A_LINE, item);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  while (left > 0) {
    FETCH_NEXT_TILES(item);
    local const Stored* x = tiles + now * STAGE + place_m * WM * A_LINE;
    local const Stored* y = tiles + now * STAGE + BM * A_LINE + B_AT_PLACE(place_n * WN, 0);
    // Not unrolled: a piece is some hundreds of instructions.
#pragma unroll 1
    for (uint k = 0; k < BK; k += DEPTH_OF_PIECE) multiply_piece(sum, x, y, k, lane);
    now ^= 1;
    if (left > 0) {
      store_a(raw_a, tiles + now * STAGE, item);
      store_b(raw_b, tiles + now * STAGE + BM * A_LINE, item);
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
      for (uint r = 0; r < 8; r++) {
        lines[(place_m * 8 + r) * BN + place_n * WN + j * SIZE + lane] =
            ((private const T*)(sum + i * FN + j))[r];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = item; e < OUT_ELEMENTS; e += ITEMS) {
      const uint line = e / BN;
      const ulong row = row0 + line / 8 * WM + i * 8 + line % 8, column = column0 + e % BN;
      if (row < p.m && column < p.n) {
        EPILOGUE_OR_SPLIT((ulong)z, (ulong)split, row, column, lines[e]);
      }
    }
  }
}
