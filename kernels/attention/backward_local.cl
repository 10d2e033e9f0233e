// The gradients of attention for GPUs, without atomics: one kernel walks along the keys for the
// gradient of query, another along the queries for those of key and value. Weights are computed
// again from the rows' logarithms.
//
// Both own BQ rows and walk along BK others at a time: a block of weights is [own][walked], so that
// the same products serve both. The next tiles travel while the current ones are multiplied.
#include "attention/local.clh"
#include "attention/backward_arguments.clh"

#define TILE_ROWS (BQ > BK ? BQ : BK)
#define PITCH_S (BK + kLocalPadding)

typedef TYPEV(C, 2) T2;

#define ARGUMENTS BACKWARD_ARGUMENTS MODIFICATION_PARAMETERS, local T4 *scratch

/// delta[row] = the product of a row of grad and of out, kDeltaItems work-items each. Buffers: as
/// the others'. Work-groups of 64; global size: queries * kDeltaItems, batch * heads.
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void attention_delta(ARGUMENTS) {
  local T* const sums = (local T*)scratch;
  const uint item = get_local_id(0), lane = item % kDeltaItems;
  const uint q = get_global_id(0) / kDeltaItems, z = get_global_id(1), b = z / p.heads,
             h = z % p.heads;
  T sum = 0;
  if (q < p.queries) {
    out = OPERAND(out) + HEAD_AT(out, IN, b, h) + q * p.out.row * STORAGE_SIZE(IN);
    grad = OPERAND(grad) + HEAD_AT(grad, IN, b, h) + q * p.grad.row * STORAGE_SIZE(IN);
    for (uint c = lane; c < p.columns; c += kDeltaItems) {
      sum =
          fma(LOAD_AS(C, IN, out, c * p.out.column), LOAD_AS(C, IN, grad, c * p.grad.column), sum);
    }
  }
  sums[item] = sum;
  for (uint n = kDeltaItems / 2; n > 0; n /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < n) sums[item] += sums[item + n];
  }
  if (lane == 0 && q < p.queries) {
    const ulong at = (ulong)z * p.queries + q;
#if MODIFIED_LSE
    sums[item] -= ((global const T*)OPERAND(lse_slopes))[at];
#endif
    ((global T*)OPERAND(delta))[at] = sums[item];
  }
}

#if DROPOUT
#define KEEP(row, k) keep_weight(p.seed, p.counter, row, k, keep_threshold, keep_scale)
#else
#define KEEP(row, k) ((T)1)
#endif
/// Turns s, the product of query q and key k, and slope, that of grad and value, into the weight (0
/// if dropped, else scaled) and its gradient by the product.
#define WEIGH(s, slope, q, k, logarithm, product)                      \
  do {                                                                 \
    T score_ = -INFINITY;                                              \
    if ((q) < p.queries && (k) < p.keys && !(p.causal && (k) > (q))) { \
      score_ = s * factor;                                             \
      ADD_MASK(score_, q, k);                                          \
    }                                                                  \
    const T weight_ = EXP2(score_ - (logarithm));                      \
    const T keep_ = KEEP(row + (q), k);                                \
    slope = weight_ * (fma(slope, keep_, -(product)) * scale);         \
    s = weight_ * keep_;                                               \
  } while (0)
#if MODIFIED
/// WEIGH for a score that is modified, and taken or not.
#define WEIGH_MODIFIED(s, slope, q, k, logarithm, product, taken) \
  do {                                                            \
    const T score_ = s * factor;                                  \
    s = EXP2(MODIFY_IF(taken, score_, q, k) - (logarithm));       \
    slope = s * (slope - (product));                              \
    ADD_CAPTURED(score_, q, k, slope, s)                          \
    slope = MODIFY_SLOPE(score_, q, k, slope, s) * scale;         \
  } while (0)
#endif
/// A row that is masked whole has no weights.
static inline T logarithm_of(T lse) { return lse == -INFINITY ? (T)INFINITY : lse; }

/// The tiles that were fetched, for everyone.
#define STORE_TILES(left_rows, right_rows)           \
  do {                                               \
    barrier(CLK_LOCAL_MEM_FENCE);                    \
    store_tile(left, held_left, left_rows, item);    \
    store_tile(right, held_right, right_rows, item); \
    barrier(CLK_LOCAL_MEM_FENCE);                    \
  } while (0)

#define CLEAR(values)                                                 \
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {                   \
    _Pragma("unroll") for (uint j = 0; j < RK; j++) values[i][j] = 0; \
  }
#define CLEAR_SUMS(values, chunks)                                                             \
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {                                            \
    _Pragma("unroll") for (uint c = 0; c < chunks; c++) values[i][c][0] = values[i][c][1] = 0; \
  }

/// block[own][walked] = the work-items' values.
static inline void share(local T* block, private T values[RQ][RK], uint x, uint y) {
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    _Pragma("unroll") for (uint j = 0; j < RK; j++) {
      block[(y + SIDE * i) * PITCH_S + x + kLocalSide * j] = values[i][j];
    }
  }
}

/// sums[own][columns of a chunk] += the block times a tile.
#define ADD_PRODUCTS(sums, c, tile)                                           \
  _Pragma("unroll") for (uint kk = 0; kk < 4; kk++) {                         \
    const T2 v_ = *(local const T2*)((tile) + (walked + kk) * PITCH + 2 * x); \
    _Pragma("unroll") for (uint i = 0; i < RQ; i++) {                         \
      const T weight_ = ((private const T*)weight)[i * 4 + kk];               \
      sums[i][c][0] = fma(weight_, v_.s0, sums[i][c][0]);                     \
      sums[i][c][1] = fma(weight_, v_.s1, sums[i][c][1]);                     \
    }                                                                         \
  }
/// Adds `chunks` chunks, of which the first two are held; fetch(c) fetches those from c on, and
/// `next` what comes after. Rows past the last one are zeros.
#define ADD_CHUNKS(sums, chunks, fetch, next)                             \
  _Pragma("unroll") for (uint c = 0; c < chunks; c += 2) {                \
    STORE_TILES(BK, BK);                                                  \
    if (c + 2 < chunks) {                                                 \
      fetch(c + 2);                                                       \
    } else {                                                              \
      next;                                                               \
    }                                                                     \
    _Pragma("unroll 1") for (uint walked = 0; walked < BK; walked += 4) { \
      T4 weight[RQ];                                                      \
      _Pragma("unroll") for (uint i = 0; i < RQ; i++) {                   \
        weight[i] = LOAD4(block + (y + SIDE * i) * PITCH_S + walked);     \
      }                                                                   \
      ADD_PRODUCTS(sums, c, left)                                         \
      if (c + 1 < chunks) ADD_PRODUCTS(sums, c + 1, right)                \
    }                                                                     \
  }
/// sum += own rows times walked rows, chunk by chunk, of which the first is held.
#define ADD_DOTS(sum, chunks, fetch, next)                \
  _Pragma("unroll 1") for (uint c = 0; c < chunks; c++) { \
    STORE_TILES(BQ, BK);                                  \
    if (c + 1 < chunks) {                                 \
      fetch(c + 1);                                       \
    } else {                                              \
      next;                                               \
    }                                                     \
    dot_tiles(left, right, x, y, sum);                    \
  }
#define FETCH(held, from, strides, valid, rows, c, width) \
  fetch_tile(held, from, strides.row, strides.column, valid, rows, (c) * kLocalChunk, width, item)

#define STORE_ROWS(to, strides, sums, chunks, width, valid)                                        \
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {                                                \
    const uint own = y + SIDE * i;                                                                 \
    _Pragma("unroll") for (uint n = 0; n < 2 * chunks; n++) {                                      \
      const uint column = n / 2 * kLocalChunk + 2 * x + n % 2;                                     \
      if (own < (valid) && column < (width)) {                                                     \
        STORE_FROM(IN, C, to, own * strides.row + column * strides.column, sums[i][n / 2][n % 2]); \
      }                                                                                            \
    }                                                                                              \
  }

// The tiles that attention_query_gradient fetches for a chunk of columns.
#define FETCH_SCORES_AT(k, c)                                                             \
  do {                                                                                    \
    FETCH(held_left, query, p.query, queries, BQ, c, p.depth);                            \
    FETCH(held_right, key + (k) * p.key.row * STORAGE_SIZE(IN), p.key, keys - (k), BK, c, \
          p.depth);                                                                       \
  } while (0)
#define FETCH_SCORES(c) FETCH_SCORES_AT(k0, c)
#define FETCH_SLOPES(c)                                                                       \
  do {                                                                                        \
    FETCH(held_left, grad, p.grad, queries, BQ, c, p.columns);                                \
    FETCH(held_right, value + k0 * p.value.row * STORAGE_SIZE(IN), p.value, keys - k0, BK, c, \
          p.columns);                                                                         \
  } while (0)
#define FETCH_KEYS(c)                                                                   \
  do {                                                                                  \
    global const char* const from_ = key + k0 * p.key.row * STORAGE_SIZE(IN);           \
    FETCH(held_left, from_, p.key, keys - k0, BK, c, p.depth);                          \
    if ((c) + 1 < CD) FETCH(held_right, from_, p.key, keys - k0, BK, (c) + 1, p.depth); \
  } while (0)

/// Global size: blocks of BQ queries * ITEMS, batch * heads. Buffers: query, key, value, mask, out,
/// lse, grad (of out), delta, grad_query, grad_key, grad_value. scratch: 2 * TILE_ROWS * PITCH of C
/// for tiles, BQ * PITCH_S for a block of weights.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_query_gradient(ARGUMENTS) {
  const uint item = get_local_id(0), x = item % kLocalSide, y = item / kLocalSide;
  const uint q0 = (uint)(get_num_groups(0) - 1 - get_group_id(0)) * BQ;
  const uint z = get_global_id(1), b = z / p.heads, h = z % p.heads, hk = h / p.group;
  const uint queries = min((uint)BQ, p.queries - q0);
  const uint keys = p.causal ? min(p.keys, q0 + queries) : p.keys;
  query = OPERAND(query) + HEAD_AT(query, IN, b, h) + q0 * p.query.row * STORAGE_SIZE(IN);
  grad = OPERAND(grad) + HEAD_AT(grad, IN, b, h) + q0 * p.grad.row * STORAGE_SIZE(IN);
  key = OPERAND(key) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value) + HEAD_AT(value, IN, b, hk);
  lse = OPERAND(lse);
  delta = OPERAND(delta);
#if MASKED
  global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
  HEAD_BLOCKS(b, h);
  const bool scatters = false;
#endif
  const ulong row = (ulong)z * p.queries;
  local T* const left = (local T*)scratch;
  local T* const right = left + TILE_ROWS * PITCH;
  local T* const block = right + TILE_ROWS * PITCH;

  T sums[RQ][CD][2], held_left[HELD], held_right[HELD];
  CLEAR_SUMS(sums, CD)
  uint k0 = 0, next_k0;
  KINDS
  SKIP_KEYS(k0, kind, BK)
  if (k0 < keys) FETCH_SCORES_AT(k0, 0);
  for (; k0 < keys; k0 = next_k0 NEXT_KIND) {
    next_k0 = k0 + BK;
    SKIP_KEYS(next_k0, next_kind, BK)
    T s[RQ][RK], slope[RQ][RK];
    CLEAR(s)
    ADD_DOTS(s, CD, FETCH_SCORES, FETCH_SLOPES(0))
    CLEAR(slope)
    ADD_DOTS(slope, CV, FETCH_SLOPES, FETCH_KEYS(0))
#if MODIFIED
    TAKEN_BITS(RQ * RK, QUERY_OF, KEY_OF, kind, k0 + BK > keys || queries < BQ)
#endif
    _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
      // Here, not before the loop: Intel's compiler for CPUs then mixes up the work-items' values.
      const uint q = q0 + y + SIDE * i;
      const ulong at = row + min(q, p.queries - 1);
      const T logarithm = logarithm_of(((global const T*)lse)[at]);
      const T product = ((global const T*)delta)[at];
      _Pragma("unroll") for (uint j = 0; j < RK; j++) {
        const uint k = k0 + x + kLocalSide * j;
#if MODIFIED
        WEIGH_MODIFIED(s[i][j], slope[i][j], q, k, logarithm, product, taken >> (i * RK + j) & 1);
#else
        WEIGH(s[i][j], slope[i][j], q, k, logarithm, product);
#endif
      }
    }
    share(block, slope, x, y);
    ADD_CHUNKS(sums, CD, FETCH_KEYS, if (next_k0 < keys) FETCH_SCORES_AT(next_k0, 0))
  }
  grad_query = OPERAND(grad_query) + HEAD_AT(grad_query, IN, b, h) +
               q0 * p.grad_query.row * STORAGE_SIZE(IN);
  STORE_ROWS(grad_query, p.grad_query, sums, CD, p.depth, queries)
}
#undef FETCH_SCORES_AT
#undef FETCH_SCORES
#undef FETCH_SLOPES

// The tiles that attention_key_gradient fetches for step n and a chunk of columns. Its steps are
// blocks of queries of all heads that share the key, one after the other.
#define QUERY_AT(n) (begin + (n) % steps_of_head * BK)
#define ROWS_AT(base, strides, n) \
  ((base) + ((n) / steps_of_head * strides.head + QUERY_AT(n) * strides.row) * STORAGE_SIZE(IN))
#define FETCH_SCORES_AT(n, c)                                                              \
  do {                                                                                     \
    FETCH(held_left, key, p.key, keys, BQ, c, p.depth);                                    \
    FETCH(held_right, ROWS_AT(query, p.query, n), p.query, p.queries - QUERY_AT(n), BK, c, \
          p.depth);                                                                        \
  } while (0)
#define FETCH_SCORES(c) FETCH_SCORES_AT(n, c)
#define FETCH_SLOPES(c)                                              \
  do {                                                               \
    FETCH(held_left, value, p.value, keys, BQ, c, p.columns);        \
    FETCH(held_right, head_grad, p.grad, queries, BK, c, p.columns); \
  } while (0)
#define FETCH_GRADS(c)                                                                       \
  do {                                                                                       \
    FETCH(held_left, head_grad, p.grad, queries, BK, c, p.columns);                          \
    if ((c) + 1 < CV) FETCH(held_right, head_grad, p.grad, queries, BK, (c) + 1, p.columns); \
  } while (0)
#define FETCH_QUERIES(c)                                                                     \
  do {                                                                                       \
    FETCH(held_left, head_query, p.query, queries, BK, c, p.depth);                          \
    if ((c) + 1 < CD) FETCH(held_right, head_query, p.query, queries, BK, (c) + 1, p.depth); \
  } while (0)
#if MODIFIED
// The keys are the work-items' own.
#define OWN_QUERY_OF(i) (q0 + x + kLocalSide * ((i) % RK))
#define OWN_KEY_OF(i) (k0 + y + SIDE * ((i) / RK))
#define KIND_AT(n)                                                                        \
  kind_of_all(all_blocks + (hk * p.group + (n) / steps_of_head) * m.head, m, QUERY_AT(n), \
              min((uint)BK, p.queries - QUERY_AT(n)), k0, keys)
#define SKIP_QUERIES(n, kind) \
  while ((n) < steps && (kind = KIND_AT(n)) == NOTHING) (n)++;
#else
#define SKIP_QUERIES(n, kind)
#endif

/// Global size: blocks of BQ keys * ITEMS, batch * heads of key. Otherwise as
/// attention_query_gradient.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_key_gradient(ARGUMENTS) {
  const uint item = get_local_id(0), x = item % kLocalSide, y = item / kLocalSide;
  const uint k0 = get_group_id(0) * BQ, z = get_global_id(1), key_heads = p.heads / p.group;
  const uint b = z / key_heads, hk = z % key_heads;
  const uint keys = min((uint)BQ, p.keys - k0);
  key = OPERAND(key) + HEAD_AT(key, IN, b, hk) + k0 * p.key.row * STORAGE_SIZE(IN);
  value = OPERAND(value) + HEAD_AT(value, IN, b, hk) + k0 * p.value.row * STORAGE_SIZE(IN);
  query = OPERAND(query) + HEAD_AT(query, IN, b, hk * p.group);
  grad = OPERAND(grad) + HEAD_AT(grad, IN, b, hk * p.group);
  lse = OPERAND(lse);
  delta = OPERAND(delta);
  local T* const left = (local T*)scratch;
  local T* const right = left + TILE_ROWS * PITCH;
  local T* const block = right + TILE_ROWS * PITCH;

  // The blocks of queries of all heads that share the key, one after the other.
  const uint begin = p.causal ? k0 / BK * BK : 0;
  const uint steps_of_head = begin < p.queries ? (p.queries - begin + BK - 1) / BK : 0;
  const uint steps = steps_of_head * p.group;
  T key_sums[RQ][CD][2], value_sums[RQ][CV][2], held_left[HELD], held_right[HELD];
  CLEAR_SUMS(key_sums, CD)
  CLEAR_SUMS(value_sums, CV)
#if MODIFIED
  CAPTURED_DECLARATIONS
  const bool scatters = true;
  global const uchar* const all_blocks = blocks + blocks_offset + b * m.batch;
#endif
  uint n = 0, next_n;
  KINDS
  SKIP_QUERIES(n, kind)
  if (n < steps) FETCH_SCORES_AT(n, 0);
  for (; n < steps; n = next_n NEXT_KIND) {
    next_n = n + 1;
    SKIP_QUERIES(next_n, next_kind)
    const uint h = hk * p.group + n / steps_of_head, q0 = QUERY_AT(n), queries = p.queries - q0;
#if MODIFIED
    global const uchar* const head_blocks = all_blocks + h * m.head;
#endif
    global const char* const head_query = ROWS_AT(query, p.query, n);
    global const char* const head_grad = ROWS_AT(grad, p.grad, n);
    const ulong row = ((ulong)b * p.heads + h) * p.queries;
#if MASKED
    global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
    T s[RQ][RK], slope[RQ][RK];
    CLEAR(s)
    ADD_DOTS(s, CD, FETCH_SCORES, FETCH_SLOPES(0))
    CLEAR(slope)
    ADD_DOTS(slope, CV, FETCH_SLOPES, FETCH_GRADS(0))
#if MODIFIED
    TAKEN_BITS(RQ * RK, OWN_QUERY_OF, OWN_KEY_OF, kind, queries < BK || keys < BQ)
#endif
    _Pragma("unroll") for (uint j = 0; j < RK; j++) {
      const uint q = q0 + x + kLocalSide * j;
      const ulong at = row + min(q, p.queries - 1);
      const T logarithm = logarithm_of(((global const T*)lse)[at]);
      const T product = ((global const T*)delta)[at];
      _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
        const uint k = k0 + y + SIDE * i;
#if MODIFIED
        WEIGH_MODIFIED(s[i][j], slope[i][j], q, k, logarithm, product, taken >> (i * RK + j) & 1);
#else
        WEIGH(s[i][j], slope[i][j], q, k, logarithm, product);
#endif
      }
    }
    share(block, s, x, y);
    ADD_CHUNKS(value_sums, CV, FETCH_GRADS, FETCH_QUERIES(0))
    barrier(CLK_LOCAL_MEM_FENCE);
    share(block, slope, x, y);
    ADD_CHUNKS(key_sums, CD, FETCH_QUERIES, if (next_n < steps) FETCH_SCORES_AT(next_n, 0))
  }
  grad_key =
      OPERAND(grad_key) + HEAD_AT(grad_key, IN, b, hk) + k0 * p.grad_key.row * STORAGE_SIZE(IN);
  grad_value = OPERAND(grad_value) + HEAD_AT(grad_value, IN, b, hk) +
               k0 * p.grad_value.row * STORAGE_SIZE(IN);
  STORE_ROWS(grad_key, p.grad_key, key_sums, CD, p.depth, keys)
  STORE_ROWS(grad_value, p.grad_value, value_sums, CV, p.columns, keys)
}
