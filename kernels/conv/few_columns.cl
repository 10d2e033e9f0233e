// Convolutions with few output channels per group on GPUs, where the tiles of tiled.cl would be
// nearly empty: a work-item has ROWS sums for each of the group's COLUMNS columns, so that an
// element of a, which neighbouring work-items read side by side, is used COLUMNS times, and one of
// b ROWS times. The places of k's elements and b are in local memory, a part of k at a time,
// whose sum is added to the total, which rounds less.
//
// Compile parameters besides conv.clh's: COLUMNS (p.n, at most 16), ROWS,
// ITEMS (of a work-group).
#include "conv/conv.clh"
#include "conv/epilogue.clh"

#ifndef COLUMNS
#define COLUMNS 3
#endif
#ifndef ROWS
#define ROWS 2
#endif
#ifndef ITEMS
#define ITEMS 128
#endif

/// An element of k: its column of b, and its place in a. Aligned, so that one load brings it.
typedef struct {
  T b[COLUMNS];
  int place;
} __attribute__((aligned(16))) Term;

/// Global size: ITEMS for each ITEMS * ROWS rows, groups.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_few_columns(
    global const char* a_base, const ulong a_offset, global const char* b, const ulong b_offset,
    global const char* bias, const ulong bias_offset, global char* out, const ulong out_offset,
    const ContractionArguments p EPILOGUE_PARAMETERS) {
  local Term terms[kFewColumnsPart];
  const uint item = get_local_id(0), z = get_group_id(1);
  const uint row0 = (uint)get_group_id(0) * ITEMS * ROWS + item;
  const uint4 row_size = SIZES(p.row_size), k_size = SIZES(p.k_size);
  global const T* a = (global const T*)(a_base + a_offset) + z * p.a_group;
  b += b_offset + z * p.b_group * STORAGE_SIZE(IN);
  int at[ROWS];
  T total[ROWS][COLUMNS];
  _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
    // Rows past the last one are another's, and not stored.
    at[r] = (int)place_of(digits_of(min(row0 + r * ITEMS, p.m - 1), row_size), STRIDES(p.row_a));
    _Pragma("unroll") for (uint n = 0; n < COLUMNS; n++) total[r][n] = (T)(0);
  }
  for (uint k0 = 0; k0 < p.k; k0 += kFewColumnsPart) {
    const uint count = min((uint)kFewColumnsPart, p.k - k0);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = item; k < count; k += ITEMS) {
      const uint4 d = digits_of(k0 + k, k_size);
      const long from = place_of(d, STRIDES(p.k_b));
      terms[k].place = (int)place_of(d, STRIDES(p.k_a));
      _Pragma("unroll") for (uint n = 0; n < COLUMNS; n++) {
        terms[k].b[n] = LOAD_AS(C, IN, b, from + n * p.column_b);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    T sum[ROWS][COLUMNS];
    _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
      _Pragma("unroll") for (uint n = 0; n < COLUMNS; n++) sum[r][n] = (T)(0);
    }
    _Pragma("unroll 8") for (uint k = 0; k < count; k++) {
      const Term term = terms[k];
      _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
        const T value = a[at[r] + term.place];
        _Pragma("unroll") for (uint n = 0; n < COLUMNS; n++) {
          sum[r][n] = MAD(value, term.b[n], sum[r][n]);
        }
      }
    }
    _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
      _Pragma("unroll") for (uint n = 0; n < COLUMNS; n++) total[r][n] += sum[r][n];
    }
  }
  out += out_offset + z * p.out_group * STORAGE_SIZE(OUT);
  bias += bias_offset + (ulong)z * COLUMNS * STORAGE_SIZE(OUT);
  _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
    const uint row = row0 + r * ITEMS;
    if (row >= p.m) continue;
    const long to = place_of(digits_of(row, row_size), STRIDES(p.row_out));
    _Pragma("unroll") for (uint n = 0; n < COLUMNS; n++) {
      T value = total[r][n];
      if (p.flags & kConvBias) value += LOAD_AS(C, OUT, bias, n);
      STORE_RESULT(RESULT_ROW(p.plane, p.all, p.position0 + row, z * COLUMNS + n),
                   RESULT_COLUMN(p.plane, p.position0 + row, z * COLUMNS + n), out,
                   to + n * p.column_out, value);
    }
  }
}
