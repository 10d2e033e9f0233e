// Convolutions for devices with many work-items in flight (GPUs): a work-group brings tiles of a and b
// into local memory, a work-item keeps TM x TN sums in registers. Where the elements of k lie is in a
// table, so that a load is one addition away from its address.
//
// The next tiles travel from global memory into registers while the current ones are multiplied, and then
// into the other half of local memory: one barrier per tile.
//
// Compile parameters besides conv.clh's: BM x BN x BK (the tile), TM x TN (sums per work-item, in runs of
// RUN next to each other), A_BY_K and B_BY_K (1: neighbouring work-items read along k), OUT_BY_ROW (1: they
// store along rows).
//
// Totals, where k is summed in several parts, are [split][z][m][n].
#include "conv/conv.clh"

#ifndef BM
#define BM 64
#endif
#ifndef BN
#define BN 64
#endif
#ifndef BK
#define BK 8
#endif
#ifndef TM
#define TM 4
#endif
#ifndef TN
#define TN 4
#endif
#ifndef RUN
#define RUN 4
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

#define LM (BM / TM)
#define LN (BN / TN)
#define ITEMS (LM * LN)
// The padding keeps runs aligned and spreads stores along k over the banks.
#define A_LINE (BM + RUN)
#define B_LINE (BN + RUN)
#define STAGE (BK * (A_LINE + B_LINE))
#define A_LOADS (BM * BK / ITEMS)
#define B_LOADS (BN * BK / ITEMS)

typedef TYPEV(C, RUN) Run;

/// The places of k's elements in a and b. Global size: k.
kernel void conv_table(global char *table, const Contraction p) {
  const uint k = get_global_id(0);
  if (k >= p.k) return;
  const uint4 d = digits_of(k, SIZES(p.k_size));
  vstore2((int2)((int)place_of(d, STRIDES(p.k_a)), (int)place_of(d, STRIDES(p.k_b))), k,
          (global int *)(table + p.work_offset));
}

/// (place along the tile's rows or columns, place along k) of a work-item's load `e`.
static inline uint2 place_in_tile(uint e, const bool by_k, const uint size) {
  return by_k ? (uint2)(e / BK, e % BK) : (uint2)(e % size, e / size);
}

/// Global size: ITEMS * tiles, groups, splits.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_tiled(
    global const char *a_base, global const char *b_base, global const char *bias, global char *out,
    global const char *table_base, global char *sums, const Contraction p) {
  local T memory[2 * STAGE] __attribute__((aligned(16)));
  const uint item = get_local_id(0), z = get_global_id(1), split = get_global_id(2);
  const uint row_tiles = (p.m + BM - 1) / BM;
  const uint row0 = (uint)get_group_id(0) % row_tiles * BM;
  const uint column0 = (uint)get_group_id(0) / row_tiles * BN;
  const uint start = split * p.split_k, end = min(start + p.split_k, p.k);
  const uint4 row_size = SIZES(p.row_size);
  global const T *a = (global const T *)(a_base + p.a_offset) + z * p.a_group;
  global const char *b = b_base + p.b_offset + z * p.b_group * STORAGE_SIZE(IN);
  global const int *table = (global const int *)(table_base + p.work_offset);

  // What lies past the last row or column is replaced by other elements, whose sums are not stored.
  int row_at[A_LOADS], column_at[B_LOADS];
  _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {
    const uint row = min(row0 + place_in_tile(item + i * ITEMS, A_BY_K, BM).x, p.m - 1);
    row_at[i] = (int)place_of(digits_of(row, row_size), STRIDES(p.row_a));
  }
  _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {
    const uint column = min(column0 + place_in_tile(item + i * ITEMS, B_BY_K, BN).x, p.n - 1);
    column_at[i] = (int)(column * p.column_b);
  }
  const uint lx = item % LN, ly = item / LN;
  T sum[TM][TN];
  _Pragma("unroll") for (uint i = 0; i < TM; i++) {
    _Pragma("unroll") for (uint j = 0; j < TN; j++) sum[i][j] = (T)(0);
  }

  T next_a[A_LOADS], next_b[B_LOADS];
  uint now = 0;
  for (uint k0 = start; k0 < end + BK; k0 += BK) {
    if (k0 < end) {
      _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {
        const uint k = k0 + place_in_tile(item + i * ITEMS, A_BY_K, BM).y;
        next_a[i] = k < end ? a[row_at[i] + table[2 * k]] : (T)(0);
      }
      _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {
        const uint k = k0 + place_in_tile(item + i * ITEMS, B_BY_K, BN).y;
        next_b[i] = k < end ? LOAD_AS(C, IN, b, column_at[i] + table[2 * k + 1]) : (T)(0);
      }
    }
    if (k0 != start) {
      local const T *x = memory + now * STAGE + ly * RUN;
      local const T *y = memory + now * STAGE + BK * A_LINE + lx * RUN;
      _Pragma("unroll") for (uint kk = 0; kk < BK; kk++) {
        Run rows[TM / RUN], columns[TN / RUN];
        _Pragma("unroll") for (uint i = 0; i < TM / RUN; i++) {
          rows[i] = *(local const Run *)(x + kk * A_LINE + i * LM * RUN);
        }
        _Pragma("unroll") for (uint j = 0; j < TN / RUN; j++) {
          columns[j] = *(local const Run *)(y + kk * B_LINE + j * LN * RUN);
        }
        _Pragma("unroll") for (uint i = 0; i < TM; i++) {
          _Pragma("unroll") for (uint j = 0; j < TN; j++) {
            const T u = ((private const T *)rows)[i], v = ((private const T *)columns)[j];
            sum[i][j] = MAD(u, v, sum[i][j]);
          }
        }
      }
      now ^= 1;
    }
    if (k0 < end) {
      local T *x = memory + now * STAGE, *y = x + BK * A_LINE;
      _Pragma("unroll") for (uint i = 0; i < A_LOADS; i++) {
        const uint2 place = place_in_tile(item + i * ITEMS, A_BY_K, BM);
        x[place.y * A_LINE + place.x] = next_a[i];
      }
      _Pragma("unroll") for (uint i = 0; i < B_LOADS; i++) {
        const uint2 place = place_in_tile(item + i * ITEMS, B_BY_K, BN);
        y[place.y * B_LINE + place.x] = next_b[i];
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }

  // Through local memory, so that neighbouring work-items store neighbouring elements.
  out += p.out_offset + z * p.out_group * STORAGE_SIZE(OUT);
  bias += p.bias_offset + (ulong)z * p.n * STORAGE_SIZE(OUT);
  global T *totals = (global T *)(sums + p.totals) + ((ulong)split * p.groups + z) * p.m * p.n;
#if OUT_BY_ROW
#define STEPS TN
#define STEP_ELEMENTS (LN * BM)
#else
#define STEPS TM
#define STEP_ELEMENTS (LM * BN)
#endif
  _Pragma("unroll") for (uint step = 0; step < STEPS; step++) {
    barrier(CLK_LOCAL_MEM_FENCE);
#if OUT_BY_ROW
    _Pragma("unroll") for (uint i = 0; i < TM; i++) {
      memory[lx * BM + i / RUN * LM * RUN + ly * RUN + i % RUN] = sum[i][step];
    }
#else
    _Pragma("unroll") for (uint j = 0; j < TN; j++) {
      memory[ly * BN + j / RUN * LN * RUN + lx * RUN + j % RUN] = sum[step][j];
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = item; e < STEP_ELEMENTS; e += ITEMS) {
#if OUT_BY_ROW
      const uint row = row0 + e % BM;
      const uint column = column0 + step / RUN * LN * RUN + e / BM * RUN + step % RUN;
#else
      const uint row = row0 + step / RUN * LM * RUN + e / BN * RUN + step % RUN;
      const uint column = column0 + e % BN;
#endif
      if (row >= p.m || column >= p.n) continue;
      T value = memory[e];
      global T *total = totals + (ulong)row * p.n + column;
      if (p.flags & FLAG_CONTINUE) value += *total;
      if (p.flags & FLAG_KEEP) {
        *total = value;
        continue;
      }
      if (p.flags & FLAG_BIAS) value += LOAD_AS(C, OUT, bias, column);
      const long at = place_of(digits_of(row, row_size), STRIDES(p.row_out)) + column * p.column_out;
      STORE_FROM(OUT, C, out, at, value);
    }
  }
}

/// Adds up the totals of the parts of k, in order. Global size: m * n, groups.
kernel void conv_tiled_finish(global const char *bias, global char *out, global const char *sums,
                              const Contraction p) {
  const ulong e = get_global_id(0);
  const uint z = get_global_id(1);
  if (e >= (ulong)p.m * p.n) return;
#if OUT_BY_ROW
  const uint row = e % p.m, column = e / p.m;
#else
  const uint row = e / p.n, column = e % p.n;
#endif
  global const T *totals = (global const T *)(sums + p.totals);
  T sum = (T)(0);
  for (uint split = 0; split < p.splits; split++) {
    sum += totals[(((ulong)split * p.groups + z) * p.m + row) * p.n + column];
  }
  if (p.flags & FLAG_BIAS) sum += LOAD_AS(C, OUT, bias + p.bias_offset, (ulong)z * p.n + column);
  const long at = z * p.out_group + place_of(digits_of(row, SIZES(p.row_size)), STRIDES(p.row_out)) +
                  column * p.column_out;
  STORE_FROM(OUT, C, out + p.out_offset, at, sum);
}
