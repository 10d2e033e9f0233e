// The matrix product with packed panels, for devices whose work-items run one after the other on
// wide SIMD units (CPUs): the inner loop reads packed operands in order.
//
// Compile parameters besides gemm.clh's: MR x NV * WIDTH (rows x columns of the tile kept in
// registers), KC (depth after which the registers are added to the tile's total: bounds the
// rounding error), R and PARTS: the panels' tag and its elements per value (C and 1; the real tag
// and 2 for a complex C), K_PACK (elements of k in a value of a panel: 1; 2 and 4 for dot_bf16.clh
// and dot_int8.clh).
//
// A complex product is a real one of twice the depth and twice the columns: a and out as they lie
// in memory, (re, im) after (re, im); in b a row of (re, im) pairs is followed by (-im, re).
//
// Workspace: row panels [z][m / MR][PARTS k][MR], then at b_panels column panels
// [z][n / NC][PARTS k][NR], both of E, padded with zeros; then at sums what EPILOGUE_OR_SPLIT
// stores.
#include "include/item_by_item.clh"
#include "gemm/gemm.clh"
#include "gemm/packed_arguments.clh"
#include "include/register_tile.clh"
#include "gemm/store_lanes.clh"

#ifndef KC
#define KC 512
#endif
#ifndef K_PACK
#define K_PACK 1
#endif
#ifndef PARTS
#define PARTS 1
#define R C
#endif
// Columns of the product in a panel.
#define NC (NR / PARTS)

typedef TYPEV(R, WIDTH) V;

#ifdef AMX
#include "gemm/amx_panels.clh"
#elif K_PACK == 4
#include "gemm/dot_int8.clh"
#elif K_PACK == 2
#include "gemm/dot_bf16.clh"
#else
#define MAD_R(x, y, z) PASTE2(MAD_, KIND(R))(x, y, z)
typedef TYPE(R) E;  // of a panel
#define DEPTH(k) ((k) * PARTS)
#endif

#if PARTS == 1
#if K_PACK == 1
#if WIDTH > 1
#include "gemm/transpose_panel.clh"
#define PACK_SQUARES(TAG, LANES, source, lane_stride)                                \
  for (; kk + WIDTH <= end; kk += WIDTH) {                                           \
    FOR_SQUARES(lane0, LANES) {                                                      \
      V square[WIDTH];                                                               \
      _Pragma("unroll") for (uint r = 0; r < WIDTH; r++) {                           \
        square[r] = (V)(0);                                                          \
        if (lane0 + r < valid) {                                                     \
          const ulong at = (lane0 + r) * lane_stride + kk;                           \
          square[r] = LOADV_AS(C, TAG, WIDTH, source + at * STORAGE_SIZE(TAG), 0);   \
        }                                                                            \
      }                                                                              \
      transpose_into_panel(square, panel + kk * LANES + lane0, LANES, LANES - lane0, \
                           kk + WIDTH == end);                                       \
    }                                                                                \
  }
#else
#define PACK_SQUARES(TAG, LANES, source, lane_stride)
#endif
/// Packs [start, end) of k of one panel: lanes are rows of a or columns of b, of which `valid`
/// exist.
#define PACK(TAG, LANES, source, lane_stride, k_stride, conjugate)                            \
  do {                                                                                        \
    if (valid == LANES && lane_stride == 1 && LANES % WIDTH == 0 && WIDTH > 1) {              \
      for (ulong kk = start; kk < end; kk++) {                                                \
        _Pragma("unroll") for (uint v = 0; v < LANES / WIDTH; v++) {                          \
          const V x = LOADV_AS(C, TAG, WIDTH, source + kk * k_stride * STORAGE_SIZE(TAG), v); \
          STOREV(C, WIDTH, (global char*)(panel + kk * LANES), v, x);                         \
        }                                                                                     \
      }                                                                                       \
    } else if (k_stride == 1 && WIDTH > 1) {                                                  \
      ulong kk = start;                                                                       \
      PACK_SQUARES(TAG, LANES, source, lane_stride)                                           \
      for (; kk < end; kk++) {                                                                \
        for (uint lane = 0; lane < LANES; lane++) {                                           \
          panel[kk * LANES + lane] =                                                          \
              lane < valid ? LOAD_AS(C, TAG, source, lane * lane_stride + kk) : (T)(0);       \
        }                                                                                     \
      }                                                                                       \
    } else {                                                                                  \
      for (ulong kk = start; kk < end; kk++) {                                                \
        for (uint lane = 0; lane < LANES; lane++) {                                           \
          T x = (T)(0);                                                                       \
          if (lane < valid) {                                                                 \
            x = LOAD_AS(C, TAG, source, lane * lane_stride + kk * k_stride);                  \
            x = CONJUGATE(x, conjugate);                                                      \
          }                                                                                   \
          panel[kk * LANES + lane] = x;                                                       \
        }                                                                                     \
      }                                                                                       \
    }                                                                                         \
  } while (0)
#endif
#ifndef PACK_ROWS
#define PACK_ROWS() PACK(IN0, MR, source, p.a.row, p.a.column, p.flags& kConjugateA)
#define PACK_COLUMNS() PACK(IN1, NR, source, p.b.column, p.b.row, p.flags& kConjugateB)
#endif
#else
#define LOAD_VALUE(TAG, index, conjugate) CONJUGATE(LOAD_AS(C, TAG, source, index), conjugate)
#define PACK_ROWS()                                                                       \
  for (ulong kk = start; kk < end; kk++) {                                                \
    global E* to = panel + 2 * kk * MR;                                                   \
    for (uint lane = 0; lane < MR; lane++) {                                              \
      T value = (T)(0);                                                                   \
      if (lane < valid) {                                                                 \
        value = LOAD_VALUE(IN0, lane * p.a.row + kk * p.a.column, p.flags & kConjugateA); \
      }                                                                                   \
      to[lane] = value.s0;                                                                \
      to[MR + lane] = value.s1;                                                           \
    }                                                                                     \
  }
#define PACK_COLUMNS()                                                                    \
  for (ulong kk = start; kk < end; kk++) {                                                \
    global E* to = panel + 2 * kk * NR;                                                   \
    for (uint lane = 0; lane < NC; lane++) {                                              \
      T value = (T)(0);                                                                   \
      if (lane < valid) {                                                                 \
        value = LOAD_VALUE(IN1, lane * p.b.column + kk * p.b.row, p.flags & kConjugateB); \
      }                                                                                   \
      to[2 * lane] = value.s0;                                                            \
      to[2 * lane + 1] = value.s1;                                                        \
      to[NR + 2 * lane] = -value.s1;                                                      \
      to[NR + 2 * lane + 1] = value.s0;                                                   \
    }                                                                                     \
  }
#endif

/// Packs both operands. Global size: k / kPackDepth, a_batches * m / MR + b_batches * n / NC.
kernel ITEM_BY_ITEM void gemm_pack(OPERANDS, const PackedArguments panels) {
  const ulong row_panels = (p.m + MR - 1) / MR, column_panels = (p.n + NC - 1) / NC;
  const ulong start = get_global_id(0) * kPackDepth, end = min(start + kPackDepth, (ulong)p.k);
  ulong index = get_global_id(1);
  workspace += workspace_offset;
  if (index < row_panels * panels.a_batches) {
    const ulong z = index / row_panels, lane0 = index % row_panels * MR;
    const uint valid = min((ulong)MR, p.m - lane0);
    global const char* source =
        a + a_offset + (z * p.a.batch + lane0 * p.a.row) * STORAGE_SIZE(IN0);
    global E* panel = (global E*)workspace + index * DEPTH((ulong)p.k) * MR;
    PACK_ROWS();
  } else {
    index -= row_panels * panels.a_batches;
    const ulong z = index / column_panels, lane0 = index % column_panels * NC;
    const uint valid = min((ulong)NC, p.n - lane0);
    global const char* source =
        b + b_offset + (z * p.b.batch + lane0 * p.b.column) * STORAGE_SIZE(IN1);
    global E* panel = (global E*)(workspace + panels.b_panels) + index * DEPTH((ulong)p.k) * NR;
    PACK_COLUMNS();
  }
}

#ifdef FMA_ROWS
#include "gemm/fma_rows.clh"
#elif K_PACK == 1
/// One tile's product of row panel x and column panel y over [start, end) of the panels' depth.
static inline void multiply_tile(global const E* x, global const E* y, ulong start, ulong end,
                                 private V* total) {
  for (ulong block = start; block < end; block += KC) {
    const ulong block_end = min(block + KC, end);
    V sum[MR][NV];
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      _Pragma("unroll") for (uint v = 0; v < NV; v++) sum[i][v] = (V)(0);
    }
    for (ulong kk = block; kk < block_end; kk++) {
      V column[NV];
      _Pragma("unroll") for (uint v = 0; v < NV; v++) {
        column[v] = LOADV(R, WIDTH, (global const char*)(y + kk * NR), v);
      }
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        const V row = (V)(x[kk * MR + i]);
        _Pragma("unroll") for (uint v = 0; v < NV; v++) {
          sum[i][v] = MAD_R(row, column[v], sum[i][v]);
        }
      }
    }
    if (block == start) {
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        _Pragma("unroll") for (uint v = 0; v < NV; v++) total[i * NV + v] = sum[i][v];
      }
    } else {
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        _Pragma("unroll") for (uint v = 0; v < NV; v++) total[i * NV + v] += sum[i][v];
      }
    }
  }
}

#endif

#if ACTIVATION == 1
#define ACTIVATE_LANES(x) ((x) < (V)(0) ? (V)(0) : (x))
#elif ACTIVATION == 2
#define ACTIVATE_LANES(x) GELU(SUFFIX(WIDTH), x)
#else
#define ACTIVATE_LANES(x) ACTIVATE(x)
#endif
/// Declares what is stored for WIDTH sums in a row.
#define FINISH_LANES(value, sum, row_, column_)                        \
  V value = (V)(alpha) * (sum);                                        \
  if (p.flags & kAddend) {                                             \
    const ulong at = (row_) * p.c.row + (column_) * p.c.column;        \
    V addend;                                                          \
    if (p.c.column == 1) {                                             \
      addend = LOADV_AS(C, OUT, WIDTH, c + at * STORAGE_SIZE(OUT), 0); \
    } else {                                                           \
      addend = (V)(LOAD_AS(C, OUT, c, at));                            \
    }                                                                  \
    value = MAD((V)(beta), addend, value);                             \
  }                                                                    \
  value = ACTIVATE_LANES(value)

#if PARTS == 1
/// The whole vectors of WIDTH columns that are stored as such, of a row's `columns_`.
#define VECTORS_STORED(columns_, idle_)                                                       \
  ((idle_) == 0 &&                                                                            \
           (keeps_sums_ ? !SUMS_TURNED : p.out.column == 1 && p.c.column <= 1 && LANES_STORE) \
       ? (columns_) / WIDTH                                                                   \
       : 0)
#define STORE_VECTOR(z_, split_, sum_, row_, column_)                                          \
  if (keeps_sums_) {                                                                           \
    const ulong at_ = ((split_) * p.batch + (z_)) * p.m * p.n + SUM_AT(row_, column_);         \
    STOREV(C, WIDTH, workspace + at_ * sizeof(T), 0, sum_);                                    \
  } else {                                                                                     \
    FINISH_LANES(value_, sum_, row_, column_);                                                 \
    STORE_LANES(z_, row_, column_, out + ((row_) * p.out.row + (column_)) * STORAGE_SIZE(OUT), \
                value_);                                                                       \
  }
#else
#define VECTORS_STORED(columns_, idle_) 0
#define STORE_VECTOR(z_, split_, sum_, row_, column_)
#endif
/// Stores a tile's first `rows_` and `columns_`, after `idle_` others, from V tile_[MR * NV], or
/// leaves the sums in the workspace where k is split.
#define STORE_EDGE(z_, split_, tile_, row0_, rows_, column0_, columns_, idle_) \
  {                                                                            \
    const bool keeps_sums_ = p.splits > 1 || (p.flags & kKeepSums) != 0;       \
    const uint vectors_ = VECTORS_STORED(columns_, idle_);                     \
    for (uint i_ = 0; i_ < (rows_); i_++) {                                    \
      for (uint v_ = 0; v_ < vectors_; v_++) {                                 \
        const ulong column_ = (column0_) + v_ * WIDTH;                         \
        STORE_VECTOR(z_, split_, tile_[i_ * NV + v_], (row0_) + i_, column_)   \
      }                                                                        \
      for (uint j_ = vectors_ * WIDTH; j_ < (columns_); j_++) {                \
        const T sum_ = ((private const T*)tile_)[i_ * NC + j_ + (idle_)];      \
        EPILOGUE_OR_SPLIT(z_, split_, (row0_) + i_, (column0_) + j_, sum_);    \
      }                                                                        \
    }                                                                          \
  }

/// Global size: n / NC * splits, m / (MR * block), batch. With PACK_B the work-item packs its part
/// of b first, which then lies in its core's cache.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void gemm_packed(
    OPERANDS, const PackedArguments panels) {
  const ulong row_panels = (p.m + MR - 1) / MR, column_panels = (p.n + NC - 1) / NC;
  const ulong jn = get_global_id(0) % column_panels, split = get_global_id(0) / column_panels;
  const ulong z = get_global_id(2);
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  const ulong za = panels.a_batches == 1 ? 0 : z, zb = panels.b_batches == 1 ? 0 : z;
  const ulong depth = DEPTH((ulong)p.k);
  global const E* y =
      (global const E*)(panels.b_packed ? b : (global const char*)workspace + panels.b_panels) +
      (zb * column_panels + jn) * depth * NR;
  const ulong column0 = jn * NC;
  const uint columns = min((ulong)NC, p.n - column0);
#ifdef PACK_B
  {
    const uint valid = columns;
    global const char* source = b + column0 * p.b.column * STORAGE_SIZE(IN1);
    global E* panel = (global E*)y;
    PACK_COLUMNS();
  }
#endif
  const ulong first = get_global_id(1) * panels.block;
  const ulong last = min(first + panels.block, row_panels);
#ifdef AMX
  V totals[MOST_PANELS * MR * NV];
  global const E* x = (global const E*)workspace + (za * row_panels + first) * depth * MR;
#ifdef B_IN_PLACE
  // The last columns' tile reaches back to others, which it leaves alone.
  const ulong from = min(column0, p.n - (ulong)NC);
  const uint idle = column0 - from;
  multiply_panels(x, (global const PackedElement*)b + from * p.b.column, p.b.column, last - first,
                  depth, p.k, DEPTH(start), DEPTH(end), totals);
#else
  multiply_panels(x, y, last - first, depth, DEPTH(start), DEPTH(end), totals);
#endif
#endif
#ifndef B_IN_PLACE
  const uint idle = 0;
#endif
  for (ulong im = first; im < last; im++) {
#ifdef AMX
   private const V* tile = totals + (im - first) * MR * NV;
#else
    V tile[MR * NV];
    global const E* x = (global const E*)workspace + (za * row_panels + im) * depth * MR;
    multiply_tile(x, y, DEPTH(start), DEPTH(end), tile);
#endif
    const ulong row0 = im * MR;
    const uint rows = min((ulong)MR, p.m - row0);
#if PARTS == 1
    if (p.splits == 1 && columns == NR && rows == MR && p.out.column == 1 && p.c.column <= 1 &&
        LANES_STORE) {
      // Unrolled, for what is looked up by a variable is no longer in registers.
      global char* to = out + (row0 * p.out.row + column0) * STORAGE_SIZE(OUT);
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        _Pragma("unroll") for (uint v = 0; v < NV; v++) {
          FINISH_LANES(value, tile[i * NV + v], row0 + i, column0 + v * WIDTH);
          STORE_LANES(z, row0 + i, column0 + v * WIDTH, to + v * WIDTH * STORAGE_SIZE(OUT), value);
        }
        to += p.out.row * STORAGE_SIZE(OUT);
      }
      continue;
    }
#endif
    V edge[MR * NV];
    _Pragma("unroll") for (uint i = 0; i < MR * NV; i++) edge[i] = tile[i];
    workspace += panels.sums;
    STORE_EDGE(z, split, edge, row0, rows, column0, columns, idle);
    workspace -= panels.sums;
  }
}
