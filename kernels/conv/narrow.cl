// Convolutions with few output channels per group (depthwise ones above all), where tiles of rows
// and columns would be nearly empty. On CPUs vectors run along what lies next to each other
// instead: conv_narrow_positions along rows (the positions of an image's line), conv_narrow_k along
// k (the same, when the weight's gradient is summed), conv_narrow_groups along groups (channels
// last). GPUs have conv_direct.
//
// Compile parameters besides conv.clh's: WIDTH (lanes; at most the length they run along, since the
// last vector overlaps the one before), STEP (1 or 2: distance of neighbouring lanes' elements of
// a), MR (rows of a tile), COLUMNS (of a tile of conv_narrow_positions).
#include "include/item_by_item.clh"
#include "conv/conv.clh"
#include "conv/epilogue.clh"

#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef STEP
#define STEP 1
#endif
#ifndef MR
#define MR 4
#endif
#ifndef COLUMNS
#define COLUMNS 1
#endif
#ifndef BY_GROUP
#define BY_GROUP 0
#endif

typedef TYPEV(C, WIDTH) V;
// Whether the vectors of conv_narrow_positions make up a square: where channels lie innermost it is
// transposed.
#if WIDTH > 1 && COLUMNS > 1 && COLUMNS * MR == WIDTH
#define TRANSPOSES 1
#define T V  // the element of the squares that transpose.clh transposes
#include "include/transpose.clh"
#undef T
typedef union {
  V vector;
  TYPEV(C, COLUMNS) line[MR];
} Columns;
#else
#define TRANSPOSES 0
#endif
typedef union {
  V vector;
  T element[WIDTH];
} Lanes;

#define HSUM_1(v) (v)
#define HSUM_2(v) ((v).lo + (v).hi)
#define HSUM_4(v) HSUM_2((v).lo + (v).hi)
#define HSUM_8(v) HSUM_4((v).lo + (v).hi)
#define HSUM_16(v) HSUM_8((v).lo + (v).hi)
#define HSUM(width, v) PASTE2(HSUM_, width)(v)

// WIDTH elements, STEP apart. Nothing past the last of them is read.
#if STEP == 1 || WIDTH == 1
#define LOAD_LANES(p) LOADV(C, WIDTH, (global const char*)(p), 0)
#elif WIDTH == 2
#define LOAD_LANES(p) ((V)((p)[0], (p)[2]))
#else
#define LOAD_LANES(p)                                    \
  ((V)(LOADV(C, WIDTH, (global const char*)(p), 0).even, \
       LOADV(C, WIDTH, (global const char*)((p) + WIDTH - 1), 0).odd))
#endif

/// Lines are rows but the innermost dimension, which may lie apart in out; a work-item has all of a
#if TRANSPOSES
/// Stores WIDTH positions of each of MR lines from `start` on, a position's channels at once, the
/// first of which is `channel`.
static ALWAYS_INLINE void store_transposed(V sum[COLUMNS][MR], private const ulong* position,
                                           private const long* out_at, uint start, uint channel,
                                           global const char* bias, global char* out,
                                           const ContractionArguments p EPILOGUE_PARAMETERS) {
  V square[WIDTH];
  _Pragma("unroll") for (uint c = 0; c < COLUMNS; c++) {
    const T addend = p.flags & kConvBias ? LOAD_AS(C, OUT, bias, channel + c) : (T)(0);
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      square[i * COLUMNS + c] = sum[c][i] + (V)(addend);
    }
  }
  transpose(square);
  for (uint e = 0; e < WIDTH; e++) {
    const Columns columns = {square[e]};
    _Pragma("unroll") for (uint i = 0; i < MR; i++) {
      STORE_RESULTS(COLUMNS, position[i] + start + e, channel,
                    out + (out_at[i] + (start + e) * p.row_out[3]) * STORAGE_SIZE(OUT),
                    columns.line[i]);
    }
  }
}
#endif

/// group's columns if COLUMNS is more than 1. Global size: lines / MR, columns / COLUMNS * groups.
kernel ITEM_BY_ITEM void conv_narrow_positions(global const char* a_base, const ulong a_offset,
                                               global const char* b, const ulong b_offset,
                                               global const char* bias, const ulong bias_offset,
                                               global char* out, const ulong out_offset,
                                               const ContractionArguments p EPILOGUE_PARAMETERS) {
  const uint together = p.n / COLUMNS;
  const uint z = get_global_id(1) / together, column = get_global_id(1) % together * COLUMNS;
  const uint4 line_size = (uint4)(1, p.row_size[0], p.row_size[1], p.row_size[2]);
  const long4 line_a = (long4)(0, p.row_a[0], p.row_a[1], p.row_a[2]);
  const long4 line_out = (long4)(0, p.row_out[0], p.row_out[1], p.row_out[2]);
  const uint length = p.row_size[3], lines = p.m / length;
  // Lines of k, too: within one, places are steps away.
  const uint4 taps_size = (uint4)(1, p.k_size[0], p.k_size[1], p.k_size[2]);
  const long4 taps_a = (long4)(0, p.k_a[0], p.k_a[1], p.k_a[2]);
  const long4 taps_b = (long4)(0, p.k_b[0], p.k_b[1], p.k_b[2]);
  const uint line_of_taps = p.k_size[3];
  global const T* a = (global const T*)(a_base + a_offset) + z * p.a_group;
  b += b_offset + (z * p.b_group + column * p.column_b) * STORAGE_SIZE(IN);
  out += out_offset + (z * p.out_group + column * p.column_out) * STORAGE_SIZE(OUT);
  // Work-items past the last full tile begin earlier: what is computed twice is the same.
  const uint first = min((uint)get_global_id(0) * MR, lines > MR ? lines - MR : 0);
  long at[MR], out_at[MR];
  ulong position[MR];
  for (uint i = 0; i < MR; i++) {
    const uint line = min(first + i, lines - 1);
    const uint4 d = digits_of(line, line_size);
    position[i] = p.position0 + (ulong)line * length;
    at[i] = place_of(d, line_a);
    out_at[i] = place_of(d, line_out);
  }
  for (uint x = 0; x < length; x += WIDTH) {
    const uint start = min(x, length - WIDTH);
    V sum[COLUMNS][MR];
    _Pragma("unroll") for (uint c = 0; c < COLUMNS; c++) {
      _Pragma("unroll") for (uint i = 0; i < MR; i++) sum[c][i] = (V)(0);
    }
    global const T* from = a + (long)start * STEP;
    uint4 d = (uint4)(0);
    for (uint k = 0; k < p.k; k += line_of_taps) {
      global const T* tap = from + place_of(d, taps_a);
      global const char* b_tap = b + place_of(d, taps_b) * STORAGE_SIZE(IN);
      for (uint j = 0; j < line_of_taps; j++) {
        V weight[COLUMNS];
        _Pragma("unroll") for (uint c = 0; c < COLUMNS; c++) {
          weight[c] = (V)(LOAD_AS(C, IN, b_tap, c * p.column_b));
        }
        _Pragma("unroll") for (uint i = 0; i < MR; i++) {
          const V value = LOAD_LANES(tap + at[i]);
          _Pragma("unroll") for (uint c = 0; c < COLUMNS; c++) {
            sum[c][i] = MAD(value, weight[c], sum[c][i]);
          }
        }
        tap += p.k_a[3];
        b_tap += p.k_b[3] * STORAGE_SIZE(IN);
      }
      NEXT_DIGITS(d, taps_size);
    }
#if TRANSPOSES
    if (p.column_out == 1 && p.row_out[3] != 1) {
      store_transposed(sum, position, out_at, start, z * p.n + column, bias + bias_offset, out,
                       p EPILOGUE_PASSED);
      continue;
    }
#endif
    _Pragma("unroll") for (uint c = 0; c < COLUMNS; c++) {
      const T addend =
          p.flags & kConvBias ? LOAD_AS(C, OUT, bias + bias_offset, z * p.n + column + c) : (T)(0);
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        const long to = out_at[i] + c * p.column_out + start * p.row_out[3];
        const Lanes result = {sum[c][i] + (V)(addend)};
        const ulong from = position[i] + start, channel = z * p.n + column + c;
        if (p.row_out[3] == 1 && IN_A_PLANE(p.plane, from, WIDTH)) {
          STORE_RESULTS(WIDTH, RESULT_ROW(p.plane, p.all, from, channel),
                        RESULT_COLUMN(p.plane, from, channel), out + to * STORAGE_SIZE(OUT),
                        result.vector);
        } else {
          for (uint e = 0; e < WIDTH; e++) {
            STORE_RESULT(RESULT_ROW(p.plane, p.all, from + e, channel),
                         RESULT_COLUMN(p.plane, from + e, channel), out, to + e * p.row_out[3],
                         result.element[e]);
          }
        }
      }
    }
  }
}

/// Lines are k but its innermost dimension. Global size: m / MR, columns * groups.
kernel ITEM_BY_ITEM void conv_narrow_k(global const char* a_base, const ulong a_offset,
                                       global const char* b, const ulong b_offset,
                                       global const char* bias, const ulong bias_offset,
                                       global char* out, const ulong out_offset,
                                       const ContractionArguments p EPILOGUE_PARAMETERS) {
  const uint z = get_global_id(1) / p.n, column = get_global_id(1) % p.n;
  const uint4 line_size = (uint4)(1, p.k_size[0], p.k_size[1], p.k_size[2]);
  const long4 line_a = (long4)(0, p.k_a[0], p.k_a[1], p.k_a[2]);
  const long4 line_b = (long4)(0, p.k_b[0], p.k_b[1], p.k_b[2]);
  const uint length = p.k_size[3], lines = p.k / length;
  const uint4 row_size = SIZES(p.row_size);
  global const T* a = (global const T*)(a_base + a_offset) + z * p.a_group;
  b += b_offset + (z * p.b_group + column * p.column_b) * STORAGE_SIZE(IN);
  const uint first = get_global_id(0) * MR;
  long at[MR];
  for (uint i = 0; i < MR; i++) {
    at[i] = place_of(digits_of(min(first + i, p.m - 1), row_size), STRIDES(p.row_a));
  }
  V sum[MR];
  T rest[MR];
  _Pragma("unroll") for (uint i = 0; i < MR; i++) {
    sum[i] = (V)(0);
    rest[i] = (T)(0);
  }
  // In a line's last vector, the lanes that the one before has counted are left out.
  const uint overlap = length % WIDTH == 0 ? 0 : WIDTH - length % WIDTH;
  uint4 d = (uint4)(0);
  for (uint line = 0; line < lines; line++) {
    global const T* from = a + place_of(d, line_a);
    global const char* by = b + place_of(d, line_b) * STORAGE_SIZE(IN);
    uint x = 0;
    for (; x + WIDTH <= length; x += WIDTH) {
      const V y = LOADV_AS(C, IN, WIDTH, by + x * STORAGE_SIZE(IN), 0);
      global const T* tap = from + (long)x * STEP;
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        sum[i] = MAD(LOAD_LANES(tap + at[i]), y, sum[i]);
      }
    }
    if (overlap != 0) {
      x = length - WIDTH;
      const Lanes y = {LOADV_AS(C, IN, WIDTH, by + x * STORAGE_SIZE(IN), 0)};
      for (uint i = 0; i < MR; i++) {
        const Lanes value = {LOAD_LANES(from + (long)x * STEP + at[i])};
        for (uint e = overlap; e < WIDTH; e++) {
          rest[i] = MAD(value.element[e], y.element[e], rest[i]);
        }
      }
    }
    NEXT_DIGITS(d, line_size);
  }
  for (uint i = 0; i < MR && first + i < p.m; i++) {
    const long to = place_of(digits_of(first + i, row_size), STRIDES(p.row_out));
    const ulong position = p.position0 + first + i, channel = z * p.n + column;
    STORE_RESULT(RESULT_ROW(p.plane, p.all, position, channel),
                 RESULT_COLUMN(p.plane, position, channel), out + out_offset,
                 z * p.out_group + column * p.column_out + to, HSUM(WIDTH, sum[i]) + rest[i]);
  }
}

/// One column per group, groups next to each other in a, b and out. Global size: m / (MR * block),
/// groups / WIDTH.
kernel ITEM_BY_ITEM void conv_narrow_groups(global const char* a_base, const ulong a_offset,
                                            global const char* b, const ulong b_offset,
                                            global const char* bias, const ulong bias_offset,
                                            global char* out, const ulong out_offset,
                                            const ContractionArguments p EPILOGUE_PARAMETERS) {
  const uint z = min((uint)get_global_id(1) * WIDTH, p.groups - WIDTH);
  const uint4 row_size = SIZES(p.row_size), k_size = SIZES(p.k_size);
  const long4 k_a = STRIDES(p.k_a), k_b = STRIDES(p.k_b);
  global const T* a = (global const T*)(a_base + a_offset) + z;
  b += b_offset + z * STORAGE_SIZE(IN);
  out += out_offset + z * STORAGE_SIZE(OUT);
  V addend = (V)(0);
  if (p.flags & kConvBias) {
    addend = LOADV_AS(C, OUT, WIDTH, bias + bias_offset + z * STORAGE_SIZE(OUT), 0);
  }
  const uint begin = get_global_id(0) * p.block * MR, end = min(begin + p.block * MR, p.m);
  for (uint first = begin; first < end; first += MR) {
    long at[MR], out_at[MR];
    uint4 r = digits_of(first, row_size);
    for (uint i = 0; i < MR; i++) {
      at[i] = place_of(r, STRIDES(p.row_a));
      out_at[i] = place_of(r, STRIDES(p.row_out));
      if (first + i + 1 < p.m) NEXT_DIGITS(r, row_size);
    }
    V sum[MR];
    _Pragma("unroll") for (uint i = 0; i < MR; i++) sum[i] = (V)(0);
    uint4 d = (uint4)(0);
    for (uint k = 0; k < p.k; k++) {
      const V y = LOADV_AS(C, IN, WIDTH, b + place_of(d, k_b) * STORAGE_SIZE(IN), 0);
      global const T* tap = a + place_of(d, k_a);
      _Pragma("unroll") for (uint i = 0; i < MR; i++) {
        sum[i] = MAD(LOADV(C, WIDTH, (global const char*)(tap + at[i]), 0), y, sum[i]);
      }
      NEXT_DIGITS(d, k_size);
    }
    for (uint i = 0; i < MR && first + i < p.m; i++) {
      STORE_RESULTS(WIDTH, p.position0 + first + i, z, out + out_at[i] * STORAGE_SIZE(OUT),
                    sum[i] + addend);
    }
  }
}

/// For GPUs: one sum per work-item. Global size: rows, columns * groups; with BY_GROUP the other
/// way round, where neighbouring groups are neighbours in memory.
kernel void conv_direct(global const char* a_base, const ulong a_offset, global const char* b,
                        const ulong b_offset, global const char* bias, const ulong bias_offset,
                        global char* out, const ulong out_offset,
                        const ContractionArguments p EPILOGUE_PARAMETERS) {
#if BY_GROUP
  const uint row = get_global_id(1), channel = get_global_id(0);
#else
  const uint row = get_global_id(0), channel = get_global_id(1);
#endif
  if (row >= p.m || channel >= p.n * p.groups) return;
  const uint z = channel / p.n, column = channel % p.n;
  const uint4 k_size = SIZES(p.k_size), place = digits_of(row, SIZES(p.row_size));
  const long4 k_a = STRIDES(p.k_a), k_b = STRIDES(p.k_b);
  global const T* a =
      (global const T*)(a_base + a_offset) + z * p.a_group + place_of(place, STRIDES(p.row_a));
  b += b_offset + (z * p.b_group + column * p.column_b) * STORAGE_SIZE(IN);
  T sum = (T)(0);
  uint4 d = (uint4)(0);
  for (uint k = 0; k < p.k; k++) {
    sum = MAD(a[place_of(d, k_a)], LOAD_AS(C, IN, b, place_of(d, k_b)), sum);
    NEXT_DIGITS(d, k_size);
  }
  if (p.flags & kConvBias) sum += LOAD_AS(C, OUT, bias + bias_offset, channel);
  const long at = z * p.out_group + column * p.column_out + place_of(place, STRIDES(p.row_out));
  STORE_RESULT(RESULT_ROW(p.plane, p.all, p.position0 + row, channel),
               RESULT_COLUMN(p.plane, p.position0 + row, channel), out + out_offset, at, sum);
}
