// The numbers of a matrix of 4-bit integers whose groups of columns have a scale and a zero each,
// on GPUs: gemm/scaled_rows.clh has how they lie, and their products. CPUs have both otherwise
// (int4_lanes.cl).
#include "quantize/int4.clh"

// In this order a value that is 0 is 0 exactly, which infinities tell from others.
#ifdef POINTS
#define VALUES(bits, pair) ((convert_float16(bits) - (float16)((pair).y)) * (float16)((pair).x))
#else
#define VALUES(bits, pair) \
  fma(convert_float16(bits) - (float16)(8.0f), (float16)((pair).x), (float16)((pair).y))
#endif

/// The numbers [rows, k] of rows of a matrix with n rows, for products that are worth it. The
/// operands begin at the first row. Global size: rows * k / 32 or more.
kernel void int4_expand(MATRIX, global char* out_base, const ulong out_offset, const uint rows,
                        const uint n, const uint k, const uint group) {
  const ulong item = get_global_id(0);
  const uint blocks = k / 32;
  const ulong row = item / blocks;
  if (row >= rows) return;
  const uint at = (uint)(item - row * blocks) * 32;
  const float2 pair = LOADV(PAIRS, 2, scales_base + scales_offset, (ulong)(at / group) * n + row);
  const uchar16 bits =
      vload16(0, (global const uchar*)(weights_base + weights_offset) + row * (k / 2) + at / 2);
  global char* out = OUT_AT(out_base + out_offset, row * k + at);
  STOREV_FROM(OUT, f32, 16, out, 0, VALUES(bits & (uchar16)(15), pair));
  STOREV_FROM(OUT, f32, 16, out, 1, VALUES(bits >> (uchar16)(4), pair));
}
