// Implicit GEMM in local-memory tiles, for GPUs: a work-group brings tiles of a and b into local
// memory, a work-item keeps TM x TN sums in registers. Where the elements of k lie is in a table,
// so that a load is one addition away from its address.
//
// The next tiles travel from global memory into registers while the current ones are multiplied,
// and then into the other half of local memory: one barrier per tile. Where few tiles fill the
// device, several work-items share the same sums: each takes its slice of the tile's k.
//
// Compile parameters: those of conv/conv.clh and gemm/tile_sizes.clh; TABLE (1: a
// work-group has a table of its own; 0: conv_table of conv/tiled_parts.cl wrote one for all),
// A_BY_K and B_BY_K (1: neighbouring work-items read along k), OUT_BY_ROW (1: they store along
// rows).
//
// Totals, where k is summed in several parts, are [split][z][m][n].
#include "conv/conv.clh"
#include "conv/epilogue.clh"
#include "gemm/tile_product.clh"

#ifndef TABLE
#define TABLE 1
#endif
#ifndef A_BY_K
#define A_BY_K 0
#endif
#ifndef B_BY_K
#define B_BY_K 1
#endif
#ifndef OUT_BY_ROW
#define OUT_BY_ROW 1
#endif

#define A_LOADS ((BM * BK + ITEMS - 1) / ITEMS)
#define B_LOADS ((BN * BK + ITEMS - 1) / ITEMS)

// The sums' way out: STEPS times LINES lines of results that follow each other. The padding spreads
// the stores of neighbouring lines over the banks. AT_ONCE steps go through local memory together.
#if OUT_BY_ROW
#define STEPS TN
#define LINES LN
#define LINE (BM + RUN)
#else
#define STEPS TM
#define LINES LM
#define LINE BN
#endif
#define STEPS_FIT(steps) (STEPS % (steps) == 0 && SLICES * (steps) * LINES * LINE <= 2 * STAGE)
#define AT_ONCE (STEPS_FIT(8) ? 8 : STEPS_FIT(4) ? 4 : STEPS_FIT(2) ? 2 : 1)

/// (place along the tile's rows or columns, place along k) of a work-item's load `e`.
static inline uint2 place_in_tile(uint e, const bool by_k, const uint size) {
  return by_k ? (uint2)(e / BK, e % BK) : (uint2)(e % size, e / size);
}

// fetch_a and fetch_b: elements from `k0` on into registers; past `end`, which only a `partial`
// tile asks about, zeros.
#define DEFINE_FETCH(name, loads, size, by_k, value)                                       \
  static inline void name(private T* next, global const char* from, private const int* at, \
                          uint item, uint k0, uint end, const bool partial) {              \
    _Pragma("unroll") for (uint i = 0; i < loads; i++) {                                   \
      const uint e = item + i * ITEMS;                                                     \
      if (size * BK % ITEMS != 0 && e >= size * BK) continue;                              \
      next[i] = !partial || k0 + place_in_tile(e, by_k, size).y < end ? value : (T)(0);    \
    }                                                                                      \
  }
DEFINE_FETCH(fetch_a, A_LOADS, BM, A_BY_K, ((global const T*)from)[at[i]])
DEFINE_FETCH(fetch_b, B_LOADS, BN, B_BY_K, (LOAD_AS(C, IN, from, at[i])))

// store_a and store_b: from registers to local memory.
#define DEFINE_STORE(name, loads, size, by_k, line)                          \
  static inline void name(private const T* next, local T* tile, uint item) { \
    _Pragma("unroll") for (uint i = 0; i < loads; i++) {                     \
      const uint e = item + i * ITEMS;                                       \
      if (size * BK % ITEMS != 0 && e >= size * BK) continue;                \
      const uint2 place = place_in_tile(e, by_k, size);                      \
      tile[place.y * line + place.x] = next[i];                              \
    }                                                                        \
  }
DEFINE_STORE(store_a, A_LOADS, BM, A_BY_K, A_LINE)
DEFINE_STORE(store_b, B_LOADS, BN, B_BY_K, B_LINE)

// Where elements of k lie in a and in b: by a work-group's own table, which begins at element
// `start`, or by one for all.
#if TABLE
typedef local const int* Places;
#define K_A(k) places[(k) - start]
#define K_B(k) places[(k) - start + p.split_k]
#else
typedef global const int* Places;
#define K_A(k) places[2 * (k)]
#define K_B(k) places[2 * (k) + 1]
#endif

/// Where the loads of the tile at k0 are, for the tile after the one that is being fetched.
static ALWAYS_INLINE void find_tile(private int* at_a, private int* at_b, private const int* row_at,
                                    private const int* column_at, Places places, uint k0,
                                    uint start, uint end, uint item, const ContractionArguments p) {
  _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {
    const uint k = k0 + place_in_tile(item + i * ITEMS, A_BY_K, BM).y;
    at_a[i] = row_at[i] + K_A(min(k, end - 1));
  }
  _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {
    const uint k = k0 + place_in_tile(item + i * ITEMS, B_BY_K, BN).y;
    at_b[i] = column_at[i] + K_B(min(k, end - 1));
  }
}

/// A work-item's sums of the steps [first, first + AT_ONCE), into local memory.
static ALWAYS_INLINE void share_sums(local T* memory, private T sum[TM][TN], uint first,
                                     const TilePlace place) {
  _Pragma("unroll") for (uint s = 0; s < AT_ONCE; s++) {
    const uint step = first + s;
#if OUT_BY_ROW
    local T* to =
        memory + ((place.slice * AT_ONCE + s) * LINES + place.column) * LINE + place.row * RUN;
    _Pragma("unroll") for (uint i = 0; i < TM / RUN; i++) {
      Run values;
      _Pragma("unroll") for (uint r = 0; r < RUN; r++) {
        ((private T*)&values)[r] = sum[i * RUN + r][step];
      }
      *(local Run*)(to + i * LM * RUN) = values;
    }
#else
    local T* to =
        memory + ((place.slice * AT_ONCE + s) * LINES + place.row) * LINE + place.column * RUN;
    _Pragma("unroll") for (uint j = 0; j < TN / RUN; j++) {
      *(local Run*)(to + j * LN * RUN) = *((private const Run*)sum[step] + j);
    }
#endif
  }
}

/// Adds up the slices' sums of these steps, and stores results, or totals.
static ALWAYS_INLINE void store_sums(local const T* memory, local const long* row_to, uint first,
                                     uint row0, uint column0, uint z, uint item,
                                     global const char* bias, global char* out, global T* totals,
                                     const ContractionArguments p EPILOGUE_PARAMETERS) {
  const uint length = OUT_BY_ROW ? BM : BN;
  for (uint e = item; e < AT_ONCE * LINES * length; e += ITEMS) {
    const uint line = e / length, within = e % length, step = first + line / LINES;
    const uint across = step / RUN * LINES * RUN + line % LINES * RUN + step % RUN;
    const uint r = OUT_BY_ROW ? within : across;
    const uint row = row0 + r, column = column0 + (OUT_BY_ROW ? across : within);
    if (row >= p.m || column >= p.n) continue;
    T value = memory[line * LINE + within];
    _Pragma("unroll") for (uint other = 1; other < SLICES; other++) {
      value += memory[(other * AT_ONCE * LINES + line) * LINE + within];
    }
    global T* total = totals + (ulong)row * p.n + column;
    if (p.flags & kConvResume) value += *total;
    if (p.flags & kConvKeep) {
      *total = value;
      continue;
    }
    if (p.flags & kConvBias) value += LOAD_AS(C, OUT, bias, column);
    STORE_RESULT(RESULT_ROW(p.plane, p.all, p.position0 + row, z * p.n + column),
                 RESULT_COLUMN(p.plane, p.position0 + row, z * p.n + column), out,
                 row_to[r] + column * p.column_out, value);
  }
}

/// Global size: ITEMS * tiles, groups, splits.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_tiled(
    global const char* a_base, const ulong a_offset, global const char* b_base,
    const ulong b_offset, global const char* bias, const ulong bias_offset, global char* out,
    const ulong out_offset, global const char* table_base, const ulong table_offset,
    global char* sums, const ulong sums_offset, local int* k_places,
    const ContractionArguments p EPILOGUE_PARAMETERS) {
  local T memory[2 * STAGE] __attribute__((aligned(16)));
  local long row_to[BM];  // places of the tile's rows in out, and in a
  local int row_from[BM];
  const uint item = get_local_id(0), z = get_global_id(1), split = get_global_id(2);
  const uint row_tiles = (p.m + BM - 1) / BM;
  const uint row0 = (uint)get_group_id(0) % row_tiles * BM;
  const uint column0 = (uint)get_group_id(0) / row_tiles * BN;
  const uint start = split * p.split_k, end = min(start + p.split_k, p.k);
  global const char* a = a_base + a_offset + z * p.a_group * sizeof(T);
  global const char* b = b_base + b_offset + z * p.b_group * STORAGE_SIZE(IN);

  // Rows and columns past the last one are replaced by others, whose sums are not stored.
  for (uint r = item; r < BM; r += ITEMS) {
    const uint4 digits = digits_of(min(row0 + r, p.m - 1), SIZES(p.row_size));
    row_from[r] = (int)place_of(digits, STRIDES(p.row_a));
    row_to[r] = place_of(digits, STRIDES(p.row_out));
  }
#if TABLE
  // 2 * split_k of them: what a runs through, then what b does.
  for (uint k = start + item; k < end; k += ITEMS) {
    const uint4 digits = digits_of(k, SIZES(p.k_size));
    k_places[k - start] = (int)place_of(digits, STRIDES(p.k_a));
    k_places[k - start + p.split_k] = (int)place_of(digits, STRIDES(p.k_b));
  }
  const Places places = k_places;
#else
  const Places places = (Places)(table_base + table_offset);
#endif
  barrier(CLK_LOCAL_MEM_FENCE);
  int row_at[A_LOADS], column_at[B_LOADS];
  _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {
    row_at[i] = row_from[place_in_tile(item + i * ITEMS, A_BY_K, BM).x % BM];
  }
  _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {
    const uint column = min(column0 + place_in_tile(item + i * ITEMS, B_BY_K, BN).x, p.n - 1);
    column_at[i] = (int)(column * p.column_b);
  }
  TilePlace place;
  place_in_group(&place, item);
  T sum[TM][TN];
  _Pragma("unroll") for (uint i = 0; i < TM; i++) {
    _Pragma("unroll") for (uint j = 0; j < TN; j++) sum[i][j] = (T)(0);
  }

  T next_a[A_LOADS], next_b[B_LOADS];
  int at_a[A_LOADS], at_b[B_LOADS];
  uint k0 = start, now = 0;
  if (start < end) {
    find_tile(at_a, at_b, row_at, column_at, places, start, start, end, item, p);
    fetch_a(next_a, a, at_a, item, start, end, true);
    fetch_b(next_b, b, at_b, item, start, end, true);
    find_tile(at_a, at_b, row_at, column_at, places, start + BK, start, end, item, p);
    store_a(next_a, memory, item);
    store_b(next_b, memory + BK * A_LINE, item);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  while (k0 < end) {
    k0 += BK;
    if (k0 + BK <= end) {
      fetch_a(next_a, a, at_a, item, k0, end, false);
      fetch_b(next_b, b, at_b, item, k0, end, false);
    } else if (k0 < end) {
      fetch_a(next_a, a, at_a, item, k0, end, true);
      fetch_b(next_b, b, at_b, item, k0, end, true);
    }
    find_tile(at_a, at_b, row_at, column_at, places, k0 + BK, start, end, item, p);
    multiply_tiles(sum, memory + now * STAGE, place);
    now ^= 1;
    if (k0 < end) {
      store_a(next_a, memory + now * STAGE, item);
      store_b(next_b, memory + now * STAGE + BK * A_LINE, item);
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }

  // Through local memory, so that neighbouring work-items store neighbouring elements and slices
  // are added up.
  out += out_offset + z * p.out_group * STORAGE_SIZE(OUT);
  bias += bias_offset + (ulong)z * p.n * STORAGE_SIZE(OUT);
  global T* totals = (global T*)(sums + sums_offset) + ((ulong)split * p.groups + z) * p.m * p.n;
  _Pragma("unroll") for (uint first = 0; first < STEPS; first += AT_ONCE) {
    barrier(CLK_LOCAL_MEM_FENCE);
    share_sums(memory, sum, first, place);
    barrier(CLK_LOCAL_MEM_FENCE);
    store_sums(memory, row_to, first, row0, column0, z, item, bias, out, totals, p EPILOGUE_PASSED);
  }
}
