// Operands of single precision as bfloat16, for units that take no others: an element as one
// number of 8 bits, or as a sum of two, whose three largest terms are then a longer k.
//
// Compile parameters: TERMS (1 or 3), SECOND (the operand is b), BY_LINE (neighbouring
// work-items read along the lines), WIDE (an operand has more than 2^32 elements).
#include "include/dtype.clh"

#ifndef TERMS
#define TERMS 3
#endif
#ifndef SECOND
#define SECOND 0
#endif
#ifndef BY_LINE
#define BY_LINE 0
#endif
#ifndef WIDE
#define WIDE 0
#endif
#if WIDE
#define COUNTER ulong
#else
#define COUNTER uint  // GPUs divide numbers of 64 bits slowly
#endif

/// The nearest number of 8 bits; what would round to infinity is cut off.
static inline float rounded(float x) {
  const float near = decode_bf16(encode_bf16(x));
  return isinf(near) && !isinf(x) ? as_float(as_uint(x) & 0xffff0000u) : near;
}

/// out[z][line] = high, high, low of a's elements, or high, low, high of b's, and zeros up to
/// `pitch`; each times `length`. An infinity stands in the first alone: its other terms would
/// be with zeros. in[z * batch_stride + line * line_stride + i * stride], in elements.
/// Global size: length * lines, batch, or more.
kernel void gemm_bfloat16_parts(global const char* in, ulong in_offset, global char* out,
                                ulong out_offset, const ulong stride, const ulong line_stride,
                                const ulong batch_stride, const uint length, const uint lines,
                                const ulong pitch) {
  const ulong z = get_global_id(1);
  const COUNTER at = get_global_id(0), row = BY_LINE ? lines : length;
  const ulong line = BY_LINE ? at % row : at / row, i = BY_LINE ? at / row : at % row;
  if (line >= lines || i >= length) return;
  const float x = LOAD(f32, in + in_offset, z * batch_stride + line * line_stride + i * stride);
  const ulong first = (z * lines + line) * pitch;
  out += out_offset;
#if TERMS == 1
  STORE_FROM(bf16, f32, out, first + i, x);
#else
  const float high = rounded(x), again = isinf(high) ? 0.0f : high;
  const float low = isinf(high) ? 0.0f : x - high;
  STORE_FROM(bf16, f32, out, first + i, high);
  STORE_FROM(bf16, f32, out, first + length + i, SECOND ? low : again);
  STORE_FROM(bf16, f32, out, first + 2 * (ulong)length + i, SECOND ? again : low);
#endif
  if (i > 0) return;
  for (ulong rest = (ulong)TERMS * length; rest < pitch; rest++) {
    STORE_FROM(bf16, f32, out, first + rest, 0.0f);
  }
}
