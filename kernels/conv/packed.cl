// Direct convolution with packed panels of the weight, for CPUs: b is packed into panels of
// columns, a is read where it lies (with its padding, see pad.cl), element by element. So nothing
// like im2col's matrix of windows is ever made.
//
// Compile parameters besides conv.clh's: MR x NV * WIDTH (rows x columns of the tile kept in
// registers), ADJACENT (1: rows that follow each other mostly lie next to each other in a),
// RUN_OF_K (1: so do all elements of k), ONLY (1, 2 or 3: the first, second or third kernel, which
// depend on different ones of these; 0: all).
//
// Panels are [z][n / NR][k][NR] of C, padded with zeros; behind them is a table of where the
// elements of k lie in a, for a window's runs are too short to step through digits (not with
// RUN_OF_K). Totals, where k is summed in several parts, are [split][z][m / MR][n / NR][MR][NR].
#include "include/item_by_item.clh"
#include "include/prefetch.clh"
#include "conv/conv.clh"
#include "conv/epilogue.clh"
#include "include/register_tile.clh"

#ifndef ADJACENT
#define ADJACENT 0
#endif
#ifndef RUN_OF_K
#define RUN_OF_K 0
#endif
#ifndef ONLY
#define ONLY 0
#endif
// Whether a tile's vectors make up a square: its columns are then stored as vectors too.
#if WIDTH > 1 && 2 * MR == WIDTH && NV == 2
#define TRANSPOSES 1
#else
#define TRANSPOSES 0
#endif

typedef TYPEV(C, WIDTH) V;
#if WIDTH > 1
#define T V  // the element of the squares that transpose.clh transposes
#include "include/transpose.clh"
#undef T
#endif

/// Where the table is, behind the panels.
static inline ulong table_offset(const ContractionArguments* p) {
  const ulong bytes = (ulong)p->groups * ((p->n + NR - 1) / NR) * p->k * (NR * sizeof(T));
  return (bytes + 7) / 8 * 8;
}

#if ONLY == 0 || ONLY == 1
/// Packs `split_k` elements of k of one panel, and writes their part of the table. p.k_size merges
/// dimensions that are one in b; p.row_size and p.row_a stand for k in a. Global size: parts of k,
/// n / NR, groups.
kernel ITEM_BY_ITEM void conv_pack(global const char* b, const ulong b_offset,
                                   global char* workspace, const ulong workspace_offset,
                                   const ContractionArguments p) {
  const uint jn = get_global_id(1), z = get_global_id(2);
  const uint first = get_global_id(0) * p.split_k, last = min(first + p.split_k, p.k);
  const uint panels = (p.n + NR - 1) / NR, valid = min((uint)NR, p.n - jn * NR);
  b += b_offset + (z * p.b_group + jn * NR * p.column_b) * STORAGE_SIZE(IN);
  global T* panel = (global T*)(workspace + workspace_offset) + ((ulong)z * panels + jn) * p.k * NR;
  if (!RUN_OF_K && jn == 0 && z == 0) {
    global long* table = (global long*)(workspace + workspace_offset + table_offset(&p));
    const uint4 a_size = SIZES(p.row_size);
    uint4 at = digits_of(first, a_size);
    for (uint k = first; k < last; k++) {
      table[k] = place_of(at, STRIDES(p.row_a));
      NEXT_DIGITS(at, a_size);
    }
  }
  const uint4 size = SIZES(p.k_size);
  const long4 stride = STRIDES(p.k_b);
  uint4 d = digits_of(first, size);
  for (uint k = first; k < last;) {
    const uint length = min(size.s3 - d.s3, last - k);
    global const char* run = b + place_of(d, stride) * STORAGE_SIZE(IN);
    uint i = 0;
    if (p.column_b == 1 && valid == NR && WIDTH > 1) {
      for (; i < length; i++) {
        _Pragma("unroll") for (uint v = 0; v < NV; v++) {
          const V x = LOADV_AS(C, IN, WIDTH, run + (long)i * stride.s3 * STORAGE_SIZE(IN), v);
          STOREV(C, WIDTH, (global char*)(panel + (ulong)(k + i) * NR), v, x);
        }
      }
    }
#if WIDTH > 1
    else if (stride.s3 == 1) {
      for (; i + WIDTH <= length; i += WIDTH) {
        for (uint v = 0; v < NV; v++) {
          V square[WIDTH];
          for (uint e = 0; e < WIDTH; e++) {
            const uint j = v * WIDTH + e;
            square[e] = (V)(0);
            if (j < valid) {
              square[e] = LOADV_AS(C, IN, WIDTH, run + (i + j * p.column_b) * STORAGE_SIZE(IN), 0);
            }
          }
          transpose(square);
          _Pragma("unroll") for (uint e = 0; e < WIDTH; e++) {
            STOREV(C, WIDTH, (global char*)(panel + (ulong)(k + i + e) * NR), v, square[e]);
          }
        }
      }
    }
#endif
    // Along k in the outer loop where that is the way the elements lie.
    for (; i < length; i++) {
      for (uint j = 0; j < NR; j++) {
        panel[(ulong)(k + i) * NR + j] =
            j < valid ? LOAD_AS(C, IN, run, i * stride.s3 + j * p.column_b) : (T)(0);
      }
    }
    k += length;
    d.s3 = size.s3 - 1;
    NEXT_DIGITS(d, size);
  }
}
#endif

// Rows that are runs of k are too short for the processor to see their successors coming: of the
// next tile's rows, `next_rows`, a cache line is prefetched at each step, all of them by the end.
#define LINE (64 / sizeof(T))
#if RUN_OF_K
#define PLACE_OF(k) (k)
#define PREFETCH_NEXT_ROWS(k) \
  if ((k) % LINE < MR) PREFETCH(next_rows + (k) % LINE * row_a.s3 + (k) / LINE * LINE)
#else
#define PLACE_OF(k) table[k]
#define PREFETCH_NEXT_ROWS(k)
#endif
// sum[MR][NV] over the elements [k0, k1) of k; ROW(i) is the element of a of the tile's row i.
#define SUM(ROW)                                                \
  _Pragma("unroll 4") for (uint k = k0; k < k1; k++, y += NR) { \
    PREFETCH_NEXT_ROWS(k);                                      \
    global const T* x = a + PLACE_OF(k);                        \
    V column[NV];                                               \
    _Pragma("unroll") for (uint v = 0; v < NV; v++) {           \
      column[v] = LOADV(C, WIDTH, (global const char*)y, v);    \
    }                                                           \
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {           \
      const V row = (V)(ROW(i));                                \
      _Pragma("unroll") for (uint v = 0; v < NV; v++) {         \
        sum[i][v] = MAD(row, column[v], sum[i][v]);             \
      }                                                         \
    }                                                           \
  }
#define ADJACENT_ROW(i) x[i]
#define ANY_ROW(i) x[at[i]]

#if TRANSPOSES
#define STORE_COLUMN(j, values)                                                     \
  if ((j) < columns) {                                                              \
    const T addend = p->flags & kConvBias ? LOAD_AS(C, OUT, bias, j) : (T)(0);      \
    STORE_RESULTS(MR, result_row + (j), result_column,                              \
                  to + (j) * p->column_out * STORAGE_SIZE(OUT), (values) + addend); \
  }

/// Stores a tile whose rows lie next to each other in out.
static inline void store_columns(global char* to, global const char* bias,
                                 private const ContractionArguments* p, V sum[MR][NV], uint columns,
                                 ulong result_row, ulong result_column EPILOGUE_PARAMETERS) {
  V square[WIDTH];
  _Pragma("unroll") for (uint i = 0; i < MR; i++) {
    square[i] = sum[i][0];
    square[MR + i] = sum[i][1];
  }
  transpose(square);
  for (uint e = 0; e < WIDTH; e++) {
    STORE_COLUMN(e, square[e].lo)
    STORE_COLUMN(WIDTH + e, square[e].hi)
  }
}
#endif

#if ONLY == 0 || ONLY == 2
/// Where a tile's rows lie in a and in out, from its first; `digits` are the first row's, then the
/// next tile's.
static ALWAYS_INLINE void place_rows(volatile private long* spilled, private long* out_at,
                                     private uint4* digits, const uint4 row_size, const long4 row_a,
                                     const long4 row_out, uint rows) {
  const long a_first = place_of(*digits, row_a), out_first = place_of(*digits, row_out);
  if (digits->s3 + MR <= row_size.s3) {  // rows of one line
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      spilled[i] = i * row_a.s3;
      out_at[i] = i * row_out.s3;
    }
    digits->s3 += MR - 1;
  } else {
    spilled[0] = out_at[0] = 0;
    for (uint i = 1; i < MR; i++) {
      if (i < rows) NEXT_DIGITS(*digits, row_size);
      spilled[i] = place_of(*digits, row_a) - a_first;
      out_at[i] = place_of(*digits, row_out) - out_first;
    }
  }
  NEXT_DIGITS(*digits, row_size);
}

/// Stores a whole tile whose columns lie next to each other in out.
static ALWAYS_INLINE void store_whole(global char* to, global const char* bias,
                                      private const long* out_at,
                                      private const ContractionArguments* p, V sum[MR][NV],
                                      ulong position, ulong channel EPILOGUE_PARAMETERS) {
  _Pragma("unroll") for (uint v = 0; v < NV; v++) {
    const V addend = p->flags & kConvBias ? LOADV_AS(C, OUT, WIDTH, bias, v) : (V)(0);
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      STORE_RESULTS(WIDTH, position + i, channel + v * WIDTH,
                    to + (out_at[i] + v * WIDTH) * STORAGE_SIZE(OUT), sum[i][v] + addend);
    }
  }
}

/// Stores a tile of any layout element by element.
static ALWAYS_INLINE void store_edge(global char* to, global const char* bias,
                                     private const long* out_at,
                                     private const ContractionArguments* p, V sum[MR][NV],
                                     uint rows, uint columns, ulong position,
                                     ulong channel EPILOGUE_PARAMETERS) {
  // A copy, for what is looked up by a variable is no longer in registers.
  V edge[MR][NV];
  _Pragma("unroll") for (uint i = 0; i < MR; i++) {
    _Pragma("unroll") for (uint v = 0; v < NV; v++) edge[i][v] = sum[i][v];
  }
 private const T* elements = (private const T*)edge;
  for (uint j = 0; j < columns; j++) {
    const T addend = p->flags & kConvBias ? LOAD_AS(C, OUT, bias, j) : (T)(0);
    for (uint i = 0; i < rows; i++) {
      const T value = elements[i * NR + j] + addend;
      STORE_RESULT(RESULT_ROW(p->plane, p->all, position + i, channel + j),
                   RESULT_COLUMN(p->plane, position + i, channel + j), to,
                   out_at[i] + j * p->column_out, value);
    }
  }
}

/// Global size: n / NR, m / (MR * block), groups * splits.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void conv_packed(
    global const char* a_base, const ulong a_offset, global const char* workspace,
    const ulong workspace_offset, global const char* bias, const ulong bias_offset,
    global char* out, const ulong out_offset, global char* sums, const ulong sums_offset,
    const ContractionArguments p EPILOGUE_PARAMETERS) {
  const uint jn = get_global_id(0), z = get_global_id(2) % p.groups;
  const uint split = get_global_id(2) / p.groups;
  const uint panels = (p.n + NR - 1) / NR, tiles = (p.m + MR - 1) / MR;
  const uint first_tile = get_global_id(1) * p.block;
  const uint last_tile = min(first_tile + p.block, tiles);
  const uint first = split * p.split_k, last = min(first + p.split_k, p.k);
  global const long* table = (global const long*)(workspace + workspace_offset + table_offset(&p));
  const uint4 row_size = SIZES(p.row_size);
  const long4 row_a = STRIDES(p.row_a), row_out = STRIDES(p.row_out);
  global const T* group = (global const T*)(a_base + a_offset) + z * p.a_group;
  global const T* panel =
      (global const T*)(workspace + workspace_offset) + ((ulong)z * panels + jn) * p.k * NR;
  global T* totals = (global T*)(sums + sums_offset) +
                     (((ulong)split * p.groups + z) * tiles * panels + jn) * MR * NR;
  const uint column0 = jn * NR, columns = min((uint)NR, p.n - column0);
  bias += bias_offset + (z * p.n + column0) % p.bias_channels * STORAGE_SIZE(OUT);
  out += out_offset + (z * p.out_group + column0 * p.column_out) * STORAGE_SIZE(OUT);

  for (uint k0 = first; k0 < last; k0 += p.chunk) {
    const uint k1 = min(k0 + p.chunk, last);
    const bool begins = k0 == first && !(p.flags & kConvResume);
    const bool ends = k1 == last && !(p.flags & kConvKeep);
    uint4 digits = digits_of(first_tile * MR, row_size);
    for (uint tile = first_tile; tile < last_tile; tile++) {
      const uint rows = min((uint)MR, p.m - tile * MR);
      const long a_first = place_of(digits, row_a), out_first = place_of(digits, row_out);
      // Volatile, for compilers would take the sums behind `at` apart again and add them up in the
      // loop.
      volatile long spilled[MR];
      long at[MR], out_at[MR];
      place_rows(spilled, out_at, &digits, row_size, row_a, row_out, rows);
      // Each row is looked at: where positions turn over, the last one alone may be in its place.
      bool adjacent = rows == MR, adjacent_out = rows == MR;
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        at[i] = spilled[i];
        adjacent = adjacent && at[i] == i;
        adjacent_out = adjacent_out && out_at[i] == i;
      }
      global const T *const a = group + a_first, *const next_rows = a + MR * row_a.s3;
      V sum[MR][NV];
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        _Pragma("unroll") for (uint v = 0; v < NV; v++) sum[i][v] = (V)(0);
      }
      global const T* y = panel + (ulong)k0 * NR;
#if ADJACENT
      if (adjacent) {
        SUM(ADJACENT_ROW)
      } else {
        SUM(ANY_ROW)
      }
#else
      SUM(ANY_ROW)
#endif
      global char* total = (global char*)(totals + (ulong)tile * panels * MR * NR);
      if (!begins) {
        _Pragma("unroll") for (uint i = 0; i < MR; i++) {
          _Pragma("unroll") for (uint v = 0; v < NV; v++) {
            sum[i][v] += LOADV(C, WIDTH, total, i * NV + v);
          }
        }
      }
      if (!ends) {
        _Pragma("unroll") for (uint i = 0; i < MR; i++) {
          _Pragma("unroll") for (uint v = 0; v < NV; v++) {
            STOREV(C, WIDTH, total, i * NV + v, sum[i][v]);
          }
        }
        continue;
      }
      global char* to = out + out_first * STORAGE_SIZE(OUT);
      const ulong position = p.position0 + tile * MR, channel = z * p.n + column0;
      if (p.column_out == 1 && columns == NR && rows == MR) {
        store_whole(to, bias, out_at, &p, sum, position, channel EPILOGUE_PASSED);
      }
#if TRANSPOSES
      else if (adjacent_out && IN_A_PLANE(p.plane, position, MR)) {
        store_columns(to, bias, &p, sum, columns, RESULT_ROW(p.plane, p.all, position, channel),
                      RESULT_COLUMN(p.plane, position, channel) EPILOGUE_PASSED);
      }
#endif
      else {
        store_edge(to, bias, out_at, &p, sum, rows, columns, position, channel EPILOGUE_PASSED);
      }
    }
  }
}
#endif

#if ONLY == 0 || ONLY == 3
/// Adds up the totals of the parts of k, in order. Global size: n, m, groups.
kernel void conv_finish(global const char* bias, const ulong bias_offset, global char* out,
                        const ulong out_offset, global const char* sums, const ulong sums_offset,
                        const ContractionArguments p EPILOGUE_PARAMETERS) {
  const uint column = get_global_id(0), row = get_global_id(1), z = get_global_id(2);
  if (column >= p.n || row >= p.m) return;
  const uint panels = (p.n + NR - 1) / NR, tiles = (p.m + MR - 1) / MR;
  global const T* totals = (global const T*)(sums + sums_offset);
  T sum = (T)(0);
  for (uint split = 0; split < p.splits; split++) {
    const ulong tile = (((ulong)split * p.groups + z) * tiles + row / MR) * panels + column / NR;
    sum += totals[(tile * MR + row % MR) * NR + column % NR];
  }
  if (p.flags & kConvBias) {
    sum += LOAD_AS(C, OUT, bias + bias_offset, (z * p.n + column) % p.bias_channels);
  }
  const long at = z * p.out_group +
                  place_of(digits_of(row, SIZES(p.row_size)), STRIDES(p.row_out)) +
                  column * p.column_out;
  STORE_RESULT(RESULT_ROW(p.plane, p.all, p.position0 + row, z * p.n + column),
               RESULT_COLUMN(p.plane, p.position0 + row, z * p.n + column), out + out_offset, at,
               sum);
}
#endif
