// The gradients of attention on CPUs: weights are computed again from the rows' logarithms, so that
// nothing of the size queries * keys is kept.
//
// A work-item takes a range of queries and a range of keys of a head (of all query heads that share
// a head of key). With FOR_QUERY it takes all keys and stores the gradient of query; with FOR_KEY
// it takes all queries and adds to the gradients of key and value in memory, which no other
// work-item touches. With both, a work-item has a whole head, and five products do instead of
// seven.
//
// Compile parameters besides lanes.clh's: FOR_QUERY, FOR_KEY, NK (as NO, of rows of query and key).
#include "include/item_by_item.clh"
#include "attention/lanes.clh"

#ifndef FOR_QUERY
#define FOR_QUERY 1
#endif
#ifndef FOR_KEY
#define FOR_KEY 1
#endif
#ifndef NK
#define NK 4
#endif

/// x[lane] = the product of row `lane` of two matrices, 0 past `valid`.
static inline void row_products(global const char* a, ulong a_row, ulong a_column,
                                global const char* b, ulong b_row, ulong b_column, uint valid,
                                uint columns, local T* x) {
  for (uint lane = 0; lane < NQ; lane++) {
    T sum = 0;
    uint k = 0;
    if (lane < valid && a_column == 1 && b_column == 1) {
      Lanes sums;
      sums.vector = (V)(0);
      for (; k + WIDTH <= columns; k += WIDTH) {
        sums.vector =
            fma(LOADV_AS(C, IN, WIDTH, a + (lane * a_row + k) * STORAGE_SIZE(IN), 0),
                LOADV_AS(C, IN, WIDTH, b + (lane * b_row + k) * STORAGE_SIZE(IN), 0), sums.vector);
      }
      for (uint e = 0; e < WIDTH; e++) sum += sums.element[e];
    }
    for (; lane < valid && k < columns; k++) {
      sum = fma(LOAD_AS(C, IN, a, lane * a_row + k * a_column),
                LOAD_AS(C, IN, b, lane * b_row + k * b_column), sum);
    }
    x[lane] = sum;
  }
}

/// Adds weight^T rows to `count` rows of `to`: weight[k][NQ], `depth` rows of N * (tiles) vectors.
#define ADD_PRODUCT(N, VECTORS, weight, rows, stride, depth, to, to_stride, count)              \
  for (uint k_0 = 0; k_0 < (count); k_0 += RO) {                                                \
    for (uint c_0 = 0; c_0 < VECTORS; c_0 += N) {                                               \
      V sum_[RO][N];                                                                            \
      _Pragma("unroll") for (uint i = 0; i < RO; i++) {                                         \
        _Pragma("unroll") for (uint j = 0; j < N; j++) { sum_[i][j] = (V)(0); }                 \
      }                                                                                         \
      PRODUCT_TILE(N, (local const T*)(weight) + k_0 * NQ, 1, NQ, (rows) + c_0 * WIDTH, stride, \
                   depth, sum_);                                                                \
      for (uint i = 0; i < min((uint)RO, (count) - k_0); i++) {                                 \
        _Pragma("unroll") for (uint j = 0; j < N; j++) {                                        \
          global T* const at_ = (to) + (k_0 + i) * (to_stride) + (c_0 + j) * WIDTH;             \
          VECTOR_NAME(vstore)(LOAD_LANES(at_) + sum_[i][j], 0, at_);                            \
        }                                                                                       \
      }                                                                                         \
    }                                                                                           \
  }

/// Each query's product of grad and out, and the logarithm of its row's sum, as lanes. Rows without
/// a key, and those past the end, get weights of 0. Uses `products` and `logarithms`, scratch.
static ALWAYS_INLINE void row_statistics(private V* delta, private V* logarithm, local V* products,
                                         local V* logarithms, global const char* head_grad,
                                         global const char* head_out, global const char* lse,
                                         global const char* lse_slopes, ulong row, uint queries,
                                         const Arguments p) {
  row_products(head_grad, p.grad.row, p.grad.column, head_out, p.out.row, p.out.column, queries,
               p.columns, (local T*)products);
  for (uint lane = 0; lane < NQ; lane++) {
    const T x = lane < queries ? ((global const T*)lse)[row + lane] : (T)(INFINITY);
    ((local T*)logarithms)[lane] = x == -INFINITY ? (T)(INFINITY) : x;
  }
#if MODIFIED_LSE
  for (uint lane = 0; lane < queries; lane++) {
    ((local T*)products)[lane] -= ((global const T*)lse_slopes)[row + lane];
  }
#endif
  _Pragma("unroll") for (uint v = 0; v < NV; v++) {
    delta[v] = products[v];
    logarithm[v] = logarithms[v];
  }
}

/// weights[key][query] of `count` keys from k0 on. Modified, it leaves the scores in `slopes`.
static ALWAYS_INLINE void weigh_keys(local V* weights, local V* slopes, ROWS const T* rows,
                                     ulong stride, local const V* packed_query,
                                     private const V* logarithm, uint q0, uint k0, uint count,
                                     const V lanes, const Arguments p MASK_PARAMETERS) {
  for (uint k = 0; k < count; k += R) {
    V tile[R * NV];
    score_tile(rows + k * stride, stride, count - 1 - k, packed_query, p.depth, tile);
#if MODIFIED
    _Pragma("unroll") for (uint i = 0; i < R * NV; i++) slopes[k * NV + i] = tile[i];
#endif
    MASK_TILE(tile, head_mask, k, k0, count, q0);
    _Pragma("unroll") for (uint i = 0; i < R; i++) {
      _Pragma("unroll") for (uint v = 0; v < NV; v++) {
        weights[(k + i) * NV + v] = EXP2_LANES(tile[i * NV + v] - logarithm[v]);
      }
    }
  }
}

/// slopes[key][query], the gradients of R scores from key k of the block on, of their weights'
/// gradients in `tile`. Dropped weights become 0. `row` is the first query's number among all.
static ALWAYS_INLINE void slopes_of_tile(local V* weights, local V* slopes, private const V* tile,
                                         private const V* delta, uint q0, uint k0, uint k,
                                         ulong row, T scale, T keep_threshold, T keep_scale,
                                         const Arguments p MASK_PARAMETERS) {
#if DROPOUT
  for (uint v = 0; v < NV; v++) {
    for (uint i0 = 0; i0 < R; i0 += 4) {
      V keep[4];
      keep_lanes(p.seed, p.counter, row + v * WIDTH, k0 + k + i0, keep_threshold, keep_scale, keep);
      for (uint i = 0; i < 4; i++) {
        const uint at = (k + i0 + i) * NV + v;
        const V weight = weights[at];
        const V slope = fma(tile[(i0 + i) * NV + v], keep[i], -delta[v]);
        slopes[at] = weight * slope * (V)(scale);
        weights[at] = weight * keep[i];
      }
    }
  }
#else
  _Pragma("unroll") for (uint i = 0; i < R; i++) {
    _Pragma("unroll") for (uint v = 0; v < NV; v++) {
      const uint at = (k + i) * NV + v;
#if MODIFIED
      // Slopes has the scores until now.
      const V score = slopes[at], weight = weights[at];
      const V slope = weight * (tile[i * NV + v] - delta[v]);
      const uint q = q0 + v * WIDTH, key_at = min(k0 + k + i, p.keys - 1);
#if CAPTURED_SLOPES && FOR_KEY
      add_captured_lanes(score, b, h, q, p.queries, key_at, slope, weight CAPTURED);
#endif
      slopes[at] =
          slope_lanes(score, b, h, q, p.queries, key_at, slope, weight CAPTURED) * (V)(scale);
#else
      slopes[at] = weights[at] * ((tile[i * NV + v] - delta[v]) * (V)(scale));
#endif
    }
  }
#endif
}

/// The slopes of `count` keys from k0 on.
static ALWAYS_INLINE void slopes_of_keys(local V* weights, local V* slopes, ROWS const T* rows,
                                         ulong stride, local const V* packed_grad,
                                         private const V* delta, uint q0, uint k0, uint count,
                                         ulong row, T scale, T keep_threshold, T keep_scale,
                                         const Arguments p MASK_PARAMETERS) {
  for (uint k = 0; k < count; k += R) {
    V tile[R * NV];
    score_tile(rows + k * stride, stride, count - 1 - k, packed_grad, p.columns, tile);
    slopes_of_tile(weights, slopes, tile, delta, q0, k0, k, row, scale, keep_threshold, keep_scale,
                   p MASK_PASSED);
  }
}

#if FOR_KEY
/// Clears the gradients of keys [first, last) and of their values.
static ALWAYS_INLINE void clear_sums(global T* key_sums, global T* value_sums, uint first,
                                     uint last, const Arguments p) {
  for (uint k = first; k < last; k++) {
    for (uint v = 0; v < DV; v++) {
      VECTOR_NAME(vstore)((V)(0), v, key_sums + k * p.grad_key.row);
    }
    for (uint v = 0; v < VV; v++) {
      VECTOR_NAME(vstore)((V)(0), v, value_sums + k * p.grad_value.row);
    }
  }
}
#endif

#if MODIFIED_LSE
#define LSE_SLOPES OPERAND(lse_slopes)
#else
#define LSE_SLOPES 0
#endif
#define AS_IT_IS(sum, q) (sum)

/// A work-item's share: heads, keys and queries.
typedef struct {
  uint b, hk;  // the batch, and the head of key and value
  uint first_head, last_head, first_key, last_key, first_query, last_query;
} Range;

// Inlined, a returned struct is a noalias pointer, whose declaration oclgrind does not know.
static ALWAYS_INLINE void own_range(private Range* own, const Arguments p) {
  const uint range = get_global_id(0), z = get_global_id(1);
#if FOR_KEY
  const uint key_heads = p.heads / p.group;
  own->b = z / key_heads;
  own->hk = z % key_heads;
  own->first_head = own->hk * p.group;
  own->last_head = own->first_head + p.group;
  own->first_key = range * p.per_item;
  own->last_key = min(p.keys, own->first_key + p.per_item);
  own->first_query = p.causal ? own->first_key / NQ * NQ : 0;
  own->last_query = p.queries;
#else
  own->b = z / p.heads;
  own->first_head = z % p.heads;
  own->last_head = own->first_head + 1;
  own->hk = own->first_head / p.group;
  own->first_key = 0;
  own->last_key = p.keys;
  own->first_query = (uint)(get_global_size(0) - 1 - range) * NQ;
  own->last_query = min(p.queries, own->first_query + NQ);
#endif
}

/// Declares query_rows and grad_rows, those of a block of queries, and their strides in elements.
#if STAGED
#define QUERIES_AND_GRADS                                                                  \
  stage_rows(head_query, p.query.row, p.query.column, queries, p.depth, DV, staged_query); \
  stage_rows(head_grad, p.grad.row, p.grad.column, queries, p.columns, VV, staged_grad);   \
  local const T* const query_rows = (local const T*)staged_query;                          \
  local const T* const grad_rows = (local const T*)staged_grad;                            \
  const ulong query_stride = DV * WIDTH, grad_stride = VV * WIDTH
#else
#define QUERIES_AND_GRADS                                         \
  global const T* const query_rows = (global const T*)head_query; \
  global const T* const grad_rows = (global const T*)head_grad;   \
  const ulong query_stride = p.query.row, grad_stride = p.grad.row
#endif

/// Global size: ranges, batch * heads (of key with FOR_KEY, else of query). Buffers: query, key,
/// value, mask, out, lse, grad (of out), grad_query, grad_key, grad_value; the last two of C, rows
/// of whole vectors. A range is per_item keys, NQ queries, or all. factor: scale * log2(e).
/// scratch: DEPTH * NV vectors, COLUMNS * NV, twice BLOCK * NV, with FOR_QUERY NQ * DV, with STAGED
/// BLOCK * (DV + VV), with both STAGED and FOR_KEY NQ * (DV + VV).
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void attention_backward(
    global const char* query, const ulong query_offset, global const char* key,
    const ulong key_offset, global const char* value, const ulong value_offset,
    global const char* mask, const ulong mask_offset, global const char* out,
    const ulong out_offset, global const char* lse, const ulong lse_offset, global const char* grad,
    const ulong grad_offset, global char* grad_query, const ulong grad_query_offset,
    global char* grad_key, const ulong grad_key_offset, global char* grad_value,
    const ulong grad_value_offset, const Arguments p, const T factor, const T scale,
    const T keep_threshold, const T keep_scale MODIFICATION_PARAMETERS, local V* scratch) {
  Range own;
  own_range(&own, p);
  const uint b = own.b, hk = own.hk;
  key = OPERAND(key) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value) + HEAD_AT(value, IN, b, hk);
  lse = OPERAND(lse);

  local V* const packed_query = scratch;
  local V* const packed_grad = packed_query + p.depth * NV;
  local V* const weights = packed_grad + p.columns * NV;
  local V* const slopes = weights + BLOCK * NV;
  local V* rest = slopes + BLOCK * NV;
#if FOR_QUERY
  local V* const sums = rest;
  rest += NQ * DV;
#endif
#if STAGED
  local V* const staged_key = rest;
  local V* const staged_value = staged_key + BLOCK * DV;
  local V* const staged_query = staged_value + BLOCK * VV;
  local V* const staged_grad = staged_query + NQ * DV;
#endif
#if FOR_KEY
  global T* const key_sums = (global T*)(OPERAND(grad_key) + HEAD_AT(grad_key, C, b, hk));
  global T* const value_sums = (global T*)(OPERAND(grad_value) + HEAD_AT(grad_value, C, b, hk));
  clear_sums(key_sums, value_sums, own.first_key, own.last_key, p);
#endif
  const V lanes = lane_numbers();

  for (uint h = own.first_head; h < own.last_head; h++) {
#if MASKED
    global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
    HEAD_BLOCKS(b, h);
#endif
    for (uint q0 = own.first_query; q0 < own.last_query; q0 += NQ) {
      const uint queries = min((uint)NQ, p.queries - q0);
      global const char* const head_query =
          OPERAND(query) + HEAD_AT(query, IN, b, h) + q0 * p.query.row * STORAGE_SIZE(IN);
      global const char* const head_out =
          OPERAND(out) + HEAD_AT(out, IN, b, h) + q0 * p.out.row * STORAGE_SIZE(IN);
      global const char* const head_grad =
          OPERAND(grad) + HEAD_AT(grad, IN, b, h) + q0 * p.grad.row * STORAGE_SIZE(IN);
      const ulong row = ((ulong)b * p.heads + h) * p.queries + q0;
      pack_lanes(head_query, p.query.row, p.query.column, queries, p.depth, factor, packed_query);
      pack_lanes(head_grad, p.grad.row, p.grad.column, queries, p.columns, (T)1, packed_grad);
      V delta[NV], logarithm[NV];
      // Slopes and weights are not in use yet.
      row_statistics(delta, logarithm, slopes, weights, head_grad, head_out, lse, LSE_SLOPES, row,
                     queries, p);
#if FOR_QUERY
      for (uint i = 0; i < NQ * DV; i++) sums[i] = (V)(0);
#endif
#if FOR_KEY
      QUERIES_AND_GRADS;
#endif
      const uint keys = p.causal ? min(own.last_key, q0 + queries) : own.last_key;
      for (uint k0 = own.first_key; k0 < keys; k0 += BLOCK) {
        const uint count = min((uint)BLOCK, keys - k0);
#if MODIFIED
        const uint kind = KIND_OF_ALL(q0, queries, k0, count);
        if (kind == NOTHING) continue;
#endif
        KEYS_AND_VALUES(k0, count);
        weigh_keys(weights, slopes, key_rows, key_stride, packed_query, logarithm, q0, k0, count,
                   lanes, p MASK_PASSED);
        slopes_of_keys(weights, slopes, value_rows, value_stride, packed_grad, delta, q0, k0, count,
                       row, scale, keep_threshold, keep_scale, p MASK_PASSED);
#if FOR_KEY
        ADD_PRODUCT(NO, VV, weights, grad_rows, grad_stride, queries,
                    value_sums + k0 * p.grad_value.row, p.grad_value.row, count);
        ADD_PRODUCT(NK, DV, slopes, query_rows, query_stride, queries,
                    key_sums + k0 * p.grad_key.row, p.grad_key.row, count);
#endif
#if FOR_QUERY
        ADD_TO_SUMS(sums, NK, DV, AS_IT_IS, slopes, key_rows, key_stride, count);
#endif
      }
#if FOR_QUERY
      global char* const to = OPERAND(grad_query) + HEAD_AT(grad_query, IN, b, h) +
                              q0 * p.grad_query.row * STORAGE_SIZE(IN);
      for (uint q = 0; q < queries; q++) {
        store_row(to + q * p.grad_query.row * STORAGE_SIZE(IN), p.grad_query.column, p.depth,
                  sums + q * DV, DV, (T)1);
      }
#endif
    }
  }
}
