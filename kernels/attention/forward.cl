// Attention for devices whose work-items run one after the other on wide SIMD units (CPUs).
//
// A work-item takes NQ queries of a head and walks along its keys, BLOCK at a time, with the maximum and
// the sum of each query's row kept up to date (online softmax). Scores have queries in their lanes:
// maxima and sums need nothing across lanes, and rows of key are read as they lie. The products with
// value have columns in their lanes, so that rows of value, too, are read as they lie.
#include "attention/lanes.clh"

/// Global size: blocks of NQ queries, batch * heads. Buffers: query, key, value, mask, out, lse (of
/// C: the logarithm of each row's sum). factor: scale * log2(e). scratch: DEPTH * NV vectors of query,
/// BLOCK * NV of scores, NQ * VV of out, NV of factors, then with STAGED BLOCK * (DV + VV).
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void attention_forward(
    global const char *query, global const char *key, global const char *value,
    global const char *mask, global char *out, global char *lse, const Problem p, const T factor,
    const T keep_threshold, const T keep_scale, local V *scratch) {
  // Blocks with the most keys first, for the sake of the balance.
  const uint q0 = (uint)(get_global_size(0) - 1 - get_global_id(0)) * NQ;
  const uint z = get_global_id(1), b = z / p.heads, h = z % p.heads, hk = h / p.group;
  const uint queries = min((uint)NQ, p.queries - q0);
  const uint keys = p.causal ? min(p.keys, q0 + queries) : p.keys;
  query = OPERAND(query, 0) + HEAD_AT(query, IN, b, h) + q0 * p.query.row * STORAGE_SIZE(IN);
  key = OPERAND(key, 1) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value, 2) + HEAD_AT(value, IN, b, hk);
  out = OPERAND(out, 4) + HEAD_AT(out, IN, b, h) + q0 * p.out.row * STORAGE_SIZE(IN);
  lse = OPERAND(lse, 5);
  const ulong row = (ulong)z * p.queries + q0;
#if MASKED
  mask = OPERAND(mask, 3) + HEAD_AT(mask, MASK, b, h);
#endif

  local V *const packed = scratch;
  local V *const scores = packed + p.depth * NV;
  local V *const sums = scores + BLOCK * NV;
  local V *const factors = sums + NQ * VV;
#if STAGED
  local V *const staged_key = factors + NV;
  local V *const staged_value = staged_key + BLOCK * DV;
#endif
  pack_lanes(query, p.query.row, p.query.column, queries, p.depth, factor, packed);
  const V lanes = lane_numbers();
  V maximum[NV], total[NV];
  _Pragma("unroll") for (uint v = 0; v < NV; v++) {
    maximum[v] = (V)(-INFINITY);
    total[v] = (V)(0);
  }
  for (uint i = 0; i < NQ * VV; i++) sums[i] = (V)(0);

  for (uint k0 = 0; k0 < keys; k0 += BLOCK) {
    const uint count = min((uint)BLOCK, keys - k0);
#if STAGED
    stage_rows(key + k0 * p.key.row * STORAGE_SIZE(IN), p.key.row, p.key.column, count, p.depth, DV,
               staged_key);
    stage_rows(value + k0 * p.value.row * STORAGE_SIZE(IN), p.value.row, p.value.column, count,
               p.columns, VV, staged_value);
    local const T *const key_rows = (local const T *)staged_key;
    local const T *const value_rows = (local const T *)staged_value;
    const ulong key_stride = DV * WIDTH, value_stride = VV * WIDTH;
#else
    global const T *const key_rows = (global const T *)key + k0 * p.key.row;
    global const T *const value_rows = (global const T *)value + k0 * p.value.row;
    const ulong key_stride = p.key.row, value_stride = p.value.row;
#endif
    const bool diagonal = p.causal && k0 + count > q0 + 1;

    V largest[NV];
    _Pragma("unroll") for (uint v = 0; v < NV; v++) largest[v] = maximum[v];
    for (uint k = 0; k < count; k += R) {
      V tile[R * NV];
      score_tile(key_rows + k * key_stride, key_stride, count - 1 - k, packed, p.depth, tile);
#if MASKED
      for (uint i = 0; i < min((uint)R, count - k); i++) {
        const ulong at = (k0 + k + i) * p.mask.column;
        for (uint v = 0; v < NV; v++) {
          tile[i * NV + v] += lane_mask(mask, p.mask.row, at, q0 + v * WIDTH, p.queries);
        }
      }
#endif
      if (diagonal) {
        for (uint i = 0; i < R; i++) {
          const V behind = (V)((T)((int)(k0 + k + i) - (int)q0));
          for (uint v = 0; v < NV; v++) {
            tile[i * NV + v] =
                behind > lanes + (V)(v * WIDTH) ? (V)(-INFINITY) : tile[i * NV + v];
          }
        }
      }
      for (uint i = count - k; i < R; i++) {
        for (uint v = 0; v < NV; v++) tile[i * NV + v] = (V)(-INFINITY);
      }
      _Pragma("unroll") for (uint i = 0; i < R; i++) {
        _Pragma("unroll") for (uint v = 0; v < NV; v++) {
          const V x = tile[i * NV + v];
          scores[(k + i) * NV + v] = x;
          largest[v] = x > largest[v] ? x : largest[v];
        }
      }
    }

    V base[NV];
    _Pragma("unroll") for (uint v = 0; v < NV; v++) {
      base[v] = FINITE(V, largest[v]);
      factors[v] = EXP2_LANES(maximum[v] - base[v]);
      total[v] *= factors[v];
      maximum[v] = largest[v];
    }
    for (uint k = 0; k < count; k++) {
      _Pragma("unroll") for (uint v = 0; v < NV; v++) {
        const V x = EXP2_LANES(scores[k * NV + v] - base[v]);
        total[v] += x;
        scores[k * NV + v] = x;
      }
    }
#if DROPOUT
    for (uint k = 0; k < count; k += 4) {
      for (uint v = 0; v < NV; v++) {
        V keep[4];
        keep_lanes(p.seed, p.counter, row + v * WIDTH, k0 + k, keep_threshold, keep_scale, keep);
        for (uint i = 0; i < 4; i++) scores[(k + i) * NV + v] *= keep[i];
      }
    }
#endif

    local const T *const weights = (local const T *)scores;
    local const T *const shrink = (local const T *)factors;
    for (uint q = 0; q < NQ; q += RO) {
      for (uint c = 0; c < VV; c += NO) {
        V sum[RO][NO];
        _Pragma("unroll") for (uint i = 0; i < RO; i++) {
          _Pragma("unroll") for (uint j = 0; j < NO; j++) {
            sum[i][j] = sums[(q + i) * VV + c + j] * (V)(shrink[q + i]);
          }
        }
        PRODUCT_TILE(NO, weights + q, NQ, 1, value_rows + c * WIDTH, value_stride, count, sum);
        _Pragma("unroll") for (uint i = 0; i < RO; i++) {
          _Pragma("unroll") for (uint j = 0; j < NO; j++) sums[(q + i) * VV + c + j] = sum[i][j];
        }
      }
    }
  }

  // A row that is masked whole is 0, as in CPU torch.
  for (uint v = 0; v < NV; v++) {
    Lanes logarithm;
    logarithm.vector = (maximum[v] + log2(total[v])) * (V)(LN_2);
    factors[v] = total[v] == (V)(0) ? (V)(0) : (V)(1) / total[v];
    for (uint e = 0; e < WIDTH && v * WIDTH + e < queries; e++) {
      ((global T *)lse)[row + v * WIDTH + e] = logarithm.element[e];
    }
  }
  for (uint q = 0; q < queries; q++) {
    const T shrink = ((local const T *)factors)[q];
    global char *const to = out + q * p.out.row * STORAGE_SIZE(IN);
    for (uint v = 0; v < VV; v++) {
      Lanes x;
      x.vector = sums[q * VV + v] * (V)(shrink);
      const uint first = v * WIDTH;
      if (p.out.column == 1 && first + WIDTH <= p.columns) {
        STOREV_FROM(IN, C, WIDTH, to + first * STORAGE_SIZE(IN), 0, x.vector);
      } else {
        for (uint e = 0; e < WIDTH && first + e < p.columns; e++) {
          STORE_FROM(IN, C, to, (first + e) * p.out.column, x.element[e]);
        }
      }
    }
  }
}
