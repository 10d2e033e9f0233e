// Products of few rows with the transpose of a matrix in a format of GGUF files, which is read
// once.
//
// out[q, n] = bias[n] + sum over k of x[q, k] * matrix[n, k], summed in float.
//
// Compile parameters: FORMAT_<name> (gguf.clh), E (tag of x, bias and out), ROWS (of the matrix,
// per work-item, on CPUs), NQ (rows of x, rounded up), SHARE (work-items that share a row, on
// GPUs), BIAS.
#include "quantize/gguf.clh"
#include "quantize/sums.clh"

#ifdef BIAS
#define BIAS_AT(row) LOAD_AS(f32, E, bias_base + bias_offset, row)
#else
#define BIAS_AT(row) 0.0f
#endif

#define OPERANDS                                                                        \
  global const char *x_base, const ulong x_offset, global const char *matrix_base,      \
      const ulong matrix_offset, global const char *bias_base, const ulong bias_offset, \
      global char *out_base, const ulong out_offset, const uint rows, const uint n, const uint k

#ifdef OCL_DEVICE_CPU
/// Global size: n / ROWS or more. n is any number, the last work-item repeats rows.
kernel ITEM_BY_ITEM void gguf_product(OPERANDS) {
  if (get_global_id(0) * ROWS >= n) return;
  const uint row0 = n < ROWS ? 0 : min((uint)get_global_id(0) * ROWS, n - ROWS);
  const ulong row_bytes = (ulong)(k / BLOCK) * BYTES;
  global const char* x = x_base + x_offset;
  global const char* block[ROWS];
  float16 total[ROWS][NQ];
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
    block[r] = matrix_base + matrix_offset + min(row0 + r, n - 1) * row_bytes;
#pragma unroll
    for (uint q = 0; q < NQ; q++) total[r][q] = 0;
  }
  for (uint at = 0; at < k; at += BLOCK) {
#pragma unroll
    for (uint first = 0; first < BLOCK / 16; first += PARTS) {
      Scales scales[ROWS];
#pragma unroll
      for (uint r = 0; r < ROWS; r++) scales[r] = scales_of(block[r], first);
#pragma unroll
      for (uint part = 0; part < PARTS; part++) {
        // Rows of x past the end repeat the last one, so that the loop has no conditions.
        float16 values[NQ];
#pragma unroll
        for (uint q = 0; q < NQ; q++) {
          global const char* from = AT(x, (ulong)min(q, rows - 1) * k + at);
          values[q] = LOADV_AS(f32, E, 16, from, first + part);
        }
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
          const float16 weights = unpack(block[r], scales[r], first, part);
#pragma unroll
          for (uint q = 0; q < NQ; q++) total[r][q] = fma(weights, values[q], total[r][q]);
        }
      }
    }
#pragma unroll
    for (uint r = 0; r < ROWS; r++) block[r] += BYTES;
  }
#pragma unroll
  for (uint r = 0; r < ROWS; r++) {
    const uint row = min(row0 + r, n - 1);
    const float bias = BIAS_AT(row);
    STORE_COLUMN(E, out_base + out_offset, row, sum16(total[r][q]) + bias);
  }
}
#else
/// SHARE neighbouring work-items of 64 read a row of the matrix side by side. x is aligned to
/// vectors. Global size: n * SHARE, rounded up.
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void gguf_product_group(OPERANDS) {
  local float sums[NQ][64];
  const uint item = get_local_id(0), share = item % SHARE;
  const uint row = get_group_id(0) * (64 / SHARE) + item / SHARE;
  global const char* x = x_base + x_offset;
  global const char* matrix =
      matrix_base + matrix_offset + min(row, n - 1) * ((ulong)(k / BLOCK) * BYTES);
  float total[NQ];
#pragma unroll
  for (uint q = 0; q < NQ; q++) total[q] = 0;
  for (uint step = share; step < k / STEP; step += SHARE) {
    const uint first = step % (BLOCK / STEP) * PARTS;
    global const char* block = matrix + (ulong)(step / (BLOCK / STEP)) * BYTES;
    const Scales scales = scales_of(block, first);
#pragma unroll
    for (uint part = 0; part < PARTS; part++) {
      const float16 weights = unpack(block, scales, first, part);
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        global const char* from = AT(x, (ulong)min(q, rows - 1) * k + step * STEP);
        total[q] += sum16(weights * LOADV_AS(f32, E, 16, from, part));
      }
    }
  }
  SUM_OF_SHARES(sums, total, NQ, item, share, SHARE);
  if (share > 0 || row >= n) return;
  STORE_COLUMN(E, out_base + out_offset, row, sums[q][item] + BIAS_AT(row));
}
#endif
