// Attention of few queries over many keys on CPUs, as in decoding with a cache of keys and values:
// the keys are split among work-items, and a second kernel combines what they leave.
//
// A row is a query of one of the heads that share a head of key. Compile parameters besides
// attention.clh's: WIDTH, RQ (rows of a work-item), DV and VV (vectors of a row of query and key,
// and of value), BLOCK (keys whose scores are kept at a time, a multiple of WIDTH and 4), WHOLE (1:
// rows of all operands are contiguous and whole vectors).
#include "include/item_by_item.clh"
#include "attention/vectors.clh"
#include "attention/splits.clh"
#include "include/philox.clh"

#ifndef RQ
#define RQ 1
#endif
#ifndef DV
#define DV 4
#endif
#ifndef BLOCK
#define BLOCK 64
#endif
// Keys whose products with the rows fill a vector.
#define KEYS (WIDTH / RQ)

/// The scores of a row for the keys of a block.
typedef union {
  V vectors[BLOCK / WIDTH];
  T elements[BLOCK];
} Scores;

/// Element i of the result is the sum of vector i: rounds of adding neighbours, each of which
/// leaves half as many vectors.
static inline V sum_each(private V* x) {
  _Pragma("unroll") for (uint n = WIDTH / 2; n > 0; n /= 2) {
    _Pragma("unroll") for (uint i = 0; i < n; i++) {
      const V a = x[2 * i], b = x[2 * i + 1];
      x[i] = (V)(a.even, b.even) + (V)(a.odd, b.odd);
    }
  }
  return x[0];
}

static inline T sum_lanes(V v) {
  Lanes x;
  x.vector = v;
  for (uint n = WIDTH / 2; n > 0; n /= 2) {
    for (uint i = 0; i < n; i++) x.element[i] += x.element[i + n];
  }
  return x.element[0];
}

/// Elements [first, first + WIDTH) of a row, 0 past its end.
static inline V load_lanes(global const char* row, ulong column, uint first, uint columns) {
#if WHOLE
  return LOADV_AS(C, IN, WIDTH, row + first * STORAGE_SIZE(IN), 0);
#else
  if (column == 1 && first + WIDTH <= columns) {
    return LOADV_AS(C, IN, WIDTH, row + first * STORAGE_SIZE(IN), 0);
  }
  Lanes x;
  for (uint e = 0; e < WIDTH; e++) {
    x.element[e] = first + e < columns ? LOAD_AS(C, IN, row, (first + e) * column) : (T)(0);
  }
  return x.vector;
#endif
}

/// The products of the rows with `count` keys from k0 on.
static ALWAYS_INLINE void score_keys(private Scores* scores, V packed[RQ][DV],
                                     global const char* key, uint k0, uint count,
                                     const Arguments p) {
  for (uint k = 0; k < count; k += KEYS) {
    V sum[RQ * KEYS];
    _Pragma("unroll") for (uint i = 0; i < KEYS; i++) {
      // Past the last key, that one: its score is dropped below.
      const uint at = k0 + min(k + i, count - 1);
      global const char* const from = key + at * p.key.row * STORAGE_SIZE(IN);
      V total_[RQ];
      _Pragma("unroll") for (uint v = 0; v < DV; v++) {
        const V x = load_lanes(from, p.key.column, v * WIDTH, p.depth);
        _Pragma("unroll") for (uint r = 0; r < RQ; r++) {
          total_[r] = v == 0 ? packed[r][v] * x : fma(packed[r][v], x, total_[r]);
        }
      }
      _Pragma("unroll") for (uint r = 0; r < RQ; r++) sum[r * KEYS + i] = total_[r];
    }
#if RQ == 1
    scores[0].vectors[k / WIDTH] = sum_each(sum);
#else
    Lanes all;
    all.vector = sum_each(sum);
    _Pragma("unroll") for (uint r = 0; r < RQ; r++) {
      _Pragma("unroll") for (uint i = 0; i < KEYS; i++) {
        scores[r].elements[k + i] = all.element[r * KEYS + i];
      }
    }
#endif
  }
}

/// Masks a row's scores; those of keys past `count` are -infinity.
static ALWAYS_INLINE void mask_scores(private T* score, global const char* mask, uint b, uint h,
                                      uint q, uint k0, uint count, const Arguments p) {
  for (uint k = count; k < BLOCK; k++) score[k] = -INFINITY;
#if MASKED
  global const char* const from = mask + HEAD_AT(mask, MASK, b, h);
  for (uint k = 0; k < count; k++) {
    score[k] += score_of_mask(LOAD_AS(C, MASK, from, q * p.mask.row + (k0 + k) * p.mask.column));
  }
#endif
  if (p.causal) {
    for (uint k = 0; k < count; k++) {
      if (k0 + k > q) score[k] = -INFINITY;
    }
  }
}

/// Turns a row's scores into weights, takes them into its maximum and total, and shrinks what was
/// summed before.
static ALWAYS_INLINE void weigh_scores(private Scores* scores, private T* maximum, private T* total,
                                       private V* sums) {
  Lanes most;
  most.vector = scores->vectors[0];
  for (uint i = 1; i < BLOCK / WIDTH; i++) {
    const V x = scores->vectors[i];
    most.vector = x > most.vector ? x : most.vector;
  }
  T largest = *maximum;
  for (uint e = 0; e < WIDTH; e++) {
    largest = most.element[e] > largest ? most.element[e] : largest;
  }
  const T base = FINITE(T, largest);
  const T shrink = EXP2(*maximum - base);
  *maximum = largest;
  V sum = (V)(0);
  for (uint i = 0; i < BLOCK / WIDTH; i++) {
    scores->vectors[i] = EXP2_LANES(scores->vectors[i] - (V)(base));
    sum += scores->vectors[i];
  }
  *total = fma(*total, shrink, sum_lanes(sum));
  _Pragma("unroll") for (uint v = 0; v < VV; v++) sums[v] *= (V)(shrink);
}

#if DROPOUT
/// Drops weights of a row, its number `row` among all, and scales the others.
static ALWAYS_INLINE void drop_weights(private T* weights, ulong row, uint k0, uint count,
                                       T keep_threshold, T keep_scale, const Arguments p) {
  for (uint k = 0; k < count; k += 4) {
    const uint4 words = philox4x32(p.seed, row, p.counter + (k0 + k) / 4) >> 8;
    weights[k] *= (T)words.x < keep_threshold ? keep_scale : (T)0;
    weights[k + 1] *= (T)words.y < keep_threshold ? keep_scale : (T)0;
    weights[k + 2] *= (T)words.z < keep_threshold ? keep_scale : (T)0;
    weights[k + 3] *= (T)words.w < keep_threshold ? keep_scale : (T)0;
  }
}
#endif

/// Global size: splits * blocks of RQ rows, batch * heads of key. per_item: keys of a split, a
/// multiple of BLOCK. Buffers: query, key, value, mask, out, lse, workspace (batch * heads of key *
/// rows * splits
/// * STATE of C, with splits > 1).
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void attention_decode(
    global const char* query, const ulong query_offset, global const char* key,
    const ulong key_offset, global const char* value, const ulong value_offset,
    global const char* mask, const ulong mask_offset, global char* out, const ulong out_offset,
    global char* lse, const ulong lse_offset, global char* workspace, const ulong workspace_offset,
    const Arguments p, const T factor, const T keep_threshold, const T keep_scale) {
  const uint split = get_global_id(0) % p.splits, row0 = get_global_id(0) / p.splits * RQ;
  const uint z = get_global_id(1), key_heads = p.heads / p.group;
  const uint b = z / key_heads, hk = z % key_heads;
  const uint rows = p.group * p.queries;
  const uint first = split * p.per_item, last = min(p.keys, first + p.per_item);
  query = OPERAND(query);
  key = OPERAND(key) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value) + HEAD_AT(value, IN, b, hk);
  out = OPERAND(out);
  lse = OPERAND(lse);
  workspace = OPERAND(workspace);

  V packed[RQ][DV], sums[RQ][VV];
  T maximum[RQ], total[RQ];
  uint head_of[RQ], query_of[RQ];
  _Pragma("unroll") for (uint r = 0; r < RQ; r++) {
    const uint row = min(row0 + r, rows - 1);
    head_of[r] = hk * p.group + row / p.queries;
    query_of[r] = row % p.queries;
    global const char* const from =
        query + HEAD_AT(query, IN, b, head_of[r]) + query_of[r] * p.query.row * STORAGE_SIZE(IN);
    _Pragma("unroll") for (uint v = 0; v < DV; v++) {
      packed[r][v] = load_lanes(from, p.query.column, v * WIDTH, p.depth) * (V)(factor);
    }
    _Pragma("unroll") for (uint v = 0; v < VV; v++) sums[r][v] = (V)(0);
    maximum[r] = -INFINITY;
    total[r] = 0;
  }

  for (uint k0 = first; k0 < last; k0 += BLOCK) {
    const uint count = min((uint)BLOCK, last - k0);
    Scores scores[RQ];
    score_keys(scores, packed, key, k0, count, p);
    _Pragma("unroll") for (uint r = 0; r < RQ; r++) {
      mask_scores(scores[r].elements, OPERAND(mask), b, head_of[r], query_of[r], k0, count, p);
      weigh_scores(&scores[r], &maximum[r], &total[r], sums[r]);
#if DROPOUT
      const ulong row = ((ulong)b * p.heads + head_of[r]) * p.queries + query_of[r];
      drop_weights(scores[r].elements, row, k0, count, keep_threshold, keep_scale, p);
#endif
    }
    for (uint k = 0; k < count; k++) {
      global const char* const from = value + (k0 + k) * p.value.row * STORAGE_SIZE(IN);
      _Pragma("unroll") for (uint v = 0; v < VV; v++) {
        const V x = load_lanes(from, p.value.column, v * WIDTH, p.columns);
        _Pragma("unroll") for (uint r = 0; r < RQ; r++) {
          sums[r][v] = fma((V)(scores[r].elements[k]), x, sums[r][v]);
        }
      }
    }
  }

  for (uint r = 0; r < RQ && row0 + r < rows; r++) {
    if (p.splits == 1) {
      const T shrink = SHRINK(total[r]);
      global char* const to =
          out + HEAD_AT(out, IN, b, head_of[r]) + query_of[r] * p.out.row * STORAGE_SIZE(IN);
      STORE_LOGARITHM(head_of[r], query_of[r], maximum[r], total[r]);
      for (uint v = 0; v < VV; v++) {
        store_lanes(to, p.out.column, v * WIDTH, p.columns, sums[r][v] * (V)(shrink));
      }
    } else {
      global T* const state =
          (global T*)workspace + (((ulong)z * rows + row0 + r) * p.splits + split) * STATE;
      state[0] = maximum[r];
      state[1] = total[r];
      for (uint v = 0; v < VV; v++) VECTOR_NAME(vstore)(sums[r][v], v, state + 2);
    }
  }
}
