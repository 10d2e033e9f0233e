// im2col into packed panels, and the product with them: convolutions for CPUs with fewer rows than
// columns, or short sums. Panels hold rows of a (windows), b is read where it lies, element by
// element. A tile's vectors run along rows of the contraction, as they mostly lie in the
// result, and a large weight is read once instead of copied.
//
// Compile parameters besides conv.clh's: MR x NV * WIDTH (columns x rows of the tile kept in
// registers).
//
// Panels are [z][m / NR][k][NR] of C.
#include "include/item_by_item.clh"
#include "conv/conv.clh"
#include "conv/epilogue.clh"
#include "include/register_tile.clh"

typedef TYPEV(C, WIDTH) V;

/// Where the rows of a panel lie: at[] elements from `base`; rows past the last one are the last
/// one again.
static inline void places_of(uint first, uint m, uint4 size, long4 stride, long* at) {
  uint4 d = digits_of(first, size);
  for (uint j = 0; j < NR; j++) {
    at[j] = place_of(d, stride);
    if (first + j + 1 < m) NEXT_DIGITS(d, size);
  }
}

/// Bit v: the places of vector v follow each other. That its last lies WIDTH - 1 past its first
/// doesn't say so: the last row of all repeats, and another image may begin just so far away.
static inline uint lines_of(const long* at) {
  uint lines = 0;
  for (uint v = 0; v < NV; v++) {
    bool line = true;
    for (uint e = 1; e < WIDTH; e++) line = line && at[v * WIDTH + e] - at[v * WIDTH] == e;
    lines |= (uint)line << v;
  }
  return lines;
}

/// Packs `split_k` elements of k of one panel. Global size: parts of k, m / NR, groups.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void conv_im2col(
    global const char* a_base, const ulong a_offset, global char* workspace,
    const ulong workspace_offset, const ContractionArguments p) {
  const uint panel = get_global_id(1), z = get_global_id(2), panels = (p.m + NR - 1) / NR;
  const uint first = get_global_id(0) * p.split_k, last = min(first + p.split_k, p.k);
  const uint4 size = SIZES(p.k_size);
  const long4 stride = STRIDES(p.k_a);
  global const T* a = (global const T*)(a_base + a_offset) + z * p.a_group;
  global T* to =
      (global T*)(workspace + workspace_offset) + (((ulong)z * panels + panel) * p.k + first) * NR;
  long at[NR];
  places_of(panel * NR, p.m, SIZES(p.row_size), STRIDES(p.row_a), at);
  const uint lines = lines_of(at);
  uint4 d = digits_of(first, size);
  for (uint k = first; k < last; k++, to += NR) {
    global const T* from = a + place_of(d, stride);
    for (uint v = 0; v < NV; v++) {
      if (lines >> v & 1) {
        STOREV(C, WIDTH, (global char*)to, v,
               LOADV(C, WIDTH, (global const char*)(from + at[v * WIDTH]), 0));
      } else {
        _Pragma("unroll") for (uint e = 0; e < WIDTH; e++) to[v * WIDTH + e] =
            from[at[v * WIDTH + e]];
      }
    }
    NEXT_DIGITS(d, size);
  }
}

/// Its p.k_size merges dimensions of b. Global size: m / NR, n / (MR * block), groups.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void conv_im2col_product(
    global const char* b_base, const ulong b_offset, global const char* workspace,
    const ulong workspace_offset, global const char* bias, const ulong bias_offset,
    global char* out_base, const ulong out_offset,
    const ContractionArguments p EPILOGUE_PARAMETERS) {
  const uint panel = get_global_id(0), z = get_global_id(2), panels = (p.m + NR - 1) / NR;
  const uint tiles = (p.n + MR - 1) / MR;
  const uint begin = get_global_id(1) * p.block, end = min(begin + p.block, tiles);
  const uint4 size = SIZES(p.k_size);
  const long4 stride = STRIDES(p.k_b);
  global const T* columns =
      (global const T*)(workspace + workspace_offset) + ((ulong)z * panels + panel) * p.k * NR;
  const uint valid = min((uint)NR, p.m - panel * NR);
  long out_at[NR];
  places_of(panel * NR, p.m, SIZES(p.row_size), STRIDES(p.row_out), out_at);
  // An epilogue's vector lies in one row.
  uint lines = 0, lines_out = lines_of(out_at);
  const ulong position = p.position0 + (ulong)panel * NR;
  for (uint v = 0; v < NV; v++) {
    if (IN_A_PLANE(p.plane, position + v * WIDTH, WIDTH)) lines |= lines_out & 1u << v;
  }
  for (uint tile = begin; tile < end; tile++) {
    const uint first = tile * MR, rows = min((uint)MR, p.n - first);
    global const char* b =
        b_base + b_offset + (z * p.b_group + first * p.column_b) * STORAGE_SIZE(IN);
    long at[MR];
    for (uint i = 0; i < MR; i++) at[i] = min(i, rows - 1) * p.column_b;
    V sum[MR][NV];
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      _Pragma("unroll") for (uint v = 0; v < NV; v++) sum[i][v] = (V)(0);
    }
    global const T* y = columns;
    uint4 d = (uint4)(0);
    for (uint k = 0; k < p.k; k += size.s3) {
      global const char* x = b + place_of(d, stride) * STORAGE_SIZE(IN);
      for (uint s = 0; s < size.s3; s++) {
        V column[NV];
        _Pragma("unroll") for (uint v = 0; v < NV; v++) column[v] =
            LOADV(C, WIDTH, (global const char*)y, v);
        _Pragma("unroll") for (uint i = 0; i < MR; i++) {
          const V row = (V)(LOAD_AS(C, IN, x, at[i]));
          _Pragma("unroll") for (uint v = 0; v < NV; v++) sum[i][v] =
              MAD(row, column[v], sum[i][v]);
        }
        x += stride.s3 * STORAGE_SIZE(IN);
        y += NR;
      }
      d.s3 = size.s3 - 1;
      NEXT_DIGITS(d, size);
    }
    const ulong channel = (ulong)z * p.n + first;
    const bool in_lines = rows == MR && valid == NR && lines == (1u << NV) - 1;
    global char* to =
        out_base + out_offset + (z * p.out_group + first * p.column_out) * STORAGE_SIZE(OUT);
    global const char* addends = bias + bias_offset + ((ulong)z * p.n + first) * STORAGE_SIZE(OUT);
    if (in_lines) {
      // Unrolled, for what is looked up by a variable is no longer in registers.
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        const T addend = p.flags & kConvBias ? LOAD_AS(C, OUT, addends, i) : (T)(0);
        _Pragma("unroll") for (uint v = 0; v < NV; v++) {
          const V value = sum[i][v] + (V)(addend);
          STORE_RESULTS(WIDTH, RESULT_ROW(p.plane, p.all, position + v * WIDTH, channel + i),
                        RESULT_COLUMN(p.plane, position + v * WIDTH, channel + i),
                        to + out_at[v * WIDTH] * STORAGE_SIZE(OUT), value);
        }
        to += p.column_out * STORAGE_SIZE(OUT);
      }
      continue;
    }
    V edge[MR][NV];
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      _Pragma("unroll") for (uint v = 0; v < NV; v++) edge[i][v] = sum[i][v];
    }
    for (uint i = 0; i < rows; i++) {
      const T addend = p.flags & kConvBias ? LOAD_AS(C, OUT, addends, i) : (T)(0);
      for (uint v = 0; v < NV; v++) {
        const uint j = v * WIDTH;
        const V value = edge[i][v] + (V)(addend);
        if (j + WIDTH <= valid && (lines >> v & 1)) {
          STORE_RESULTS(WIDTH, RESULT_ROW(p.plane, p.all, position + j, channel + i),
                        RESULT_COLUMN(p.plane, position + j, channel + i),
                        to + out_at[j] * STORAGE_SIZE(OUT), value);
        } else {
          union {
            V vector;
            T element[WIDTH];
          } x;
          x.vector = value;
          for (uint e = 0; j + e < valid && e < WIDTH; e++) {
            STORE_RESULT(RESULT_ROW(p.plane, p.all, position + j + e, channel + i),
                         RESULT_COLUMN(p.plane, position + j + e, channel + i), to, out_at[j + e],
                         x.element[e]);
          }
        }
      }
      to += p.column_out * STORAGE_SIZE(OUT);
    }
  }
}
