// Batch norm where the channels of a position are next to each other, for GPUs: coalesced, and
// summed by work-groups.
//
// A work-group has VECTORS x ROWS work-items: neighbours take neighbouring vectors of WIDTH
// channels, and ROWS positions at once. It takes a part of the positions. For the sums its
// work-items add up theirs in local memory, and channels.cl adds those of the parts: the order is
// the same in every run. The channels are whole vectors. ROWS is a power of two.
#ifndef VECTORS
#define VECTORS 8
#endif
#ifndef ROWS
#define ROWS 32
#endif
#include "norm/channels.clh"

#define KERNEL kernel __attribute__((reqd_work_group_size(VECTORS, ROWS, 1))) void

#define UNROLLED(k) _Pragma("unroll") for (uint k = 0; k < kLastLoaded; k++)
// Positions of a work-item summed one after the other before they go to the total: bounds the
// rounding error.
#define BLOCK 64

#define FIND_PLACE                                                             \
  const uint lane = get_local_id(0), row = get_local_id(1);                    \
  const uint vector = get_global_id(0), part = get_group_id(1);                \
  const uint first = part * args.part, n = min(args.part, args.count - first); \
  const bool has_channels = vector < args.channels / WIDTH;
// How many positions of a part row `r` of the work-group takes.
#define OWN(r) ((r) < n ? (n - (r) - 1) / ROWS + 1 : 0)
#define START(p) \
  ((p) + ((ulong)(first + row) * args.channels + (ulong)vector * WIDTH) * STORAGE_SIZE(IN))
#define STEP ((ulong)ROWS * args.channels * STORAGE_SIZE(IN))

/// The sum over the rows of a work-group, for all of them.
static inline VECTOR sum_rows(VECTOR value, uint lane, uint row, local VECTOR* shared) {
  local VECTOR* own = shared + row * VECTORS + lane;
  *own = value;
  for (uint n = ROWS / 2; n > 0; n /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row < n) *own += own[n * VECTORS];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const VECTOR sum = shared[lane];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}

// In one pass over the deviations from the mean of the part's first positions, of which each
// work-item takes kLastLoaded: shifted sums.
KERNEL channels_last_moments(global const char* x, const ulong x_offset, global char* partial,
                             const ulong partial_offset, const ChannelArguments args) {
  local VECTOR shared[ROWS * VECTORS];
  FIND_PLACE
  partial += partial_offset;
  const uint own = has_channels ? OWN(row) : 0;
  x += x_offset;
  VECTOR common = has_channels ? LOADV_OF(IN, x, vector) : ZERO;
  common = ORIGIN_AT(VECTOR, common);
  x = START(x);
  VECTOR sampled = ZERO, one = ZERO;
  for (uint i = 0; i < min(own, (uint)kLastLoaded); i++) sampled += LOADV_OF(IN, x + i * STEP, 0);
  if (own > 0) one = LOADV_OF(IN, x, 0);
  const VECTOR sampled_mean =
      sum_rows(sampled, lane, row, shared) / min(n, (uint)(ROWS * kLastLoaded));
  const VECTOR first_one = sum_rows(row == 0 ? one : ZERO, lane, row, shared);
  const VECTOR origin = ORIGIN(VECTOR, sampled_mean, first_one);
  VECTOR rest = ZERO, squares = ZERO;
  for (uint begin = 0; begin < own; begin += BLOCK) {
    const uint end = min(begin + BLOCK, own);
    VECTOR block_rest = ZERO, block_squares = ZERO;
    uint i = begin;
    for (; i + kLastLoaded <= end; i += kLastLoaded) {
      VECTOR d[kLastLoaded];
      UNROLLED(k) d[k] = LOADV_OF(IN, x + (i + k) * STEP, 0) - origin;
      UNROLLED(k) {
        block_rest += d[k];
        block_squares = fma(d[k], d[k], block_squares);
      }
    }
    for (; i < end; i++) {
      const VECTOR d = LOADV_OF(IN, x + i * STEP, 0) - origin;
      block_rest += d;
      block_squares = fma(d, d, block_squares);
    }
    rest += block_rest;
    squares += block_squares;
  }
  rest = sum_rows(rest, lane, row, shared);
  squares = sum_rows(squares, lane, row, shared);
  if (row > 0 || !has_channels) return;
  const VECTOR shift = rest / n;
  VECTOR m2 = squares - rest * shift;
  SQUARED_DEVIATIONS(VECTOR, m2, rest, squares);
  STOREV_TO(ACC, CHANNEL_ARRAY(partial, 2 * part), vector, (origin - common) + shift);
  STOREV_TO(ACC, CHANNEL_ARRAY(partial, 2 * part + 1), vector, m2);
  if (part == 0) STOREV_TO(ACC, ORIGINS(partial), vector, common);
}

KERNEL channels_last_gradient_sums(global const char* grad, const ulong grad_offset,
                                   global const char* x, const ulong x_offset,
                                   global const char* means, const ulong means_offset,
                                   global char* partial, const ulong partial_offset,
                                   const ChannelArguments args) {
  local VECTOR shared[ROWS * VECTORS];
  FIND_PLACE
  partial += partial_offset;
  const uint own = has_channels ? OWN(row) : 0;
  VECTOR sum = ZERO, product = ZERO, mean = ZERO;
  if (has_channels) mean = LOADV_OF(STAT, means + means_offset, vector);
  grad = START(grad + grad_offset);
  x = START(x + x_offset);
  for (uint begin = 0; begin < own; begin += BLOCK) {
    const uint end = min(begin + BLOCK, own);
    VECTOR block_sum = ZERO, block_product = ZERO;
    uint i = begin;
    for (; i + kLastLoaded <= end; i += kLastLoaded) {
      VECTOR g[kLastLoaded], v[kLastLoaded];
      UNROLLED(k) {
        g[k] = LOADV_OF(IN, grad + (i + k) * STEP, 0);
        v[k] = LOADV_OF(IN, x + (i + k) * STEP, 0);
      }
      UNROLLED(k) {
        block_sum += g[k];
        block_product = fma(g[k], v[k] - mean, block_product);
      }
    }
    for (; i < end; i++) {
      const VECTOR g = LOADV_OF(IN, grad + i * STEP, 0);
      block_sum += g;
      block_product = fma(g, LOADV_OF(IN, x + i * STEP, 0) - mean, block_product);
    }
    sum += block_sum;
    product += block_product;
  }
  sum = sum_rows(sum, lane, row, shared);
  product = sum_rows(product, lane, row, shared);
  if (row > 0 || !has_channels) return;
  STOREV_TO(ACC, CHANNEL_ARRAY(partial, 2 * part), vector, sum);
  STOREV_TO(ACC, CHANNEL_ARRAY(partial, 2 * part + 1), vector, product);
}

// Below, a work-item holds its channels' coefficients in registers for all of its positions.
#define COEFFICIENT(k) LOADV_OF(ACC, CHANNEL_ARRAY(coefficients, k), vector)

KERNEL channels_last_normalize(global const char* x, const ulong x_offset, global char* y,
                               const ulong y_offset, global const char* coefficients,
                               const ulong coefficients_offset, const ChannelArguments args) {
  FIND_PLACE
  if (!has_channels) return;
  coefficients += coefficients_offset;
  const VECTOR mean = COEFFICIENT(0), scale = COEFFICIENT(1), shift = COEFFICIENT(2);
  const uint own = OWN(row);
  x = START(x + x_offset);
  y = START(y + y_offset);
  uint i = 0;
  for (; i + kLastLoaded <= own; i += kLastLoaded) {
    VECTOR v[kLastLoaded];
    UNROLLED(k) v[k] = LOADV_OF(IN, x + (i + k) * STEP, 0);
    UNROLLED(k) STOREV_TO(IN, y + (i + k) * STEP, 0, NORMALIZED(v[k]));
  }
  for (; i < own; i++) STOREV_TO(IN, y + i * STEP, 0, NORMALIZED(LOADV_OF(IN, x + i * STEP, 0)));
}

KERNEL channels_last_gradient(global const char* grad, const ulong grad_offset,
                              global const char* x, const ulong x_offset, global char* out,
                              const ulong out_offset, global const char* coefficients,
                              const ulong coefficients_offset, const ChannelArguments args) {
  FIND_PLACE
  if (!has_channels) return;
  coefficients += coefficients_offset;
  const VECTOR mean = COEFFICIENT(0), scale = COEFFICIENT(1);
  const VECTOR constant_ = COEFFICIENT(2), slope = COEFFICIENT(3);
  const uint own = OWN(row);
  grad = START(grad + grad_offset);
  x = START(x + x_offset);
  out = START(out + out_offset);
  uint i = 0;
  for (; i + kLastLoaded <= own; i += kLastLoaded) {
    VECTOR g[kLastLoaded], v[kLastLoaded];
    UNROLLED(k) {
      g[k] = LOADV_OF(IN, grad + (i + k) * STEP, 0);
      v[k] = LOADV_OF(IN, x + (i + k) * STEP, 0);
    }
    UNROLLED(k) STOREV_TO(IN, out + (i + k) * STEP, 0, INPUT_GRADIENT(g[k], v[k]));
  }
  for (; i < own; i++) {
    const VECTOR g = LOADV_OF(IN, grad + i * STEP, 0), v = LOADV_OF(IN, x + i * STEP, 0);
    STOREV_TO(IN, out + i * STEP, 0, INPUT_GRADIENT(g, v));
  }
}
