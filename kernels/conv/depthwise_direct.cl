// Depthwise convolutions and their gradients on GPUs: a work-item computes TY results below each
// other, so that what windows share is loaded once; neighbouring work-items take neighbouring
// columns, or, with LAST, neighbouring channels. The caches serve the rest: nothing is staged but,
// with LAST, the weight.
//
// The form is that of depthwise.clh, with a stride, a dilation and an upsampling per axis. An image
// has less than 2^31 bytes from first to last.
//
// Compile parameters: C, IN, OUT, W (the tags computed with, of the input, of the result and bias,
// of the weight), KH, KW (the window), SY, SX (strides), DY, DX (dilations), UY, UX (upsampling),
// TY (results of a work-item), LAST (1: channels are innermost), WIDTH (channels of a work-item, 1
// without LAST; above 1, tensors are aligned to as many elements), LC x LP (a work-group's vectors
// of channels, and places).
#ifndef C
#define C f32
#endif
#ifndef IN
#define IN f32
#endif
#ifndef OUT
#define OUT f32
#endif
#ifndef W
#define W f32
#endif
#ifndef KH
#define KH 3
#define KW 3
#define SY 1
#define SX 1
#define DY 1
#define DX 1
#define UY 1
#define UX 1
#endif
#ifndef TY
#define TY 4
#endif
#ifndef LAST
#define LAST 0
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef LC
#define LC 1
#define LP 256
#endif

#define ALIGNED_VECTORS 1
#include "include/dtype.clh"
#include "conv/depthwise_arguments.clh"
#include "conv/epilogue.clh"

typedef TYPE(C) T;
typedef TYPEV(C, WIDTH) V;
#define TAPS (KH * KW)
#define ITEMS (LC * LP)
#define CHANNELS (LC * WIDTH)  // of a work-group

/// Whether coordinate u of the upsampled input is an element of the input, which has `size`.
static inline bool is_element(int u, int up, uint size) {
  return u >= 0 && (up == 1 || u % up == 0) && u / up < (int)size;
}

// The work-item's first channel is at `LANE * WIDTH` of the group's, which begin at FIRST_CHANNEL;
// ROW is its place of LP, and BLOCK the group's number among those of the same channels.
#define LANE (get_local_id(0) % LC)
#define ROW (get_local_id(0) / LC)
#define CHANNEL_BLOCKS(p) (((p).channels + CHANNELS - 1) / CHANNELS)
#define FIRST_CHANNEL(p) ((uint)get_group_id(0) % CHANNEL_BLOCKS(p) * CHANNELS)
#define BLOCK(p) ((uint)get_group_id(0) / CHANNEL_BLOCKS(p))

// Unrolled, compilers keep all taps in registers, more than there are of large windows' vectors.
#if LAST && KH * KW > 9
#define UNROLL_ROWS _Pragma("unroll 1")
#else
#define UNROLL_ROWS _Pragma("unroll")
#endif

/// Global size: blocks of channels * places (n, y tile, x) in groups of LP; without LAST, places
/// (n, c, y tile, x).
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void depthwise_direct(
    global const char* in, const ulong in_offset, global const char* weight,
    const ulong weight_offset, global const char* bias, const ulong bias_offset, global char* out,
    const ulong out_offset, const DepthwiseArguments p EPILOGUE_PARAMETERS) {
  const uint tiles = (p.out_h + TY - 1) / TY;
#if LAST
  const uint place = BLOCK(p) * LP + ROW, x = place % p.out_w;
#else
  const uint place = get_global_id(0), x = place % p.out_w;
#endif
  uint rest = place / p.out_w;
  const uint y0 = rest % tiles * TY;
  rest /= tiles;
  weight += weight_offset;
#if LAST
  // Work-items of several places share the taps of their channels.
  local T taps[TAPS][CHANNELS] __attribute__((aligned(16)));
  const uint c0 = FIRST_CHANNEL(p), lane = LANE * WIDTH;
  for (uint e = get_local_id(0); e < TAPS * CHANNELS; e += ITEMS) {
    const uint k = e % TAPS, ky = k / KW, kx = k % KW, of = min(c0 + e / TAPS, p.channels - 1);
    taps[k][e / TAPS] = LOAD_AS(C, W, weight, of * p.weight_c + ky * p.weight_y + kx * p.weight_x);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint c = c0 + lane, n = rest;
  if (c >= p.channels || n >= p.images) return;
#define TAP(ky, kx) (*(local const V*)&taps[(ky) * KW + (kx)][lane])
#else
  const uint c = rest % p.channels, n = rest / p.channels;
  if (n >= p.images) return;
  T taps[KH][KW];
  _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
    _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) {
      taps[ky][kx] = LOAD_AS(C, W, weight, c * p.weight_c + ky * p.weight_y + kx * p.weight_x);
    }
  }
#define TAP(ky, kx) taps[ky][kx]
#endif
  in += in_offset + (n * p.in_n + c / p.multiplier * p.in_c) * STORAGE_SIZE(IN);
  const int top = (int)(y0 * SY) - p.pad_y, left = (int)(x * SX) - p.pad_x;
  const int in_y = (int)p.in_y, in_x = (int)p.in_x;
  // At (top, left), a row and a tap along it further on; upsampled, only elements' places are
  // meant.
  int line = top * in_y + left * in_x;
  bool column[KW];
  int across[KW];
  _Pragma("unroll") for (int kx = 0; kx < KW; kx++) {
    const int u = left + kx * DX;
    column[kx] = is_element(u, UX, p.in_w);
    across[kx] = UX == 1 && UY == 1 ? kx * DX * in_x : u / UX * in_x;
  }
  V sum[TY];
  const V addend =
      p.biased ? LOADV_AS(C, OUT, WIDTH, bias + bias_offset + c * STORAGE_SIZE(OUT), 0) : (V)(0);
  _Pragma("unroll") for (int i = 0; i < TY; i++) sum[i] = addend;
  UNROLL_ROWS for (int r = 0; r < (TY - 1) * SY + (KH - 1) * DY + 1; r++, line += in_y) {
    const bool row = is_element(top + r, UY, p.in_h);
    if (UX > 1 || UY > 1) line = (top + r) / UY * in_y;
    _Pragma("unroll") for (int kx = 0; kx < KW; kx++) {
      V value = (V)(0);
      if (row && column[kx]) {
        value = LOADV_AS(C, IN, WIDTH, in + (line + across[kx]) * STORAGE_SIZE(IN), 0);
      }
      _Pragma("unroll") for (int i = 0; i < TY; i++) {
        const int from = r - i * SY;
        if (from >= 0 && from % DY == 0 && from / DY < KH) {
          sum[i] = fma(value, TAP(from / DY, kx), sum[i]);
        }
      }
    }
  }
  out += out_offset + (n * p.out_n + c * p.out_c + x * p.out_x) * STORAGE_SIZE(OUT);
  _Pragma("unroll") for (uint i = 0; i < TY; i++) {
    if (y0 + i < p.out_h) {
#ifdef HAS_EPILOGUE
      _Pragma("unroll") for (uint e = 0; e < WIDTH; e++) {
        const ulong row =
            LAST ? ((ulong)n * p.out_h + y0 + i) * p.out_w + x : (ulong)n * p.channels + c;
        const ulong column = LAST ? c + e : (ulong)(y0 + i) * p.out_w + x;
        STORE_RESULT(row, column, out, 0, ((private const T*)(sum + i))[e]);
      }
#else
      STOREV_FROM(OUT, C, WIDTH, out + (y0 + i) * p.out_y * STORAGE_SIZE(OUT), 0, sum[i]);
#endif
    }
  }
}

// Sums of taps that are added up across a work-group at a time.
#define TOGETHER (8 / WIDTH)

/// The weight's gradient over a part of all places (n, y, x); `out` is the result's gradient.
/// `partial` is [part][KH * KW][channels] of C. Global size: blocks of channels * parts * ITEMS.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void depthwise_direct_weight(
    global const char* in, const ulong in_offset, global char* partial, const ulong partial_offset,
    global const char* out, const ulong out_offset, const DepthwiseArguments p) {
  local T shared[TOGETHER][LP][CHANNELS] __attribute__((aligned(16)));
  const uint lane = LANE * WIDTH, row = ROW, item = get_local_id(0);
  const uint c0 = FIRST_CHANNEL(p), c = c0 + lane, part = BLOCK(p);
  const uint all = p.images * p.out_h * p.out_w;
  const uint begin = part * p.part, end = c < p.channels ? min(begin + p.part, all) : begin;
  const int in_y = (int)p.in_y, in_x = (int)p.in_x;
  in += in_offset + c / p.multiplier * p.in_c * STORAGE_SIZE(IN);
  out += out_offset + c * p.out_c * STORAGE_SIZE(OUT);
  V sum[TAPS];
  _Pragma("unroll") for (uint k = 0; k < TAPS; k++) sum[k] = (V)(0);
  for (uint place = begin + row; place < end; place += LP) {
    const uint x = place % p.out_w, rest = place / p.out_w, y = rest % p.out_h, n = rest / p.out_h;
    const V gradient = LOADV_AS(
        C, OUT, WIDTH, out + (n * p.out_n + y * p.out_y + x * p.out_x) * STORAGE_SIZE(OUT), 0);
    const int top = (int)(y * SY) - p.pad_y, left = (int)(x * SX) - p.pad_x;
    global const char* const image = in + n * p.in_n * STORAGE_SIZE(IN);
    int line = top * in_y + left * in_x;
    _Pragma("unroll") for (int ky = 0; ky < KH; ky++, line += DY * in_y) {
      const bool inside = is_element(top + ky * DY, 1, p.in_h);
      _Pragma("unroll") for (int kx = 0; kx < KW; kx++) {
        if (inside && is_element(left + kx * DX, 1, p.in_w)) {
          const V value =
              LOADV_AS(C, IN, WIDTH, image + (line + kx * DX * in_x) * STORAGE_SIZE(IN), 0);
          sum[ky * KW + kx] = fma(value, gradient, sum[ky * KW + kx]);
        }
      }
    }
  }
  _Pragma("unroll") for (uint k0 = 0; k0 < TAPS; k0 += TOGETHER) {
    barrier(CLK_LOCAL_MEM_FENCE);
    _Pragma("unroll") for (uint k = 0; k < TOGETHER; k++) {
      if (k0 + k < TAPS) *(local V*)&shared[k][row][lane] = sum[k0 + k];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint count = min((uint)TOGETHER, TAPS - k0);
    for (uint step = LP / 2; step > 0; step /= 2) {
      for (uint e = item; e < count * step * CHANNELS; e += ITEMS) {
        const uint k = e / (step * CHANNELS), at = e / CHANNELS % step;
        shared[k][at][e % CHANNELS] += shared[k][at + step][e % CHANNELS];
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint e = item; e < count * CHANNELS; e += ITEMS) {
      const uint of = c0 + e % CHANNELS;
      if (of >= p.channels) continue;
      global T* const to = (global T*)(partial + partial_offset);
      to[((ulong)part * TAPS + k0 + e / CHANNELS) * p.channels + of] =
          shared[e / CHANNELS][0][e % CHANNELS];
    }
  }
}

/// Adds up the parts in order. Global size: channels, KH * KW.
kernel void depthwise_direct_finish(global const char* partial, const ulong partial_offset,
                                    global char* weight, const ulong weight_offset,
                                    const DepthwiseArguments p) {
  const uint c = get_global_id(0), k = get_global_id(1);
  if (c >= p.channels) return;
  global const T* from = (global const T*)(partial + partial_offset) + k * p.channels + c;
  const uint step = TAPS * p.channels;
  T sum = (T)(0);
  uint part = 0;
  for (; part + 8 <= p.parts; part += 8) {
    T next[8];  // in flight at once
    _Pragma("unroll") for (uint i = 0; i < 8; i++) next[i] = from[(ulong)(part + i) * step];
    _Pragma("unroll") for (uint i = 0; i < 8; i++) sum += next[i];
  }
  for (; part < p.parts; part++) sum += from[(ulong)part * step];
  STORE_FROM(W, C, weight + weight_offset,
             c * p.weight_c + k / KW * p.weight_y + k % KW * p.weight_x, sum);
}
