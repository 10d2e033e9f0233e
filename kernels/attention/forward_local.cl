// Attention for GPUs: a work-group takes BQ queries of a head and walks along its keys, BK at a time, with
// the maximum and the sum of each query's row kept up to date (online softmax).
//
// With SPLIT the keys are split among work-groups, where there are few queries, and attention_combine of
// decode.cl combines what they leave.
#include "attention/local.clh"

#ifndef SPLIT
#define SPLIT 0
#endif

#define TILE_ROWS (BQ > BK ? BQ : BK)
#define PITCH_S (BK + 1)

/// Global size: splits * blocks of BQ queries * 256, batch * heads. Buffers: as attention_decode's.
/// per_item: keys of a split. scratch: 2 * TILE_ROWS * PITCH of C for tiles, BQ * PITCH_S for weights,
/// BQ * 16 for maxima.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_forward_local(
    global const char *query, global const char *key, global const char *value,
    global const char *mask, global char *out, global char *lse, global char *workspace,
    const Problem p, const T factor, const T keep_threshold, const T keep_scale,
    local T *scratch) {
  const uint item = get_local_id(0), x = item % 16, y = item / 16;
  // Blocks with the most keys first, for the sake of the balance.
  const uint blocks = get_num_groups(0) / p.splits, split = get_group_id(0) / blocks;
  const uint q0 = (blocks - 1 - (uint)get_group_id(0) % blocks) * BQ;
  const uint z = get_global_id(1), b = z / p.heads, h = z % p.heads, hk = h / p.group;
  const uint queries = min((uint)BQ, p.queries - q0);
  const uint all = p.causal ? min(p.keys, q0 + queries) : p.keys;
  const uint first = SPLIT ? split * p.per_item : 0;
  const uint keys = SPLIT ? min(all, first + p.per_item) : all;
  query = OPERAND(query, 0) + HEAD_AT(query, IN, b, h) + q0 * p.query.row * STORAGE_SIZE(IN);
  key = OPERAND(key, 1) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value, 2) + HEAD_AT(value, IN, b, hk);
  out = OPERAND(out, 4) + HEAD_AT(out, IN, b, h) + q0 * p.out.row * STORAGE_SIZE(IN);
  lse = OPERAND(lse, 5);
#if MASKED
  global const char *const head_mask = OPERAND(mask, 3) + HEAD_AT(mask, MASK, b, h);
#endif
  const ulong row = (ulong)z * p.queries + q0;
  local T *const left = scratch;
  local T *const right = left + TILE_ROWS * PITCH;
  local T *const weights = right + TILE_ROWS * PITCH;
  local T *const shared = weights + BQ * PITCH_S;

  T maximum[RQ], total[RQ], sums[RQ][CV][2];
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    maximum[i] = -INFINITY;
    total[i] = 0;
    _Pragma("unroll") for (uint c = 0; c < CV; c++) sums[i][c][0] = sums[i][c][1] = 0;
  }
  for (uint k0 = first; k0 < keys; k0 += BK) {
    const uint count = min((uint)BK, keys - k0);
    T s[RQ][RK];
    multiply_rows(query, p.query.row, p.query.column, queries,
                  key + k0 * p.key.row * STORAGE_SIZE(IN), p.key.row, p.key.column, count, p.depth,
                  left, right, item, s);
    MASK_SCORES(s, q0, k0);
    _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
      T largest = maximum[i];
      _Pragma("unroll") for (uint j = 0; j < RK; j++) {
        largest = s[i][j] > largest ? s[i][j] : largest;
      }
      shared[(y + 16 * i) * 16 + x] = largest;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
      T largest = maximum[i];
      for (uint n = 0; n < 16; n++) {
        const T other = shared[(y + 16 * i) * 16 + n];
        largest = other > largest ? other : largest;
      }
      const T base = FINITE(T, largest);
      const T shrink = EXP2(maximum[i] - base);
      maximum[i] = largest;
      total[i] *= shrink;
      _Pragma("unroll") for (uint c = 0; c < CV; c++) {
        sums[i][c][0] *= shrink;
        sums[i][c][1] *= shrink;
      }
      _Pragma("unroll") for (uint j = 0; j < RK; j++) {
        T weight = EXP2(s[i][j] - base);
        total[i] += weight;
#if DROPOUT
        weight *= keep_weight(p.seed, p.counter, row + y + 16 * i, k0 + x + 16 * j, keep_threshold,
                              keep_scale);
#endif
        weights[(y + 16 * i) * PITCH_S + x + 16 * j] = weight;
      }
    }
    _Pragma("unroll") for (uint c = 0; c < CV; c++) {
      barrier(CLK_LOCAL_MEM_FENCE);
      load_tile(right, value + k0 * p.value.row * STORAGE_SIZE(IN), p.value.row, p.value.column,
                count, BK, c * CHUNK, p.columns, item);
      barrier(CLK_LOCAL_MEM_FENCE);
      for (uint k = 0; k < count; k++) {
        const T v0 = right[k * PITCH + x], v1 = right[k * PITCH + x + 16];
        _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
          const T weight = weights[(y + 16 * i) * PITCH_S + k];
          sums[i][c][0] = fma(weight, v0, sums[i][c][0]);
          sums[i][c][1] = fma(weight, v1, sums[i][c][1]);
        }
      }
    }
  }

  // Each item summed its own keys.
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) shared[(y + 16 * i) * 16 + x] = total[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    const uint q = y + 16 * i;
    T sum = 0;
    for (uint n = 0; n < 16; n++) sum += shared[q * 16 + n];
    if (q >= queries) continue;
#if SPLIT
    global T *const state = (global T *)OPERAND(workspace, 6) +
                            ((row + q) * p.splits + split) * (2 + (p.columns + 3) / 4 * 4);
    if (x == 0) {
      state[0] = maximum[i];
      state[1] = sum;
    }
#else
    // A row that is masked whole is 0, as in CPU torch.
    const T shrink = sum == 0 ? (T)0 : (T)1 / sum;
    if (x == 0) ((global T *)lse)[row + q] = (maximum[i] + log2(sum)) * LN_2;
    global char *const to = out + q * p.out.row * STORAGE_SIZE(IN);
#endif
    _Pragma("unroll") for (uint n = 0; n < 2 * CV; n++) {
      const uint column = n * 16 + x;
      if (column < p.columns) {
#if SPLIT
        state[2 + column] = sums[i][n / 2][n % 2];
#else
        STORE_FROM(IN, C, to, column * p.out.column, sums[i][n / 2][n % 2] * shrink);
#endif
      }
    }
  }
}
