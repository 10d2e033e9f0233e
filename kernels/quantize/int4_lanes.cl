// Products with a matrix of 4-bit integers whose groups of columns have a scale and a zero each, on
// CPUs: a vector's lanes are 16 rows of the matrix. So a group's scales are a vector, nothing is
// added up across lanes, and an activation is one number for all of them.
//
// 16 rows' columns 2 j and 2 j + 1 are 16 bytes, in their low and their high halves. These follow
// each other by j, then by rows. Compile parameters: ROWS (of the matrix, per work-item: a multiple
// of 16), NQ (rows of activations, rounded up), and those of int4.clh.
#ifndef ROWS
#define ROWS 64
#endif
#include "quantize/int4.clh"
#define SETS (ROWS / 16)
#define MOST_GROUP 256

/// 16 rows' scales, and what bits of 0 become: bits * scale + low.
#define DECLARE_SCALES(scale, low, scales, row)                             \
  const float16 first_##scale = LOADV(PAIRS, 16, PAIRS_AT(scales, row), 0); \
  const float16 last_##scale = LOADV(PAIRS, 16, PAIRS_AT(scales, row), 1);  \
  const float16 scale = (float16)(first_##scale.even, last_##scale.even);   \
  const float16 low = LOW(float16, scale, (float16)(first_##scale.odd, last_##scale.odd))

/// A group of x for both(pair) * values[2 pair + 1] + even(pair) * values[2 pair], where `even` is
/// the low half of a byte and `both` all of it: 16 odd + even, which saves a shift for each.
/// Returns the sum of the group.
static inline float prepare(global const char* x, uint group, private float* values) {
  float16 sum = (float16)(0);
  for (uint i = 0; i < group / 16; i++) {
    float16 part = LOADV(TAG, 16, x, i);
    sum += part;
    part.odd *= 0.0625f;
    part.even -= part.odd;
    vstore16(part, i, values);
  }
  return sum16(sum);
}

/// A group's part of 16 results, number by number: where one is infinite, its product's sign is
/// that of the weight.
static inline float16 exact_part(global const char* x, global const uchar* weights, uint group,
                                 float16 scale, float16 low) {
  float16 part = (float16)(0);
  for (uint i = 0; i < group; i++) {
    const int16 bits = convert_int16(vload16(i / 2, weights)) >> (int)(4 * (i % 2)) & 15;
    part = fma(fma(convert_float16(bits), scale, low), (float16)(LOAD(TAG, x, i)), part);
  }
  return part;
}

/// out[q, n] = bias[n] + sum over k of x[q, k] * weight[n, k], for q < rows. Global size: n / ROWS,
/// rounded up. n is a multiple of 16, k and group of 32.
kernel ITEM_BY_ITEM void int4_product_lanes(OPERANDS) {
  // The last work-item reaches back to rows of others, and stores what they do.
  const uint row0 = n < ROWS ? 0 : min((uint)get_global_id(0) * ROWS, n - ROWS);
  const uint last_row = n - 16;
  global const char *x = x_base + x_offset, *scales = scales_base + scales_offset;
  global const uchar* weights[SETS];
  float16 total[SETS][NQ];
#pragma unroll
  for (uint s = 0; s < SETS; s++) {
    const uint row = min(row0 + 16 * s, last_row);
    weights[s] = (global const uchar*)(weights_base + weights_offset) + (ulong)row * (k / 2);
#pragma unroll
    for (uint q = 0; q < NQ; q++) total[s][q] = (float16)(0);
  }
  for (uint start = 0; start < k; start += group) {
    float values[NQ][MOST_GROUP], sums[NQ];
    bool finite = true;
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      // Rows of x past the end repeat the last one, so that the loops have no conditions.
      sums[q] = prepare(AT(x, (ulong)min(q, rows - 1) * k + start), group, values[q]);
      finite &= isfinite(sums[q]);
    }
    global const char* of_group = PAIRS_AT(scales, (ulong)(start / group) * n);
    if (!finite) {
#pragma unroll
      for (uint s = 0; s < SETS; s++) {
        DECLARE_SCALES(scale, low, of_group, min(row0 + 16 * s, last_row));
        for (uint q = 0; q < min((uint)NQ, rows); q++) {
          total[s][q] += exact_part(AT(x, (ulong)q * k + start), weights[s] + start / 2 * 16, group,
                                    scale, low);
        }
      }
      continue;
    }
    float16 part[SETS][NQ];
#pragma unroll
    for (uint s = 0; s < SETS; s++) {
#pragma unroll
      for (uint q = 0; q < NQ; q++) part[s][q] = (float16)(0);
    }
    for (uint pair = 0; pair < group / 2; pair++) {
#pragma unroll
      for (uint s = 0; s < SETS; s++) {
        const int16 bits = convert_int16(vload16(start / 2 + pair, weights[s]));
        const float16 both = convert_float16(bits), even = convert_float16(bits & 15);
#pragma unroll
        for (uint q = 0; q < NQ; q++) {
          part[s][q] = fma(even, (float16)(values[q][2 * pair]), part[s][q]);
          part[s][q] = fma(both, (float16)(values[q][2 * pair + 1]), part[s][q]);
        }
      }
    }
#pragma unroll
    for (uint s = 0; s < SETS; s++) {
      DECLARE_SCALES(scale, low, of_group, min(row0 + 16 * s, last_row));
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        total[s][q] = fma(part[s][q], scale, fma(low, (float16)(sums[q]), total[s][q]));
      }
    }
  }
#pragma unroll
  for (uint s = 0; s < SETS; s++) {
    const uint row = min(row0 + 16 * s, last_row);
    const float16 bias = BIAS16_AT(row);
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      if (q < rows) {
        global char* out = AT(out_base + out_offset, (ulong)q * n + row);
        STOREV_FROM(TAG, f32, 16, out, 0, total[s][q] + bias);
      }
    }
  }
}

#define WIDTH 16
#define T float16
#include "include/transpose.clh"

/// The numbers [.., k] of rows of a matrix with n rows, for products that are worth it: 16 rows and
/// columns for a work-item. The operands begin at the first row. Global size: k / 16, rows / 16.
kernel ITEM_BY_ITEM void int4_expand_lanes(MATRIX, global char* out_base, const ulong out_offset,
                                           const uint n, const uint k, const uint group) {
  const uint column = get_global_id(0) * 16, row = get_global_id(1) * 16;
  global const uchar* weights =
      (global const uchar*)(weights_base + weights_offset) + (ulong)row * (k / 2);
  global const char* scales = scales_base + scales_offset;
  DECLARE_SCALES(scale, low, PAIRS_AT(scales, (ulong)(column / group) * n), row);
  float16 square[16];
#pragma unroll
  for (uint pair = 0; pair < 8; pair++) {
    const int16 bits = convert_int16(vload16(column / 2 + pair, weights));
    square[2 * pair] = fma(convert_float16(bits & 15), scale, low);
    square[2 * pair + 1] = fma(convert_float16(bits >> 4), scale, low);
  }
  transpose(square);
  global char* out = OUT_AT(out_base + out_offset, (ulong)row * k + column);
#pragma unroll
  for (uint r = 0; r < 16; r++) {
    STOREV_FROM(OUT, f32, 16, OUT_AT(out, (ulong)r * k), 0, square[r]);
  }
}
