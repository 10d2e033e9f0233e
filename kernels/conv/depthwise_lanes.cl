// Depthwise convolutions with channels last on CPUs: vectors run along channels. A tile of
// positions is summed at a time, channels innermost, so that memory is read in its order.
//
// Compile parameters besides depthwise.clh's: TY x TX (positions of a tile). WIDTH is at most the
// number of channels, since the last vector overlaps the one before. W is C.
#include "include/item_by_item.clh"
#include "conv/depthwise.clh"

#ifndef TY
#define TY 2
#endif
#ifndef TX
#define TX 4
#endif
#define POSITIONS 128u
#define TILE_ROWS ((TY - 1) * STRIDE + KH)
#define TILE_COLUMNS ((TX - 1) * STRIDE + KW)

// Rounds towards minus infinity.
static inline int floor_div(int x, int by) { return (x - (x % by + by) % by) / by; }

// sum[TY][TX] over the windows. INSIDE(r) and INSIDE_X(q) say whether a line, or column, of the
// tile's has elements. A tile begins where u has elements.
#define SUM_WINDOWS(INSIDE, INSIDE_X)                                                   \
  _Pragma("unroll") for (int r = 0; r < TILE_ROWS; r += UP) {                           \
    if (!(INSIDE)) continue;                                                            \
    global const char* line = from + r / UP * p.in_y * STORAGE_SIZE(IN);                \
    _Pragma("unroll") for (int q = 0; q < TILE_COLUMNS; q += UP) {                      \
      if (!(INSIDE_X)) continue;                                                        \
      const V u = LOADV_AS(C, IN, WIDTH, line + q / UP * p.in_x * STORAGE_SIZE(IN), 0); \
      _Pragma("unroll") for (int i = 0; i < TY; i++) {                                  \
        const int ky = r - i * STRIDE;                                                  \
        if (ky < 0 || ky >= KH) continue;                                               \
        _Pragma("unroll") for (int j = 0; j < TX; j++) {                                \
          const int kx = q - j * STRIDE;                                                \
          if (kx >= 0 && kx < KW) sum[i][j] = MAD(u, w[ky][kx], sum[i][j]);             \
        }                                                                               \
      }                                                                                 \
    }                                                                                   \
  }

/// Global size: tiles of lines / block, images.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void depthwise_lanes(
    global const char* in, const ulong in_offset, global const char* weight,
    const ulong weight_offset, global const char* bias, const ulong bias_offset, global char* out,
    const ulong out_offset, const DepthwiseArguments p EPILOGUE_PARAMETERS) {
  const uint n = get_global_id(1);
  const uint tiles = (p.out_h + p.skip_y + TY - 1) / TY;
  const uint first = get_global_id(0) * p.block, last = min(first + p.block, tiles);
  in += in_offset + n * p.in_n * STORAGE_SIZE(IN);
  out += out_offset + n * p.out_n * STORAGE_SIZE(OUT);
  weight += weight_offset;
  bias += bias_offset;
  const int in_h = p.in_h, in_w = p.in_w;
  for (uint tile = first; tile < last; tile++) {
    const int y = (int)(tile * TY) - (int)p.skip_y, top = floor_div(y * STRIDE - p.pad_y, UP);
    const bool inside_y = top >= 0 && top + (TILE_ROWS - 1) / UP < in_h;
    for (int x = -(int)p.skip_x; x < (int)p.out_w; x += TX) {
      const int left = floor_div(x * STRIDE - p.pad_x, UP);
      const bool inside = inside_y && left >= 0 && left + (TILE_COLUMNS - 1) / UP < in_w;
      for (uint lane = 0; lane < p.channels; lane += WIDTH) {
        const uint c = min(lane, p.channels - WIDTH);
        V w[KH][KW];
        _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
          _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) {
            w[ky][kx] =
                LOADV(C, WIDTH, weight + (c + ky * p.weight_y + kx * p.weight_x) * sizeof(T), 0);
          }
        }
        V addend = (V)(0);
        if (p.biased) addend = LOADV_AS(C, OUT, WIDTH, bias + c * STORAGE_SIZE(OUT), 0);
        V sum[TY][TX];
        _Pragma("unroll") for (int i = 0; i < TY; i++) {
          _Pragma("unroll") for (int j = 0; j < TX; j++) sum[i][j] = addend;
        }
        global const char* from = in + (top * p.in_y + left * p.in_x + c) * STORAGE_SIZE(IN);
        if (inside) {
          SUM_WINDOWS(true, true)
        } else {
          SUM_WINDOWS(top + r / UP >= 0 && top + r / UP < in_h,
                      left + q / UP >= 0 && left + q / UP < in_w)
        }
        _Pragma("unroll") for (int i = 0; i < TY; i++) {
          _Pragma("unroll") for (int j = 0; j < TX; j++) {
            if (y + i >= 0 && y + i < (int)p.out_h && x + j >= 0 && x + j < (int)p.out_w) {
              STORE_RESULTS(WIDTH, ((ulong)n * p.out_h + y + i) * p.out_w + x + j, c,
                            out + ((y + i) * p.out_y + (x + j) * p.out_x + c) * STORAGE_SIZE(OUT),
                            sum[i][j]);
            }
          }
        }
      }
    }
  }
}

// sum[KH][KW] over a tile of a line.
#define SUM_POSITIONS(INSIDE_X, VALID)                                                             \
  _Pragma("unroll") for (int ky = 0; ky < KH; ky++) {                                              \
    if (top + ky < 0 || top + ky >= in_h) continue;                                                \
    _Pragma("unroll") for (int q = 0; q < TILE_COLUMNS; q++) {                                     \
      if (!(INSIDE_X)) continue;                                                                   \
      const V u = LOADV_AS(C, IN, WIDTH, from + (ky * p.in_y + q * p.in_x) * STORAGE_SIZE(IN), 0); \
      _Pragma("unroll") for (int j = 0; j < TX; j++) {                                             \
        const int kx = q - j * STRIDE;                                                             \
        if (kx >= 0 && kx < KW && (VALID)) sum[ky][kx] = MAD(u, gradient[j], sum[ky][kx]);         \
      }                                                                                            \
    }                                                                                              \
  }

/// Sums of the weight's gradient over `block` lines each; `out` is the result's. `partial` is
/// [part][vectors of channels][KH][KW][WIDTH] of C: the last vector's channels may be the last ones
/// of the vector before. Global size: lines of all images / block.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void depthwise_lanes_weight(
    global const char* in, const ulong in_offset, global char* partial, const ulong partial_offset,
    global const char* out, const ulong out_offset, const DepthwiseArguments p) {
  const uint first = get_global_id(0) * p.block, last = min(first + p.block, p.images * p.out_h);
  const uint vectors = (p.channels + WIDTH - 1) / WIDTH;
  const int in_h = p.in_h, in_w = p.in_w;
  in += in_offset;
  out += out_offset;
  partial += partial_offset + get_global_id(0) * vectors * (KH * KW * WIDTH * sizeof(T));
  for (uint i = 0; i < vectors * KH * KW; i++) STOREV(C, WIDTH, partial, i, (V)(0));
  // Lines enough for sums to stay in registers a while, but no more than a first-level cache keeps.
  const uint together = max(POSITIONS / p.out_w, 1u);
  for (uint row0 = first; row0 < last; row0 += together) {
    const uint row_end = min(row0 + together, last);
    for (uint vector = 0; vector < vectors; vector++) {
      const uint c = min(vector * WIDTH, p.channels - WIDTH);
      global char* to = partial + vector * (KH * KW * WIDTH * sizeof(T));
      V sum[KH][KW];
      _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
        _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) sum[ky][kx] =
            LOADV(C, WIDTH, to, ky * KW + kx);
      }
      for (uint row = row0; row < row_end; row++) {
        const uint n = row / p.out_h, y = row % p.out_h;
        const int top = (int)(y * STRIDE) - p.pad_y;
        for (uint x = 0; x < p.out_w; x += TX) {
          const int left = (int)(x * STRIDE) - p.pad_x;
          const uint valid = min((uint)TX, p.out_w - x);
          const bool inside = left >= 0 && left + TILE_COLUMNS <= in_w && valid == TX;
          global const char* from =
              in + (n * p.in_n + top * p.in_y + left * p.in_x + c) * STORAGE_SIZE(IN);
          global const char* by =
              out + (n * p.out_n + y * p.out_y + x * p.out_x + c) * STORAGE_SIZE(OUT);
          V gradient[TX];
          _Pragma("unroll") for (uint j = 0; j < TX; j++) {
            gradient[j] = (V)(0);
            if (j < valid)
              gradient[j] = LOADV_AS(C, OUT, WIDTH, by + j * p.out_x * STORAGE_SIZE(OUT), 0);
          }
          if (inside) {
            SUM_POSITIONS(true, true)
          } else if (valid == TX) {
            SUM_POSITIONS(left + q >= 0 && left + q < in_w, true)
          } else {
            SUM_POSITIONS(left + q >= 0 && left + q < in_w, j < valid)
          }
        }
      }
      _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
        _Pragma("unroll") for (uint kx = 0; kx < KW; kx++)
            STOREV(C, WIDTH, to, ky * KW + kx, sum[ky][kx]);
      }
    }
  }
}

/// Adds up `block` parts. Global size: vectors of channels, KH.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void depthwise_lanes_finish(
    global const char* partial, const ulong partial_offset, global char* weight,
    const ulong weight_offset, const DepthwiseArguments p) {
  const uint vector = get_global_id(0), ky = get_global_id(1);
  const uint vectors = (p.channels + WIDTH - 1) / WIDTH;
  const uint c = min(vector * WIDTH, p.channels - WIDTH);
  V sum[KW];
  _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) sum[kx] = (V)(0);
  for (uint part = 0; part < p.block; part++) {
    const ulong from = (((ulong)part * vectors + vector) * KH + ky) * KW;
    _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) {
      sum[kx] += LOADV(C, WIDTH, partial + partial_offset, from + kx);
    }
  }
  weight += weight_offset;
  for (uint kx = 0; kx < KW; kx++) {
    T lanes[WIDTH];
    PASTE2(vstore, WIDTH)(sum[kx], 0, lanes);
    // The vector before stores the channels that both have.
    for (uint i = vector * WIDTH - c; i < WIDTH; i++) {
      STORE_FROM(W, C, weight, (c + i) * p.weight_c + ky * p.weight_y + kx * p.weight_x, lanes[i]);
    }
  }
}
