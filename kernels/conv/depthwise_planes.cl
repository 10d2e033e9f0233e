// Depthwise convolutions of planes on CPUs: vectors run along lines. A work-item copies a block of
// a plane into local memory, with zeros around it, so that no load needs a bound, and slides
// windows over it; a loaded vector serves all the lines of a tile.
//
// Compile parameters besides depthwise.clh's: TY (lines of a tile). WIDTH is at least 4, and more
// than half of a result's line unless it is 16.
#include "include/item_by_item.clh"
#include "conv/depthwise.clh"

#ifndef TY
#define TY 4
#endif

#define HALF_2 1
#define HALF_4 2
#define HALF_8 4
#define HALF_16 8
#define HALF PASTE2(HALF_, WIDTH)
#define TILE_ROWS ((TY - 1) * STRIDE + KH)

#define HSUM_2(v) ((v).lo + (v).hi)
#define HSUM_4(v) HSUM_2((v).lo + (v).hi)
#define HSUM_8(v) HSUM_4((v).lo + (v).hi)
#define HSUM_16(v) HSUM_8((v).lo + (v).hi)
#define HSUM(width, v) PASTE2(HSUM_, width)(v)

// WIDTH elements, STRIDE apart, of local memory.
#define LOCAL_V(p) PASTE2(vload, WIDTH)(0, p)
#if STRIDE == 1
#define LOAD_LANES(p) LOCAL_V(p)
#else
#define LOAD_LANES(p) ((V)(LOCAL_V(p).even, LOCAL_V((p) + WIDTH - 1).odd))
#endif

/// A vector of the source in a staged line, its elements UP apart.
static inline void stage(local T* to, V v) {
#if UP == 1
  PASTE2(vstore, WIDTH)(v, 0, to);
#else
  V spread = (V)(0);
  spread.even = v.lo;
  PASTE2(vstore, WIDTH)(spread, 0, to);
  spread.even = v.hi;
  PASTE2(vstore, WIDTH)(spread, 0, to + WIDTH);
#endif
}

/// Zeroes `count` staged elements, whole vectors. Blocks at the same place of other planes leave
/// the zeros around theirs alone.
static inline void clear(local T* staged, uint count) {
  for (uint i = 0; i < count; i += WIDTH) PASTE2(vstore, WIDTH)((V)(0), 0, staged + i);
}

/// Copies what a block's windows see of a plane: `lines` of `pitch` elements, from (y0, x0) of u
/// on, into a cleared block.
static inline void stage_input(local T* staged, global const char* plane,
                               const DepthwiseArguments* p, int y0, int x0, uint lines) {
  const int low = x0 > 0 ? (x0 + UP - 1) / UP : 0;
  const int end = min((int)p->in_w, (x0 + (int)p->pitch + UP - 1) / UP);
  for (uint line = 0; line < lines; line++, staged += p->pitch) {
    const int y = y0 + (int)line;
    if (y < 0 || y % UP != 0 || y / UP >= (int)p->in_h || low >= end) continue;
    global const char* from = plane + (y / UP * p->in_y + low) * STORAGE_SIZE(IN);
    local T* to = staged + (low * UP - x0);
    const uint length = end - low;
    uint i = 0;
    if (length >= WIDTH) {
      for (; i + WIDTH < length; i += WIDTH) {
        stage(to + i * UP, LOADV_AS(C, IN, WIDTH, from + i * STORAGE_SIZE(IN), 0));
      }
      i = length - WIDTH;
      stage(to + i * UP, LOADV_AS(C, IN, WIDTH, from + i * STORAGE_SIZE(IN), 0));
      continue;
    }
#if UP == 1
    if (length >= HALF) {
      PASTE2(vstore, HALF)(LOADV_AS(C, IN, HALF, from, 0), 0, to);
      i = length - HALF;
      PASTE2(vstore, HALF)(LOADV_AS(C, IN, HALF, from + i * STORAGE_SIZE(IN), 0), 0, to + i);
      continue;
    }
#endif
    for (; i < length; i++) to[i * UP] = LOAD_AS(C, IN, from, i);
  }
}

/// The first `length` lanes.
static inline void store_line(global char* to, V v, uint length, ulong row,
                              ulong column EPILOGUE_PARAMETERS) {
  if (length >= WIDTH) {
    STORE_RESULTS(WIDTH, row, column, to, v);
    return;
  }
  T lanes[WIDTH];
  PASTE2(vstore, WIDTH)(v, 0, lanes);
  uint i = 0;
  if (length >= HALF) {
    STORE_RESULTS(HALF, row, column, to, v.lo);
    i = length - HALF;
    STORE_RESULTS(HALF, row, column + i, to + i * STORAGE_SIZE(OUT),
                  PASTE2(vload, HALF)(0, lanes + i));
    return;
  }
  for (; i < length; i++) STORE_RESULT(row, column + i, to, i, lanes[i]);
}

/// Global size: planes / block, blocks of lines * blocks of columns.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void depthwise_planes(
    global const char* in, const ulong in_offset, global const char* weight,
    const ulong weight_offset, global const char* bias, const ulong bias_offset, global char* out,
    const ulong out_offset, local T* staged, const DepthwiseArguments p EPILOGUE_PARAMETERS) {
  const uint first = get_global_id(0) * p.block;
  const uint last = min(first + p.block, p.images * p.channels);
  const uint across = (p.out_w + p.columns - 1) / p.columns;
  const uint y0 = get_global_id(1) / across * p.rows, x0 = get_global_id(1) % across * p.columns;
  const uint rows = min(p.rows, p.out_h - y0), columns = min(p.columns, p.out_w - x0);
  const uint lines = ((rows + TY - 1) / TY * TY - 1) * STRIDE + KH;
  clear(staged, lines * p.pitch);
  for (uint plane = first; plane < last; plane++) {
    const uint n = plane / p.channels, c = plane % p.channels;
    stage_input(staged,
                in + in_offset + (n * p.in_n + c / p.multiplier * p.in_c) * STORAGE_SIZE(IN), &p,
                (int)(y0 * STRIDE) - p.pad_y, (int)(x0 * STRIDE) - p.pad_x, lines);
    T w[KH][KW];
    _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
      _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) {
        w[ky][kx] = LOAD_AS(C, W, weight + weight_offset,
                            c * p.weight_c + ky * p.weight_y + kx * p.weight_x);
      }
    }
    const T addend = p.biased ? LOAD_AS(C, OUT, bias + bias_offset, c) : (T)(0);
    for (uint y = 0; y < rows; y += TY) {
      global char* to = out + out_offset +
                        (n * p.out_n + c * p.out_c + (y0 + y) * p.out_y + x0) * STORAGE_SIZE(OUT);
      const uint valid = min((uint)TY, rows - y);
      const uint odd = (uint)((int)(y0 + y) - p.pad_y);  // every UP-th line of u has elements
      for (uint x = 0; x < columns; x += WIDTH) {
        const uint start = columns > WIDTH ? min(x, columns - WIDTH) : 0;
        V sum[TY];
        _Pragma("unroll") for (int i = 0; i < TY; i++) sum[i] = (V)(addend);
        local const T* line = staged + y * STRIDE * p.pitch + start * STRIDE;
        _Pragma("unroll") for (int r = 0; r < TILE_ROWS; r++, line += p.pitch) {
          if (UP > 1 && ((uint)r + odd) % UP != 0) continue;
          _Pragma("unroll") for (int kx = 0; kx < KW; kx++) {
            const V u = LOAD_LANES(line + kx);
            _Pragma("unroll") for (int i = 0; i < TY; i++) {
              const int ky = r - i * STRIDE;
              if (ky >= 0 && ky < KH) sum[i] = MAD(u, (V)(w[ky][kx]), sum[i]);
            }
          }
        }
        _Pragma("unroll") for (int i = 0; i < TY; i++) {
          if (i < valid)
            store_line(to + (i * p.out_y + start) * STORAGE_SIZE(OUT), sum[i], columns, plane,
                       (y0 + y + i) * (ulong)p.out_w + x0 + start EPILOGUE_PASSED);
        }
      }
    }
  }
}

// sum[KH][KW] over ROWS lines of a block, from `line` and `gradient_line` on.
#define ADD_LINES(ROWS)                                                           \
  do {                                                                            \
    V gradient[ROWS];                                                             \
    _Pragma("unroll") for (int i = 0; i < ROWS; i++) {                            \
      gradient[i] = LOCAL_V(gradient_line + i * p.columns);                       \
    }                                                                             \
    _Pragma("unroll") for (int r = 0; r < (ROWS - 1) * STRIDE + KH; r++) {        \
      _Pragma("unroll") for (int kx = 0; kx < KW; kx++) {                         \
        const V u = LOAD_LANES(line + r * p.pitch + kx);                          \
        _Pragma("unroll") for (int i = 0; i < ROWS; i++) {                        \
          const int ky = r - i * STRIDE;                                          \
          if (ky >= 0 && ky < KH) sum[ky][kx] = MAD(u, gradient[i], sum[ky][kx]); \
        }                                                                         \
      }                                                                           \
    }                                                                             \
    line += ROWS * STRIDE * p.pitch;                                              \
    gradient_line += ROWS * p.columns;                                            \
  } while (0)

/// The weight's gradient: `out` is the result's, `channels` counts the result's. Staged are blocks
/// of the input and of the result, which has `columns` (whole vectors) from line to line. Global
/// size: channels / block.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void depthwise_planes_weight(
    global const char* in, const ulong in_offset, global char* weight, const ulong weight_offset,
    global const char* out, const ulong out_offset, local T* staged, local T* staged_out,
    const DepthwiseArguments p) {
  const uint first = get_global_id(0) * p.block, last = min(first + p.block, p.channels);
  const uint rest = p.out_w % WIDTH, lines = (p.rows - 1) * STRIDE + KH;
  const bool whole = p.rows >= p.out_h && p.columns >= p.out_w;  // planes, staged at once
  if (whole) {
    clear(staged, lines * p.pitch);
    clear(staged_out, p.rows * p.columns);
  }
  for (uint c = first; c < last; c++) {
    // Sums of whole vectors, and of those at a line's end: their lanes past it are products of
    // something else, and left out.
    V total[2][KH][KW];
    for (uint i = 0; i < 2; i++) {
      _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
        _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) total[i][ky][kx] = (V)(0);
      }
    }
    for (uint n = 0; n < p.images; n++) {
      for (uint y0 = 0; y0 < p.out_h; y0 += p.rows) {
        const uint rows = min(p.rows, p.out_h - y0);
        for (uint x0 = 0; x0 < p.out_w; x0 += p.columns) {
          const uint columns = min(p.columns, p.out_w - x0);
          if (!whole) {
            clear(staged, lines * p.pitch);
            clear(staged_out, p.rows * p.columns);
          }
          stage_input(staged,
                      in + in_offset + (n * p.in_n + c / p.multiplier * p.in_c) * STORAGE_SIZE(IN),
                      &p, (int)(y0 * STRIDE) - p.pad_y, (int)(x0 * STRIDE) - p.pad_x,
                      (rows - 1) * STRIDE + KH);
          global const char* from =
              out + out_offset +
              (n * p.out_n + c * p.out_c + y0 * p.out_y + x0) * STORAGE_SIZE(OUT);
          for (uint y = 0; y < rows; y++, from += p.out_y * STORAGE_SIZE(OUT)) {
            local T* to = staged_out + y * p.columns;
            uint x = 0;
            for (; x + WIDTH <= columns; x += WIDTH) {
              const V v = LOADV_AS(C, OUT, WIDTH, from + x * STORAGE_SIZE(OUT), 0);
              PASTE2(vstore, WIDTH)(v, 0, to + x);
            }
            if (x < columns && columns >= HALF) {
              if (x + HALF <= columns) {
                PASTE2(vstore, HALF)(LOADV_AS(C, OUT, HALF, from + x * STORAGE_SIZE(OUT), 0), 0,
                                     to + x);
              }
              x = columns - HALF;
              PASTE2(vstore, HALF)(LOADV_AS(C, OUT, HALF, from + x * STORAGE_SIZE(OUT), 0), 0,
                                   to + x);
              continue;
            }
            for (; x < columns; x++) to[x] = LOAD_AS(C, OUT, from, x);
          }
          for (uint x = 0; x < columns; x += WIDTH) {
            local const T *line = staged + x * STRIDE, *gradient_line = staged_out + x;
            V sum[KH][KW];
            _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
              _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) sum[ky][kx] = (V)(0);
            }
            uint y = 0;
            for (; y + TY <= rows; y += TY) ADD_LINES(TY);
            for (; y < rows; y++) ADD_LINES(1);
            V(*to)[KW] = total[x + WIDTH > columns];
            _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
              _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) to[ky][kx] += sum[ky][kx];
            }
          }
        }
      }
    }
    for (uint ky = 0; ky < KH; ky++) {
      for (uint kx = 0; kx < KW; kx++) {
        T value = HSUM(WIDTH, total[0][ky][kx]), lanes[WIDTH];
        PASTE2(vstore, WIDTH)(total[1][ky][kx], 0, lanes);
        for (uint i = 0; i < rest; i++) value += lanes[i];
        STORE_FROM(W, C, weight + weight_offset, c * p.weight_c + ky * p.weight_y + kx * p.weight_x,
                   value);
      }
    }
  }
}
