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
// With PLANE_TERMS = 6, IN0 = IN1 is bf16, OUT is f32, and an operand's elements are sums of three
// numbers that lie in three planes (bfloat16_planes.cl): of their nine products six count, all but
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
#ifndef PLANE_TERMS
#define PLANE_TERMS 1
#endif

#define WARPS_N (BN / WN)
#define ITEMS (BM / WM * WARPS_N * 32)
#define ELEMENT STORAGE_SIZE(IN0)
#define CHUNK (16 / ELEMENT)    // elements that are copied at once
#define DEPTH (LINE_BYTES / 2)  // of a tile, in 16 bits
#define PANEL (8 * CHUNK)       // columns that are copied side by side where they don't lie by k
// A tile that doesn't lie by k consists of panels, or, of floats, of lines of all columns. Those
// are read one by one, from 4 neighbouring lines and 8 columns at a time, which the space behind a
// line moves to different banks.
#define WHOLE_LINES (ELEMENT == 4)
#define LINE_PITCH(size) (WHOLE_LINES ? ((size) + 8) * 4 : 128)
#define PANEL_PITCH (WHOLE_LINES ? 128 : BK * 128)
#define TILE_BYTES(size, by_k) \
  (WHOLE_LINES && !(by_k) ? BK * LINE_PITCH(size) : (size) * BK * ELEMENT)
#define A_BYTES TILE_BYTES(BM, A_BY_K)
#define B_BYTES TILE_BYTES(BN, B_BY_K)
/// Byte offset of chunk `c` of line `r` of a tile of `size` rows or columns.
static inline uint tile_offset(uint r, uint c, const bool by_k, const uint size) {
  if (by_k) return chunk_offset(r, c, true, DEPTH);
  return WHOLE_LINES ? r * LINE_PITCH(size) + c * 16 : chunk_offset(r, c, false, BK);
}
#define STAGE_BYTES (A_BYTES + B_BYTES)
// Chunks in a line of a tile: a row or column of the operand by k, else one k of a panel.
#define A_CHUNKS (A_BY_K ? BK / CHUNK : 8)
#define B_CHUNKS (B_BY_K ? BK / CHUNK : 8)
#define FM (WM / 16)  // 16 x 16 pieces of a
#define FN (WN / 8)   // 16 x 8 pieces of b
// The sums of the piece (i, j).
#define SUM(i, j) (sum + ((i) * FN + (j)) * 4)

// Elements of the result that are stored at once.
#define WIDE_f16 8
#define WIDE_bf16 8
#define WIDE_f32 4
#if ELEMENT == 1
#define WIDE 0
#else
#define WIDE PASTE2(WIDE_, OUT)
#endif
#define T2 TYPEV(C, 2)

// The epilogue's rows, in sums; the padding keeps 16-byte alignment.
#define OUT_LINE (BN + 4)
#define OUT_FITS(rows) ((rows) * OUT_LINE * 4 <= STAGES * STAGE_BYTES)
#define OUT_ROWS (OUT_FITS(BM) ? BM : OUT_FITS(BM / 2) ? BM / 2 : OUT_FITS(BM / 4) ? BM / 4 : 16)

// Of each tile, which planes are multiplied one after another: 0 high, 1 middle, 2 low, two bits
// each, from the lowest on. Small products come first: the units cut off a sum's last bits rather
// than round it, and a sum that is small as yet loses less.
#define A_PLANES 0x052  // low, high, middle, middle, high, high
#define B_PLANES 0x118  // high, low, middle, high, middle, high
#if PLANE_TERMS > 1
#define PLANE(planes) ((ulong)((planes) >> 2 * part & 3))
#define IN_A_PLANE (PLANE(A_PLANES) * p.a_plane)
#define IN_B_PLANE (PLANE(B_PLANES) * p.b_plane)
#else
#define IN_A_PLANE 0
#define IN_B_PLANE 0
#endif

/// The bytes of a chunk of which `left` elements exist.
static inline uint bytes_of(int left) { return clamp(left, 0, CHUNK) * ELEMENT; }

/// Starts this work-item's copies of a tile: chunk `chunk` of line `line` and of those that follow.
/// `from` is where the first one is, `stride` the bytes from line to line. Lines from `lines` on
/// are zeros, and so is what is past `left` elements along them.
static inline void copy_tile(uint to, global const char* from, ulong stride, uint line, uint chunk,
                             uint lines, int left, const bool by_k, const uint size) {
  // Multiples of 8 lines, so that chunks are permuted alike, which divide those of a panel.
  const uint step = ITEMS / (by_k ? BK / CHUNK : 8);
  const uint first = to + tile_offset(line, chunk, by_k, size);
#pragma unroll
  for (uint l = 0; l < (by_k ? size : size / PANEL * BK); l += step) {
    const uint panel = by_k ? 0 : l / BK, step_line = by_k ? l : l % BK;
    const uint bytes = bytes_of(left - (int)(chunk * CHUNK + panel * PANEL));
    copy_async(first + (by_k ? l * LINE_BYTES : step_line * LINE_PITCH(size) + panel * PANEL_PITCH),
               from + step_line * stride + panel * 128, line + step_line < lines ? bytes : 0);
  }
}

#if WINDOWS
#include "gemm/copy_windows.clh"
#endif

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

#endif

// An epilogue takes as many columns, or one element at a time.
#if WIDE && (!defined(EPILOGUE_TEXT) || EPILOGUE_LANES == WIDE)
#define FINISHES_WIDE 1
#define STORING (ITEMS / (BN / WIDE) * (BN / WIDE))
// A work-item's stores are all in the same columns: what an epilogue computes of these, it
// computes once.
#ifdef EPILOGUE_COLUMNS
#define COLUMNS_PARAMETER , const epilogue_columns columns
#define COLUMNS_PASSED , columns
#else
#define COLUMNS_PARAMETER
#define COLUMNS_PASSED
#endif
/// WIDE elements of the result at a time, where out (and c) allow 16-byte accesses.
static inline void finish_wide(private const float* sums, global const char* c, global char* out,
                               const Arguments p, float alpha, float beta, ulong z, ulong row,
                               ulong column, ulong at COLUMNS_PARAMETER EPILOGUE_PARAMETERS) {
  float value[WIDE];
#pragma unroll
  for (uint j = 0; j < WIDE; j++) value[j] = alpha * sums[j];
  if (p.flags & kAddend) {
    const RAW(OUT, WIDE) bits = LOAD_RAW(OUT, WIDE, c, row * p.c.row + column);
    const TYPEV(f32, WIDE) addend = DECODE_AS(f32, OUT, WIDE, bits);
#pragma unroll
    for (uint j = 0; j < WIDE; j++) {
      value[j] = MAD(beta, ((private const float*)&addend)[j], value[j]);
    }
  }
#ifdef EPILOGUE_TEXT
  TYPEV(f32, WIDE) results;
#pragma unroll
  for (uint j = 0; j < WIDE; j++) ((private float*)&results)[j] = ACTIVATE(value[j]);
#define PLACE p.batch0 + z, p.row0 + row, p.column0 + column
#ifdef EPILOGUE_COLUMNS
  epilogue_elements(PLACE, results, columns EPILOGUE_OPERANDS);
#else
  epilogue_lanes(PLACE, results EPILOGUE_OPERANDS);
#endif
#else
  uint4 packed;
#pragma unroll
  for (uint j = 0; j < 4; j++) {
#if STORAGE_SIZE(OUT) == 2
    const float low = ACTIVATE(value[2 * j]), high = ACTIVATE(value[2 * j + 1]);
    uint pair;
    PACK2(OUT, low, high, pair);
    ((private uint*)&packed)[j] = pair;
#else
    ((private uint*)&packed)[j] = as_uint(ACTIVATE(value[j]));
#endif
  }
  *(global uint4*)(out + (at + column) * STORAGE_SIZE(OUT)) = packed;
#endif
}
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
  const uint row0 = tile.row * BM, column0 = tile.column * BN, z = tile.z, split = tile.split;
  const uint start = split * p.split_k, end = min(start + p.split_k, p.k);
  ADVANCE_OPERANDS((ulong)z);
  const uint warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;
  const uint stages = local_address_of_any(memory);

  // Where this work-item's copies of the next tile begin, and how much of k is left from there.
  const ulong a_stride = (A_BY_K ? p.a.row : p.a.column) * ELEMENT;
  const ulong b_stride = (B_BY_K ? p.b.column : p.b.row) * ELEMENT;
  const uint a_line = item / A_CHUNKS, a_chunk = item % A_CHUNKS;
  const uint b_line = item / B_CHUNKS, b_chunk = item % B_CHUNKS;
  uint left = end - start, to = 0, from = 0;
#if WINDOWS
  Iterator windows;
#endif
#if WINDOWS == 1
  begin(&windows, a, row0 + a_line, p.m, start + a_chunk * CHUNK, w);
#define FETCH_A()                                                                          \
  copy_windows(stages + to, &windows, a_line, a_chunk, (int)left - (int)(a_chunk * CHUNK), \
               IN_A_PLANE)
#define NEXT_A() advance(&windows.tap, BK, w)
#else
  a += (A_BY_K ? row0 + a_line : start + a_line) * a_stride +
       ((A_BY_K ? start : row0) + a_chunk * CHUNK) * ELEMENT;
#define FETCH_A()                                                                               \
  copy_tile(stages + to, a + IN_A_PLANE, a_stride, a_line, a_chunk, A_BY_K ? p.m - row0 : left, \
            A_BY_K ? left : p.m - row0, A_BY_K, BM)
#define NEXT_A() a += A_BY_K ? LINE_BYTES : BK * a_stride
#endif
#if WINDOWS == 2
  begin(&windows, column0 + b_chunk * CHUNK, p.n, w);
#define FETCH_B()                                                                \
  copy_windows(stages + to + A_BYTES, &windows, b + IN_B_PLANE, b_line, b_chunk, \
               end - left + b_line, (int)left - (int)b_line, w)
#define NEXT_B() (void)0
#else
  b += (B_BY_K ? column0 + b_line : start + b_line) * b_stride +
       ((B_BY_K ? start : column0) + b_chunk * CHUNK) * ELEMENT;
#define FETCH_B()                                                             \
  copy_tile(stages + to + A_BYTES, b + IN_B_PLANE, b_stride, b_line, b_chunk, \
            B_BY_K ? p.n - column0 : left, B_BY_K ? left : p.n - column0, B_BY_K, BN)
#define NEXT_B() b += B_BY_K ? LINE_BYTES : BK * b_stride
#endif
#if PLANE_TERMS > 1
  uint part = 0;
#define IS_LAST_PART() (part = part == PLANE_TERMS - 1 ? 0 : part + 1, part == 0)
#else
#define IS_LAST_PART() true
#endif
#define FETCH()                                                   \
  do {                                                            \
    if (left > 0) {                                               \
      FETCH_A();                                                  \
      FETCH_B();                                                  \
      if (IS_LAST_PART()) {                                       \
        NEXT_A();                                                 \
        NEXT_B();                                                 \
        left = left > BK ? left - BK : 0;                         \
      }                                                           \
    }                                                             \
    commit_copies();                                              \
    to = to == (STAGES - 1) * STAGE_BYTES ? 0 : to + STAGE_BYTES; \
  } while (0)

  T sum[FM * FN * 4];
#pragma unroll
  for (uint i = 0; i < FM * FN * 4; i++) sum[i] = 0;
#if PLANE_TERMS > 1
  T total[FM * FN * 4];
#pragma unroll
  for (uint i = 0; i < FM * FN * 4; i++) total[i] = 0;
  uint multiplied = 0;
#define ADDS multiplied
#else
#define ADDS 1
#endif
#pragma unroll
  for (uint s = 0; s < STAGES - LAG; s++) FETCH();
  // At least once, even for the compiler: a way around the loop would set sums beside it, and then
  // it waits after every multiplication.
  uint k0 = start;
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
    FETCH();
    WAIT_MULTIPLY(1);
#else
    // No one reads the tile before any more, so it can be overwritten.
    WAIT_MULTIPLY(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    FETCH();
#endif
#else
    // No one reads the tile before any more, so it can be overwritten.
    barrier(CLK_LOCAL_MEM_FENCE);
    FETCH();
    uint4 u[2][FM], v[2][FN / 2];
#pragma unroll
    for (uint kk = 0; kk <= DEPTH; kk += 16) {
      if (kk < DEPTH) {
#pragma unroll
        for (uint i = 0; i < FM; i++) {
          u[kk / 16 % 2][i] = piece_of_a(stages + from, warp_m + i * 16, kk, lane);
        }
#pragma unroll
        for (uint j = 0; j < FN / 2; j++) {
          v[kk / 16 % 2][j] = pieces_of_b(stages + from + A_BYTES, warp_n + j * 16, kk, lane);
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
#endif
    from = from == (STAGES - 1) * STAGE_BYTES ? 0 : from + STAGE_BYTES;
#if PLANE_TERMS > 1
    if (++multiplied < PLANE_TERMS) continue;
    multiplied = 0;
    // What the units cut off stays small where their sums are short.
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
#if PLANE_TERMS > 1
#pragma unroll
  for (uint i = 0; i < FM * FN * 4; i++) sum[i] = total[i];
#elif WARPGROUP
  WAIT_SUMS(sum);
#endif
  WAIT_COPIES(0);

  // Through local memory, OUT_ROWS rows at a time, so that neighbouring work-items store
  // neighbouring elements.
  local T* lines = (local T*)(size_t)stages;
#pragma unroll 1
  for (uint first = 0; first < BM; first += OUT_ROWS) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint i = 0; i < FM; i++) {
      const uint at = warp_m + i * 16;
      if (at < first || at >= first + OUT_ROWS) continue;
#pragma unroll
      for (uint j = 0; j < FN; j++) {
        local T* to = lines + (at - first + lane / 4) * OUT_LINE + warp_n + j * 8 + lane % 4 * 2;
        *(local T2*)to = (T2)(SUM(i, j)[0], SUM(i, j)[1]);
        *(local T2*)(to + 8 * OUT_LINE) = (T2)(SUM(i, j)[2], SUM(i, j)[3]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#ifdef FINISHES_WIDE
    if (p.flags & kWide) {
      // As many work-items as have whole rows between them, each in its columns.
      const uint column = item % (BN / WIDE) * WIDE;
      const bool inside = item < STORING && column0 + column < p.n;
#ifdef EPILOGUE_COLUMNS
      epilogue_columns columns;
      if (inside && p.splits == 1) {
        columns = epilogue_columns_of(p.batch0 + z, p.column0 + column0 + column EPILOGUE_OPERANDS);
      }
#endif
      for (uint e = item; e < OUT_ROWS * BN / WIDE; e += STORING) {
        const uint r = e / (BN / WIDE);
        if (!inside || row0 + first + r >= p.m) continue;
        local const float4* at = (local const float4*)(lines + r * OUT_LINE + column);
        float4 total[WIDE / 4];
#pragma unroll
        for (uint j = 0; j < WIDE / 4; j++) total[j] = at[j];
        const ulong row = (ulong)row0 + first + r;
        if (p.splits == 1) {
          finish_wide((private const float*)total, c, out, p, alpha, beta, z, row,
                      (ulong)column0 + column, OUT_AT(row) COLUMNS_PASSED EPILOGUE_PASSED);
        } else {
          global float4* part =
              (global float4*)((global float*)workspace +
                               (((ulong)split * p.batch + z) * p.m + row) * p.n + column0 + column);
#pragma unroll
          for (uint j = 0; j < WIDE / 4; j++) part[j] = total[j];
        }
      }
      continue;
    }
#endif
    // A row at a time, whose place is worked out once.
    for (uint r = warp; r < OUT_ROWS && row0 + first + r < p.m; r += ITEMS / 32) {
      const ulong row = (ulong)row0 + first + r;
      for (uint i = lane; i < BN && column0 + i < p.n; i += 32) {
        const T total = lines[r * OUT_LINE + i];
        EPILOGUE_OR_SPLIT((ulong)z, (ulong)split, row, (ulong)column0 + i, total);
      }
    }
  }
}
