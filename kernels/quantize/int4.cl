// Products with a matrix of 4-bit integers whose groups of columns have a scale and a zero each.
//
// A row's 32 columns are 16 bytes: byte j holds column j in its low and column j + 16 in its high
// half. A value is (bits - 8) * scale + zero; scales: [columns / group][rows][2]. Compile
// parameters: TAG (of activations, scales and results), ROWS (of the weights, per work-item), NQ
// (rows of activations, rounded up).
#include "include/dtype.clh"

#ifndef TAG
#define TAG f32
#endif
#ifndef ROWS
#define ROWS 4
#endif
#ifndef NQ
#define NQ 1
#endif

#define AT(p, element) ((p) + (ulong)(element) * STORAGE_SIZE(TAG))

static inline float sum16(float16 v) {
  const float8 a = v.lo + v.hi;
  const float4 b = a.lo + a.hi;
  const float2 c = b.lo + b.hi;
  return c.x + c.y;
}

/// out[q, n] = sum over k of x[q, k] * weight[n, k], for q < rows. Global size: n / ROWS or more;
/// n is a multiple of ROWS, k and group of 32.
kernel void int4_product(global const char* x_base, const ulong x_offset,
                         global const char* weights_base, const ulong weights_offset,
                         global const char* scales_base, const ulong scales_offset,
                         global char* out_base, const ulong out_offset, const uint rows,
                         const uint n, const uint k, const uint group) {
  const uint row0 = get_global_id(0) * ROWS;
  if (row0 >= n) return;
  global const char *x = x_base + x_offset, *scales = scales_base + scales_offset;
  global const uchar* weights =
      (global const uchar*)(weights_base + weights_offset) + (ulong)row0 * (k / 2);
  global char* out = out_base + out_offset;
  float16 total[ROWS][NQ];
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
#pragma unroll
    for (uint q = 0; q < NQ; q++) total[r][q] = (float16)(0);
  }
  for (uint start = 0; start < k; start += group) {
    float16 dot[ROWS][NQ], plain[NQ];
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      plain[q] = (float16)(0);
#pragma unroll
      for (uint r = 0; r < ROWS; r++) dot[r][q] = (float16)(0);
    }
    for (uint at = start; at < start + group; at += 32) {
      float16 low[NQ], high[NQ];
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        // Rows past the end repeat the last one, so that the loop has no conditions.
        global const char* values = AT(x, (ulong)min(q, rows - 1) * k + at);
        low[q] = LOADV(TAG, 16, values, 0);
        high[q] = LOADV(TAG, 16, values, 1);
        plain[q] += low[q] + high[q];
      }
#pragma unroll
      for (uint r = 0; r < ROWS; r++) {
        const uchar16 bits = vload16(0, weights + (ulong)r * (k / 2) + at / 2);
        const float16 a = convert_float16(bits & (uchar16)(15)) - 8;
        const float16 b = convert_float16(bits >> (uchar16)(4)) - 8;
#pragma unroll
        for (uint q = 0; q < NQ; q++) dot[r][q] = fma(b, high[q], fma(a, low[q], dot[r][q]));
      }
    }
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
      const float2 scale = LOADV(TAG, 2, scales, (ulong)(start / group) * n + row0 + r);
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        total[r][q] = fma(dot[r][q], (float16)(scale.x), total[r][q]);
        total[r][q] = fma(plain[q], (float16)(scale.y), total[r][q]);
      }
    }
  }
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      if (q < rows) STORE(TAG, out, (ulong)q * n + row0 + r, sum16(total[r][q]));
    }
  }
}

/// The weights as floats [n, k], for products that are worth it. Global size: n * k / 32 or more.
kernel void int4_expand(global const char* weights_base, const ulong weights_offset,
                        global const char* scales_base, const ulong scales_offset,
                        global char* out_base, const ulong out_offset, const uint n, const uint k,
                        const uint group) {
  const ulong item = get_global_id(0);
  const uint blocks = k / 32;
  const ulong row = item / blocks;
  if (row >= n) return;
  const uint at = (uint)(item - row * blocks) * 32;
  global const char* scales = scales_base + scales_offset;
  const float2 scale = LOADV(TAG, 2, scales, (ulong)(at / group) * n + row);
  const uchar16 bits =
      vload16(0, (global const uchar*)(weights_base + weights_offset) + row * (k / 2) + at / 2);
  global float* out = (global float*)(out_base + out_offset) + row * k + at;
  const float16 a = convert_float16(bits & (uchar16)(15)) - 8;
  const float16 b = convert_float16(bits >> (uchar16)(4)) - 8;
  vstore16(fma(a, (float16)(scale.x), (float16)(scale.y)), 0, out);
  vstore16(fma(b, (float16)(scale.x), (float16)(scale.y)), 1, out);
}
