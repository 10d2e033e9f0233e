// The copy of a tensor that the other convolution kernels read: in the dtype computed with, zeros
// around every image. A work-item copies `rows_per_item` rows.
//
// Compile parameters: IN, C (the tags of source and copy), WIDTH (lanes), SHARED_ROWS (1: the
// work-items of the first dimension share each row, as GPUs like it), ONLY (1 or 2: the first or
// second kernel alone; 0: both).
#ifndef C
#define C f32
#endif
#ifndef IN
#define IN f32
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef SHARED_ROWS
#define SHARED_ROWS 0
#endif
#ifndef ONLY
#define ONLY 0
#endif
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "conv/pad_arguments.clh"

typedef TYPE(C) T;
typedef TYPEV(C, WIDTH) V;
#if WIDTH > 1
#define T V  // the element of the squares that transpose.clh transposes
#include "include/transpose.clh"
#undef T
#endif

#if ONLY == 0 || ONLY == 1
kernel void conv_pad(global const char* in, const ulong in_offset, global char* copy,
                     const ulong copy_offset, const PadArguments p) {
  const uint first = get_global_id(1) * p.rows_per_item;
  const uint last = min(first + p.rows_per_item, p.rows);
  uint digits[4], rest = first;
  for (int d = 3; d >= 0; d--) {
    digits[d] = rest % p.size[d];
    rest /= p.size[d];
  }
  for (uint row = first; row < last; row++) {
    long at = 0;
    bool inside = true;
    _Pragma("unroll") for (int d = 3; d >= 0; d--) {
      const int i = (int)digits[d] - p.before[d];
      inside = inside && i >= 0 && i < (int)p.source[d];
      at += i * p.stride[d];
    }
    for (int d = 3; d >= 0 && ++digits[d] == p.size[d]; d--) digits[d] = 0;
    const uint length = p.size[4];
    global T* to = (global T*)(copy + copy_offset) + (ulong)row * length;
    const uint begin = inside ? p.before[4] : length;
    const uint end = inside ? begin + p.source[4] : length;
    global const char* from = in + in_offset + at * STORAGE_SIZE(IN);
#if SHARED_ROWS
    for (uint i = get_global_id(0); i < length; i += get_global_size(0)) {
      to[i] = i >= begin && i < end ? LOAD_AS(C, IN, from, (i - begin) * p.stride[4]) : (T)(0);
    }
#else
    uint i = 0;
    if (WIDTH > 1) {
      for (; i + WIDTH <= begin; i += WIDTH) STOREV(C, WIDTH, (global char*)(to + i), 0, (V)(0));
    }
    for (; i < begin; i++) to[i] = (T)(0);
    if (p.stride[4] == 1 && WIDTH > 1) {
      for (; i + WIDTH <= end; i += WIDTH) {
        const V x = LOADV_AS(C, IN, WIDTH, from + (i - begin) * STORAGE_SIZE(IN), 0);
        STOREV(C, WIDTH, (global char*)(to + i), 0, x);
      }
    }
    for (; i < end; i++) to[i] = LOAD_AS(C, IN, from, (i - begin) * p.stride[4]);
    for (; i < length; i++) to[i] = (T)(0);
#endif
  }
}
#endif

#if ONLY == 0 || ONLY == 2
#if WIDTH > 1
/// Pads images whose channels lie side by side, for a copy whose positions do: in is
/// [size[0]][size[2]] [size[3]][size[4]][size[1]]. A work-item transposes `rows_per_item` lines of
/// positions; lines and channels are no fewer than WIDTH.
kernel ITEM_BY_ITEM void conv_pad_transposed(global const char* in, const ulong in_offset,
                                             global char* copy, const ulong copy_offset,
                                             const PadArguments p) {
  const uint first = get_global_id(0) * p.rows_per_item;
  const uint last = min(first + p.rows_per_item, p.rows);
  const uint length = p.size[4], channels = p.size[1];
  const ulong plane = (ulong)p.size[2] * p.size[3] * length;
  for (uint line = first; line < last; line++) {
    const uint h = line % p.size[3], d = line / p.size[3] % p.size[2];
    const uint image = line / p.size[3] / p.size[2];
    const int from_h = (int)h - p.before[3], from_d = (int)d - p.before[2];
    const bool inside =
        from_h >= 0 && from_h < (int)p.source[3] && from_d >= 0 && from_d < (int)p.source[2];
    global const char* from =
        in + in_offset +
        (image * p.stride[0] + from_d * p.stride[2] + from_h * p.stride[3]) * STORAGE_SIZE(IN);
    global T* to = (global T*)(copy + copy_offset) + (ulong)image * channels * plane +
                   ((ulong)d * p.size[3] + h) * length;
    const uint begin = inside ? p.before[4] : length, end = inside ? begin + p.source[4] : length;
    for (uint c = 0; c < channels; c++) {
      for (uint i = 0; i < begin; i++) to[c * plane + i] = (T)(0);
      for (uint i = end; i < length; i++) to[c * plane + i] = (T)(0);
    }
    if (!inside) continue;
    // Positions next to the last whole square are transposed twice.
    for (uint x = 0; x < p.source[4]; x += WIDTH) {
      const uint start = min(x, p.source[4] - WIDTH);
      for (uint c = 0; c < channels; c += WIDTH) {
        const uint channel = min(c, channels - WIDTH);
        V square[WIDTH];
        for (uint i = 0; i < WIDTH; i++) {
          square[i] = LOADV_AS(C, IN, WIDTH,
                               from + ((start + i) * p.stride[4] + channel) * STORAGE_SIZE(IN), 0);
        }
        transpose(square);
        for (uint i = 0; i < WIDTH; i++) {
          STOREV(C, WIDTH, (global char*)(to + (channel + i) * plane + begin + start), 0,
                 square[i]);
        }
      }
    }
  }
}
#endif
#endif
