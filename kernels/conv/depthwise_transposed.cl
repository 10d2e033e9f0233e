// Depthwise convolutions of planes with lines shorter than half a vector, on CPUs: blocks of WIDTH
// planes are transposed in registers, so that vectors run along channels.
//
// Compile parameters: depthwise.clh's, with UP 1. Planes are contiguous, of WIDTH elements or more;
// WIDTH is at most the number of channels, since the last vector overlaps the one before.
#include "include/item_by_item.clh"
#include "conv/depthwise.clh"

#if WIDTH > 1
#define T V  // the element of the squares that transpose.clh transposes
#include "include/transpose.clh"
#undef T

#define VECTOR(p, i) PASTE2(vload, WIDTH)(i, p)

/// Brings WIDTH planes, `step` elements apart, into the block `transposed`, lines `pitch` vectors
/// apart.
#define TRANSPOSE_PLANES(tag, transposed, pitch, planes, step, height, width)                 \
  for (uint i_ = 0; i_ < (height) * (width);) {                                               \
    i_ = min(i_, (height) * (width) - WIDTH);                                                 \
    V square[WIDTH];                                                                          \
    _Pragma("unroll") for (uint e = 0; e < WIDTH; e++) {                                      \
      square[e] =                                                                             \
          LOADV_AS(C, tag, WIDTH, (planes) + ((long)e * (step) + i_) * STORAGE_SIZE(tag), 0); \
    }                                                                                         \
    transpose(square);                                                                        \
    uint at = i_ / (width) * (pitch) + i_ % (width), x = i_ % (width);                        \
    _Pragma("unroll") for (uint e = 0; e < WIDTH; e++) {                                      \
      PASTE2(vstore, WIDTH)(square[e], at, transposed);                                       \
      at++;                                                                                   \
      if (++x == (width)) {                                                                   \
        x = 0;                                                                                \
        at += (pitch) - (width);                                                              \
      }                                                                                       \
    }                                                                                         \
    i_ += WIDTH;                                                                              \
  }

/// Zeros where the windows see no input.
static inline void clear(local T* staged, uint vectors) {
  for (uint i = 0; i < vectors; i++) PASTE2(vstore, WIDTH)((V)(0), i, staged);
}

/// `rows` and `columns` are the staged input's, padded; `staged_out` holds the result's planes.
/// Global size: vectors of channels, images / block.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void depthwise_transposed(
    global const char* in, const ulong in_offset, global const char* weight,
    const ulong weight_offset, global const char* bias, const ulong bias_offset, global char* out,
    const ulong out_offset, local T* staged, local T* staged_out,
    const DepthwiseArguments p EPILOGUE_PARAMETERS) {
  const uint c = min((uint)get_global_id(0) * WIDTH, p.channels - WIDTH);
  const uint first = get_global_id(1) * p.block, last = min(first + p.block, p.images);
  const uint count = p.out_h * p.out_w;
  V w[KH][KW];
  for (uint ky = 0; ky < KH; ky++) {
    for (uint kx = 0; kx < KW; kx++) {
      T lanes[WIDTH];
      for (uint i = 0; i < WIDTH; i++) {
        lanes[i] = LOAD_AS(C, W, weight + weight_offset,
                           (c + i) * p.weight_c + ky * p.weight_y + kx * p.weight_x);
      }
      w[ky][kx] = VECTOR(lanes, 0);
    }
  }
  V addend = (V)(0);
  if (p.biased) addend = LOADV_AS(C, OUT, WIDTH, bias + bias_offset + c * STORAGE_SIZE(OUT), 0);
  clear(staged, p.rows * p.columns);
  for (uint n = first; n < last; n++) {
    TRANSPOSE_PLANES(IN, staged + (p.pad_y * p.columns + p.pad_x) * WIDTH, p.columns,
                     in + in_offset + (n * p.in_n + c * p.in_c) * STORAGE_SIZE(IN), p.in_c, p.in_h,
                     p.in_w)
    for (uint y = 0, to = 0; y < p.out_h; y++) {
      local const T* line = staged + y * STRIDE * p.columns * WIDTH;
      for (uint x = 0; x < p.out_w; x++, to++, line += STRIDE * WIDTH) {
        V sum = addend;
        _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
          _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) {
            sum = MAD(VECTOR(line, ky * p.columns + kx), w[ky][kx], sum);
          }
        }
        PASTE2(vstore, WIDTH)(sum, to, staged_out);
      }
    }
    global char* planes = out + out_offset + (n * p.out_n + c * p.out_c) * STORAGE_SIZE(OUT);
    for (uint i = 0; i < count; i += WIDTH) {
      const uint from = min(i, count - WIDTH);
      V square[WIDTH];
      _Pragma("unroll") for (uint e = 0; e < WIDTH; e++) square[e] = VECTOR(staged_out, from + e);
      transpose(square);
      _Pragma("unroll") for (uint e = 0; e < WIDTH; e++) {
        STORE_RESULTS(WIDTH, (ulong)n * p.channels + c + e, from,
                      planes + ((long)e * p.out_c + from) * STORAGE_SIZE(OUT), square[e]);
      }
    }
  }
}

/// The weight's gradient: `out` is the result's, which `staged_out` holds. Global size: vectors of
/// channels.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void depthwise_transposed_weight(
    global const char* in, const ulong in_offset, global char* weight, const ulong weight_offset,
    global const char* out, const ulong out_offset, local T* staged, local T* staged_out,
    const DepthwiseArguments p) {
  const uint vector = get_global_id(0), c = min(vector * WIDTH, p.channels - WIDTH);
  V total[KH][KW];
  _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
    _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) total[ky][kx] = (V)(0);
  }
  clear(staged, p.rows * p.columns);
  for (uint n = 0; n < p.images; n++) {
    TRANSPOSE_PLANES(IN, staged + (p.pad_y * p.columns + p.pad_x) * WIDTH, p.columns,
                     in + in_offset + (n * p.in_n + c * p.in_c) * STORAGE_SIZE(IN), p.in_c, p.in_h,
                     p.in_w)
    TRANSPOSE_PLANES(OUT, staged_out, p.out_w,
                     out + out_offset + (n * p.out_n + c * p.out_c) * STORAGE_SIZE(OUT), p.out_c,
                     p.out_h, p.out_w)
    V sum[KH][KW];
    _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
      _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) sum[ky][kx] = (V)(0);
    }
    for (uint y = 0, from = 0; y < p.out_h; y++) {
      local const T* line = staged + y * STRIDE * p.columns * WIDTH;
      for (uint x = 0; x < p.out_w; x++, from++, line += STRIDE * WIDTH) {
        const V gradient = VECTOR(staged_out, from);
        _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
          _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) {
            sum[ky][kx] = MAD(VECTOR(line, ky * p.columns + kx), gradient, sum[ky][kx]);
          }
        }
      }
    }
    _Pragma("unroll") for (uint ky = 0; ky < KH; ky++) {
      _Pragma("unroll") for (uint kx = 0; kx < KW; kx++) total[ky][kx] += sum[ky][kx];
    }
  }
  for (uint ky = 0; ky < KH; ky++) {
    for (uint kx = 0; kx < KW; kx++) {
      T lanes[WIDTH];
      PASTE2(vstore, WIDTH)(total[ky][kx], 0, lanes);
      // The vector before stores the channels that both have.
      for (uint i = vector * WIDTH - c; i < WIDTH; i++) {
        STORE_FROM(W, C, weight + weight_offset,
                   (c + i) * p.weight_c + ky * p.weight_y + kx * p.weight_x, lanes[i]);
      }
    }
  }
}
#endif
