// The gradients of attention for GPUs, without atomics: one kernel walks along the keys for the gradient
// of query, another along the queries for those of key and value. Weights are computed again from the
// rows' logarithms.
#include "attention/local.clh"

#define TILE_ROWS (BQ > BK ? BQ : BK)
#define PITCH_S (BK + 1)

/// delta[row] = the product of a row of grad and of out, a work-item each. Buffers: as the others'.
kernel void attention_delta(global const char *query, global const char *key,
                            global const char *value, global const char *mask,
                            global const char *out, global const char *lse,
                            global const char *grad, global char *delta, global char *grad_query,
                            global char *grad_key, global char *grad_value, const Problem p,
                            const T factor, const T scale, const T keep_threshold,
                            const T keep_scale, local T4 *scratch) {
  const uint q = get_global_id(0), z = get_global_id(1), b = z / p.heads, h = z % p.heads;
  if (q >= p.queries) return;
  out = OPERAND(out, 4) + HEAD_AT(out, IN, b, h) + q * p.out.row * STORAGE_SIZE(IN);
  grad = OPERAND(grad, 6) + HEAD_AT(grad, IN, b, h) + q * p.grad.row * STORAGE_SIZE(IN);
  T sum = 0;
  for (uint c = 0; c < p.columns; c++) {
    sum = fma(LOAD_AS(C, IN, out, c * p.out.column), LOAD_AS(C, IN, grad, c * p.grad.column), sum);
  }
  ((global T *)OPERAND(delta, 7))[(ulong)z * p.queries + q] = sum;
}

/// Computes weights[q][k] (dropped ones 0, the others scaled) and slopes[q][k], the gradient of the
/// product of query and key, for the item's queries and keys.
#define WEIGHTS_AND_SLOPES()                                                                    \
  T weights[RQ][RK], slopes[RQ][RK];                                                            \
  multiply_rows(head_query, p.query.row, p.query.column, queries, keys_from, p.key.row,         \
                p.key.column, count, p.depth, left, right, item, weights);                      \
  MASK_SCORES(weights, q0, k0);                                                                 \
  multiply_rows(head_grad, p.grad.row, p.grad.column, queries, values_from, p.value.row,        \
                p.value.column, count, p.columns, left, right, item, slopes);                   \
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {                                             \
    const uint q = min(y + 16 * i, queries - 1);                                                \
    const T logarithm_ = ((global const T *)lse)[row + q];                                      \
    const T logarithm = logarithm_ == -INFINITY ? (T)INFINITY : logarithm_ * LOG2_E;            \
    const T product = ((global const T *)delta)[row + q];                                       \
    _Pragma("unroll") for (uint j = 0; j < RK; j++) {                                           \
      const T weight = EXP2(weights[i][j] - logarithm);                                         \
      const T keep = KEEP(row + q, k0 + x + 16 * j);                                            \
      slopes[i][j] = weight * (fma(slopes[i][j], keep, -product) * scale);                      \
      weights[i][j] = weight * keep;                                                            \
    }                                                                                           \
  }
#if DROPOUT
#define KEEP(row, k) keep_weight(p.seed, p.counter, row, k, keep_threshold, keep_scale)
#else
#define KEEP(row, k) ((T)1)
#endif

/// block[q][k] of local memory = the items' values.
#define SHARE(values)                                                  \
  barrier(CLK_LOCAL_MEM_FENCE);                                        \
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {                    \
    _Pragma("unroll") for (uint j = 0; j < RK; j++) {                  \
      block[(y + 16 * i) * PITCH_S + x + 16 * j] = values[i][j];       \
    }                                                                  \
  }

#define ARGUMENTS                                                                               \
  global const char *query, global const char *key, global const char *value,                  \
      global const char *mask, global const char *out, global const char *lse,                 \
      global const char *grad, global const char *delta, global char *grad_query,              \
      global char *grad_key, global char *grad_value, const Problem p, const T factor,         \
      const T scale, const T keep_threshold, const T keep_scale, local T4 *scratch

/// Global size: blocks of BQ queries * 256, batch * heads. Buffers: query, key, value, mask, out, lse,
/// grad (of out), delta, grad_query, grad_key, grad_value. scratch: 2 * TILE_ROWS * PITCH of C for
/// tiles, BQ * PITCH_S for a block of weights.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_query_gradient(ARGUMENTS) {
  const uint item = get_local_id(0), x = item % 16, y = item / 16;
  const uint q0 = (uint)(get_num_groups(0) - 1 - get_group_id(0)) * BQ;
  const uint z = get_global_id(1), b = z / p.heads, h = z % p.heads, hk = h / p.group;
  const uint queries = min((uint)BQ, p.queries - q0);
  const uint keys = p.causal ? min(p.keys, q0 + queries) : p.keys;
  global const char *const head_query =
      OPERAND(query, 0) + HEAD_AT(query, IN, b, h) + q0 * p.query.row * STORAGE_SIZE(IN);
  global const char *const head_grad =
      OPERAND(grad, 6) + HEAD_AT(grad, IN, b, h) + q0 * p.grad.row * STORAGE_SIZE(IN);
  key = OPERAND(key, 1) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value, 2) + HEAD_AT(value, IN, b, hk);
  lse = OPERAND(lse, 5);
  delta = OPERAND(delta, 7);
#if MASKED
  global const char *const head_mask = OPERAND(mask, 3) + HEAD_AT(mask, MASK, b, h);
#endif
  const ulong row = (ulong)z * p.queries + q0;
  local T *const left = (local T *)scratch;
  local T *const right = left + TILE_ROWS * PITCH;
  local T *const block = right + TILE_ROWS * PITCH;

  T sums[RQ][CD][2];
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    _Pragma("unroll") for (uint c = 0; c < CD; c++) sums[i][c][0] = sums[i][c][1] = 0;
  }
  for (uint k0 = 0; k0 < keys; k0 += BK) {
    const uint count = min((uint)BK, keys - k0);
    global const char *const keys_from = key + k0 * p.key.row * STORAGE_SIZE(IN);
    global const char *const values_from = value + k0 * p.value.row * STORAGE_SIZE(IN);
    WEIGHTS_AND_SLOPES();
    SHARE(slopes);
    _Pragma("unroll") for (uint c = 0; c < CD; c++) {
      barrier(CLK_LOCAL_MEM_FENCE);
      load_tile(right, keys_from, p.key.row, p.key.column, count, BK, c * CHUNK, p.depth, item);
      barrier(CLK_LOCAL_MEM_FENCE);
      for (uint k = 0; k < count; k++) {
        const T k_0 = right[k * PITCH + x], k_1 = right[k * PITCH + x + 16];
        _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
          const T slope = block[(y + 16 * i) * PITCH_S + k];
          sums[i][c][0] = fma(slope, k_0, sums[i][c][0]);
          sums[i][c][1] = fma(slope, k_1, sums[i][c][1]);
        }
      }
    }
  }
  grad_query =
      OPERAND(grad_query, 8) + HEAD_AT(grad_query, IN, b, h) + q0 * p.grad_query.row * STORAGE_SIZE(IN);
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    const uint q = y + 16 * i;
    _Pragma("unroll") for (uint n = 0; n < 2 * CD; n++) {
      const uint column = n * 16 + x;
      if (q < queries && column < p.depth) {
        STORE_FROM(IN, C, grad_query, q * p.grad_query.row + column * p.grad_query.column,
                   sums[i][n / 2][n % 2]);
      }
    }
  }
}

/// total[j][.] += sum over the block's queries of block[q][key] * row q of a matrix. Item (x, y) has
/// keys y + 16 * j here.
#define ADD_TRANSPOSED(total, CHUNKS, matrix, strides, width)                              \
  _Pragma("unroll") for (uint c = 0; c < CHUNKS; c++) {                                    \
    barrier(CLK_LOCAL_MEM_FENCE);                                                          \
    load_tile(left, matrix, strides.row, strides.column, queries, BQ, c * CHUNK, width, item); \
    barrier(CLK_LOCAL_MEM_FENCE);                                                          \
    for (uint q = 0; q < queries; q++) {                                                   \
      const T v0 = left[q * PITCH + x], v1 = left[q * PITCH + x + 16];                     \
      _Pragma("unroll") for (uint j = 0; j < RK; j++) {                                    \
        const T weight = block[q * PITCH_S + y + 16 * j];                                  \
        total[j][c][0] = fma(weight, v0, total[j][c][0]);                                  \
        total[j][c][1] = fma(weight, v1, total[j][c][1]);                                  \
      }                                                                                    \
    }                                                                                      \
  }

/// Global size: blocks of BK keys * 256, batch * heads of key. Otherwise as attention_query_gradient.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_key_gradient(ARGUMENTS) {
  const uint item = get_local_id(0), x = item % 16, y = item / 16;
  const uint k0 = get_group_id(0) * BK, z = get_global_id(1), key_heads = p.heads / p.group;
  const uint b = z / key_heads, hk = z % key_heads;
  const uint count = min((uint)BK, p.keys - k0);
  key = OPERAND(key, 1) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value, 2) + HEAD_AT(value, IN, b, hk);
  global const char *const keys_from = key + k0 * p.key.row * STORAGE_SIZE(IN);
  global const char *const values_from = value + k0 * p.value.row * STORAGE_SIZE(IN);
  lse = OPERAND(lse, 5);
  delta = OPERAND(delta, 7);
  local T *const left = (local T *)scratch;
  local T *const right = left + TILE_ROWS * PITCH;
  local T *const block = right + TILE_ROWS * PITCH;

  T key_sums[RK][CD][2], value_sums[RK][CV][2];
  _Pragma("unroll") for (uint j = 0; j < RK; j++) {
    _Pragma("unroll") for (uint c = 0; c < CD; c++) key_sums[j][c][0] = key_sums[j][c][1] = 0;
    _Pragma("unroll") for (uint c = 0; c < CV; c++) value_sums[j][c][0] = value_sums[j][c][1] = 0;
  }
  for (uint h = hk * p.group; h < (hk + 1) * p.group; h++) {
#if MASKED
    global const char *const head_mask = OPERAND(mask, 3) + HEAD_AT(mask, MASK, b, h);
#endif
    for (uint q0 = p.causal ? k0 / BQ * BQ : 0; q0 < p.queries; q0 += BQ) {
      const uint queries = min((uint)BQ, p.queries - q0);
      global const char *const head_query =
          OPERAND(query, 0) + HEAD_AT(query, IN, b, h) + q0 * p.query.row * STORAGE_SIZE(IN);
      global const char *const head_grad =
          OPERAND(grad, 6) + HEAD_AT(grad, IN, b, h) + q0 * p.grad.row * STORAGE_SIZE(IN);
      const ulong row = ((ulong)b * p.heads + h) * p.queries + q0;
      WEIGHTS_AND_SLOPES();
      SHARE(weights);
      ADD_TRANSPOSED(value_sums, CV, head_grad, p.grad, p.columns);
      SHARE(slopes);
      ADD_TRANSPOSED(key_sums, CD, head_query, p.query, p.depth);
    }
  }
  grad_key = OPERAND(grad_key, 9) + HEAD_AT(grad_key, IN, b, hk);
  grad_value = OPERAND(grad_value, 10) + HEAD_AT(grad_value, IN, b, hk);
  _Pragma("unroll") for (uint j = 0; j < RK; j++) {
    const uint k = y + 16 * j;
    _Pragma("unroll") for (uint n = 0; n < 2 * CD; n++) {
      const uint column = n * 16 + x;
      if (k < count && column < p.depth) {
        STORE_FROM(IN, C, grad_key, (k0 + k) * p.grad_key.row + column * p.grad_key.column,
                   key_sums[j][n / 2][n % 2]);
      }
    }
    _Pragma("unroll") for (uint n = 0; n < 2 * CV; n++) {
      const uint column = n * 16 + x;
      if (k < count && column < p.columns) {
        STORE_FROM(IN, C, grad_value, (k0 + k) * p.grad_value.row + column * p.grad_value.column,
                   value_sums[j][n / 2][n % 2]);
      }
    }
  }
}
