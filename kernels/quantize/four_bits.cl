// Products of few rows with a matrix of 4-bit numbers that blocks of 32 and more elements have a
// scale for (four_bits.clh). A matrix's row is a multiple of 32 elements, so that no 32 of them
// have two scales.
//
// out[q, n] = bias[n] + sum over k of x[q, k] * number[n, k] * scale, summed in float.
//
// Compile parameters: E (tag of activations, bias and results), ROWS (of the matrix, per
// work-item), NQ (rows of activations, rounded up), SHARE (work-items that share a row, on GPUs),
// BIAS, TABLE and NESTED (four_bits.clh).
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "quantize/four_bits.clh"
#include "quantize/sums.clh"

#ifndef E
#define E f32
#endif

#define AT(p, element) ((p) + (ulong)(element) * STORAGE_SIZE(E))
#ifdef BIAS
#define BIAS_AT(row) LOAD_AS(f32, E, bias_base + bias_offset, row)
#else
#define BIAS_AT(row) 0.0f
#endif

#ifdef OCL_DEVICE_CPU
/// Global size: n / ROWS or more; n is any number, the last work-item repeats rows.
kernel ITEM_BY_ITEM void product4(global const char* x_base, const ulong x_offset,
                                  global const char* weights_base, const ulong weights_offset,
                                  SCALES, global const char* bias_base, const ulong bias_offset,
                                  global char* out_base, const ulong out_offset, const uint rows,
                                  const uint n, const uint k, const uint size_shift) {
  if (get_global_id(0) * ROWS >= n) return;
  const uint row0 = n < ROWS ? 0 : min((uint)get_global_id(0) * ROWS, n - ROWS);
  global const char* x = x_base + x_offset;
  global const uchar* weights = (global const uchar*)(weights_base + weights_offset);
  global char* out = out_base + out_offset;
  DECLARE_NUMBERS;
  float16 total[ROWS][NQ];
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
#pragma unroll
    for (uint q = 0; q < NQ; q++) total[r][q] = 0;
  }
  for (uint at = 0; at < k; at += 32) {
    // Elements of even and odd places, as the halves of the bytes have them. Rows of x past the
    // end repeat the last one, so that the loop has no conditions.
    float16 even[NQ], odd[NQ];
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      global const char* values = AT(x, (ulong)min(q, rows - 1) * k + at);
      const float16 a = LOADV_AS(f32, E, 16, values, 0), b = LOADV_AS(f32, E, 16, values, 1);
      even[q] = (float16)(a.even, b.even);
      odd[q] = (float16)(a.odd, b.odd);
    }
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
      const ulong element = (ulong)min(row0 + r, n - 1) * k + at;
      const float scale = SCALE(element >> size_shift);
      const uint16 bits = convert_uint16(vload16(0, weights + element / 2));
      const float16 upper = NUMBERS_OF(UPPER(bits)) * scale;
      const float16 lower = NUMBERS_OF(LOWER(bits)) * scale;
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        total[r][q] = fma(lower, odd[q], fma(upper, even[q], total[r][q]));
      }
    }
  }
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
    const uint row = min(row0 + r, n - 1);
    const float bias = BIAS_AT(row);
    STORE_COLUMN(E, out, row, sum16(total[r][q]) + bias);
  }
}
#else
/// SHARE neighbouring work-items of 64 read a row of the matrix side by side. x and the matrix are
/// aligned to vectors. Global size: n * SHARE, rounded up.
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void product4_group(
    global const char* x_base, const ulong x_offset, global const char* weights_base,
    const ulong weights_offset, SCALES, global const char* bias_base, const ulong bias_offset,
    global char* out_base, const ulong out_offset, const uint rows, const uint n, const uint k,
    const uint size_shift) {
  local float sums[NQ][64];
  const uint item = get_local_id(0), share = item % SHARE;
  const uint row = get_group_id(0) * (64 / SHARE) + item / SHARE, read = min(row, n - 1);
  global const char* x = x_base + x_offset;
  global const uchar* weights = (global const uchar*)(weights_base + weights_offset);
  DECLARE_NUMBERS;
  float total[NQ];
#pragma unroll
  for (uint q = 0; q < NQ; q++) total[q] = 0;
  for (uint at = share * 32; at < k; at += SHARE * 32) {
    const ulong element = (ulong)read * k + at;
    const float scale = SCALE(element >> size_shift);
    const uint4 bits = *(global const uint4*)(weights + element / 2);
    float dot[NQ];
#pragma unroll
    for (uint q = 0; q < NQ; q++) dot[q] = 0;
    // 4 bytes at a time, which are a vector of 8 elements.
#pragma unroll
    for (uint part = 0; part < 4; part++) {
      const uint word = ((private const uint*)&bits)[part];
      float weight[8];
#pragma unroll
      for (uint j = 0; j < 4; j++) {
        const uint byte = word >> (8 * j) & 255;
        weight[2 * j] = numbers[UPPER(byte)];
        weight[2 * j + 1] = numbers[LOWER(byte)];
      }
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        const float8 values = LOADV_AS(f32, E, 8, AT(x, (ulong)min(q, rows - 1) * k + at), part);
#pragma unroll
        for (uint j = 0; j < 8; j++) {
          dot[q] = fma(weight[j], ((private const float*)&values)[j], dot[q]);
        }
      }
    }
#pragma unroll
    for (uint q = 0; q < NQ; q++) total[q] = fma(dot[q], scale, total[q]);
  }
  SUM_OF_SHARES(sums, total, NQ, item, share, SHARE);
  if (share > 0 || row >= n) return;
  STORE_COLUMN(E, out_base + out_offset, row, sums[q][item] + BIAS_AT(row));
}
#endif
