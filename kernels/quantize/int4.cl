// Products with a matrix of 4-bit integers whose groups of columns have a scale and a zero each, on
// GPUs. CPUs have them otherwise (int4_lanes.cl).
//
// A row's 32 columns are 16 bytes: byte j holds column j in its low and column j + 16 in its high
// half. Compile parameters: NQ (rows of activations, rounded up), SHARE (work-items that share a
// row), and those of int4.clh.
#include "quantize/int4.clh"

/// The scale and what bits of 0 become: bits * scale.x + scale.y.
static inline float2 scale_of(global const char* scales, ulong at) {
  const float2 scale = LOADV(PAIRS, 2, scales, at);
  return (float2)(scale.x, LOW(float, scale.x, scale.y));
}

/// out[q, n] = bias[n] + sum over k of x[q, k] * weight[n, k], for q < rows. SHARE neighbouring
/// work-items of 64 read a row of the weights side by side. x and the weights are aligned to
/// vectors. Global size: n * SHARE, rounded up.
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void int4_product_group(OPERANDS) {
  local float sums[NQ][64];
  const uint item = get_local_id(0), share = item % SHARE;
  const uint row = get_group_id(0) * (64 / SHARE) + item / SHARE, read = min(row, n - 1);
  global const char *x = x_base + x_offset, *scales = scales_base + scales_offset;
  global const uchar* weights =
      (global const uchar*)(weights_base + weights_offset) + (ulong)read * (k / 2);
  float total[NQ];
#pragma unroll
  for (uint q = 0; q < NQ; q++) total[q] = 0;
  for (uint at = share * 32; at < k; at += SHARE * 32) {
    const float2 scale = scale_of(scales, (ulong)(at / group) * n + read);
    const uint4 bits = *(global const uint4*)(weights + at / 2);
    float dot[NQ];
#pragma unroll
    for (uint q = 0; q < NQ; q++) dot[q] = 0;
    // 8 bytes at a time, whose columns are two vectors of 8.
#pragma unroll
    for (uint part = 0; part < 2; part++) {
      float low[8], high[8];
#pragma unroll
      for (uint j = 0; j < 8; j++) {
        const uint word = ((private const uint*)&bits)[2 * part + j / 4] >> (j % 4 * 8);
        low[j] = fma((float)(word & 15), scale.x, scale.y);
        high[j] = fma((float)(word >> 4 & 15), scale.x, scale.y);
      }
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        global const char* values = AT(x, (ulong)min(q, rows - 1) * k + at);
        const float8 first = LOADV(TAG, 8, values, part), last = LOADV(TAG, 8, values, part + 2);
#pragma unroll
        for (uint j = 0; j < 8; j++) {
          dot[q] = fma(low[j], ((private const float*)&first)[j], dot[q]);
          dot[q] = fma(high[j], ((private const float*)&last)[j], dot[q]);
        }
      }
    }
#pragma unroll
    for (uint q = 0; q < NQ; q++) total[q] += dot[q];
  }
  SUM_OF_SHARES(sums, total, NQ, item, share, SHARE);
  if (share > 0 || row >= n) return;
  STORE_COLUMN(TAG, out_base + out_offset, row, sums[q][item] + BIAS_AT(row));
}

/// The numbers [rows, k] of rows of a matrix with n rows, for products that are worth it. The
/// operands begin at the first row. Global size: rows * k / 32 or more.
kernel void int4_expand(MATRIX, global char* out_base, const ulong out_offset, const uint rows,
                        const uint n, const uint k, const uint group) {
  const ulong item = get_global_id(0);
  const uint blocks = k / 32;
  const ulong row = item / blocks;
  if (row >= rows) return;
  const uint at = (uint)(item - row * blocks) * 32;
  const float2 scale = scale_of(scales_base + scales_offset, (ulong)(at / group) * n + row);
  const uchar16 bits =
      vload16(0, (global const uchar*)(weights_base + weights_offset) + row * (k / 2) + at / 2);
  global char* out = OUT_AT(out_base + out_offset, row * k + at);
  const float16 first = convert_float16(bits & (uchar16)(15));
  const float16 last = convert_float16(bits >> (uchar16)(4));
  STOREV_FROM(OUT, f32, 16, out, 0, fma(first, (float16)(scale.x), (float16)(scale.y)));
  STOREV_FROM(OUT, f32, 16, out, 1, fma(last, (float16)(scale.x), (float16)(scale.y)));
}
