// Flash attention for devices whose work-items run one after the other on wide SIMD units (CPUs).
//
// A work-item takes NQ queries of a head and walks along its keys, BLOCK at a time, with the
// maximum and the sum of each query's row kept up to date (online softmax). Scores have queries in
// their lanes: maxima and sums need nothing across lanes, and rows of key are read as they lie. The
// products with value have columns in their lanes, so that rows of value, too, are read as they
// lie.
#include "include/item_by_item.clh"
#include "attention/lanes.clh"

/// scores[key][query] of `count` keys from k0 on, scaled and masked, and what they raise the rows'
/// maxima to.
static ALWAYS_INLINE void score_keys(local V* scores, private V* largest, ROWS const T* rows,
                                     ulong stride, local const V* packed, uint q0, uint k0,
                                     uint count, const V lanes, const Arguments p MASK_PARAMETERS) {
  for (uint k = 0; k < count; k += R) {
    V tile[R * NV];
    score_tile(rows + k * stride, stride, count - 1 - k, packed, p.depth, tile);
    MASK_TILE(tile, head_mask, k, k0, count, q0);
    _Pragma("unroll") for (uint i = 0; i < R; i++) {
      _Pragma("unroll") for (uint v = 0; v < NV; v++) {
        const V x = tile[i * NV + v];
        scores[(k + i) * NV + v] = x;
        largest[v] = x > largest[v] ? x : largest[v];
      }
    }
  }
}

/// Turns the scores of `count` keys into weights, adds them to the rows' totals, and leaves what
/// the sums so far shrink by in `factors`.
static ALWAYS_INLINE void weigh_scores(local V* scores, local V* factors, private V* maximum,
                                       private V* total, private const V* largest, uint count) {
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
}

/// A sum of query q times its factor. Needs `factors`.
#define SHRINK(sum, q) ((sum) * (V)(((local const T*)factors)[q]))

/// Global size: blocks of NQ queries, batch * heads. Buffers: query, key, value, mask, out, lse (of
/// C: see attention.clh). factor: scale * log2(e). scratch: DEPTH * NV vectors of query,
/// BLOCK * NV of scores, NQ * VV of out, NV of factors, then with STAGED BLOCK * (DV + VV).
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void attention_forward(
    global const char* query, const ulong query_offset, global const char* key,
    const ulong key_offset, global const char* value, const ulong value_offset,
    global const char* mask, const ulong mask_offset, global char* out, const ulong out_offset,
    global char* lse, const ulong lse_offset, const Arguments p, const T factor,
    const T keep_threshold, const T keep_scale MODIFICATION_PARAMETERS, local V* scratch) {
  LOCATE_QUERIES;
  value += HEAD_AT(value, IN, b, hk);
  const ulong row = (ulong)z * p.queries + q0;
#if MASKED
  global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
  HEAD_BLOCKS(b, h);
#endif

  local V* const packed = scratch;
  local V* const scores = packed + p.depth * NV;
  local V* const sums = scores + BLOCK * NV;
  local V* const factors = sums + NQ * VV;
#if STAGED
  local V* const staged_key = factors + NV;
  local V* const staged_value = staged_key + BLOCK * DV;
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
#if MODIFIED
    const uint kind = KIND_OF_ALL(q0, queries, k0, count);
    if (kind == NOTHING) continue;
#endif
    KEYS_AND_VALUES(k0, count);
    V largest[NV];
    _Pragma("unroll") for (uint v = 0; v < NV; v++) largest[v] = maximum[v];
    score_keys(scores, largest, key_rows, key_stride, packed, q0, k0, count, lanes, p MASK_PASSED);
    weigh_scores(scores, factors, maximum, total, largest, count);
#if DROPOUT
    for (uint k = 0; k < count; k += 4) {
      for (uint v = 0; v < NV; v++) {
        V keep[4];
        keep_lanes(p.seed, p.counter, row + v * WIDTH, k0 + k, keep_threshold, keep_scale, keep);
        for (uint i = 0; i < 4; i++) scores[(k + i) * NV + v] *= keep[i];
      }
    }
#endif

    ADD_TO_SUMS(sums, NO, VV, SHRINK, scores, value_rows, value_stride, count);
  }

  // A row that is masked whole is 0, as in CPU torch.
  for (uint v = 0; v < NV; v++) {
    Lanes logarithm;
    logarithm.vector = maximum[v] + log2(total[v]);
    factors[v] = total[v] == (V)(0) ? (V)(0) : (V)(1) / total[v];
    for (uint e = 0; e < WIDTH && v * WIDTH + e < queries; e++) {
      ((global T*)lse)[row + v * WIDTH + e] = logarithm.element[e];
    }
#if MODIFIED_MAXIMA
    Lanes largest;
    largest.vector = maximum[v];
    for (uint e = 0; e < WIDTH && v * WIDTH + e < queries; e++) {
      ((global T*)OPERAND(maxima))[row + v * WIDTH + e] = largest.element[e];
    }
#endif
  }
  for (uint q = 0; q < queries; q++) {
    store_row(out + q * p.out.row * STORAGE_SIZE(IN), p.out.column, p.columns, sums + q * VV, VV,
              ((local const T*)factors)[q]);
  }
}
