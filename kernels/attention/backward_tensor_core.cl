// The gradients of attention by NVIDIA's tensor cores, without atomics: one kernel
// walks along the keys for the gradient of query, another along the queries for those of key and
// value. Weights are computed again from the rows' logarithms.
//
// A work-group owns 64 rows of a head, a warp (32 work-items) 16 of them, whose two operands stay
// in registers; the rows that it walks along travel to local memory, WALK at a time, while those
// before them are multiplied.
//
// Compile parameters besides attention.clh's: DEPTH and COLUMNS (of a row of query and key, and of
// value, rounded up to multiples of 16), WALK (16, 32 or 64). IN is f16, bf16 or f32, C f32. Rows
// of all operands and results are contiguous, aligned to 16 bytes and multiples of them long.
#ifndef IN
#define IN f16
#endif
#define ITEMS kTensorCoreItems

#ifndef DEPTH
#define DEPTH 64
#define COLUMNS 64
#endif
#ifndef WALK
#define WALK 64
#endif

#define OWN kTensorCoreRows
#define FW (WALK / 8)  // 16 x 8 pieces of the weights
#include "attention/tensor_core_pieces.clh"
#include "attention/backward_arguments.clh"
#include "attention/backward_weights.clh"
#define FIRST_BYTES (WALK * LINE(DEPTH))
#define STAGE_BYTES (FIRST_BYTES + WALK * LINE(COLUMNS))

#if DROPOUT
#define KEEP(row, k) keep_weight(p.seed, p.counter, row, k, keep_threshold, keep_scale)
#else
#define KEEP(row, k) 1.0f
#endif

#define SWAP_STAGES          \
  do {                       \
    const uint swap_ = tile; \
    tile = other;            \
    other = swap_;           \
  } while (0)

/// Starts the copies of a tile: `valid` rows from `first` on, and beside them those of `second`.
static ALWAYS_INLINE void copy_rows(uint to, global const char* first, ulong first_row,
                                    global const char* second, ulong second_row, uint valid,
                                    uint item, const Arguments p) {
  COPY_ROWS(to, first, first_row, WALK, valid, DEPTH, p.depth);
  COPY_ROWS(to + FIRST_BYTES, second, second_row, WALK, valid, COLUMNS, p.columns);
}

/// The tile of the keys and values from k on, as a group of copies.
static ALWAYS_INLINE void copy_keys(uint to, global const char* key, global const char* value,
                                    uint k, uint keys, uint item, const Arguments p) {
  if (k < keys) {
    copy_rows(to, key + k * p.key.row * SIZE, p.key.row, value + k * p.value.row * SIZE,
              p.value.row, keys - k, item, p);
  }
  commit_copies();
}

// The query and the key of a work-item's weight i.
#define QUERY_OF(i) (q0 + own_row + (i) / 2 % 2 * 8)
#define KEY_OF(i) (k0 + (i) / 4 * 8 + own_column + (i) % 2)

/// Also leaves, for the other kernel, the product of each query's row of grad and of out in delta.
/// Global size: blocks of OWN queries * ITEMS, batch * heads.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_query_gradient_tensor_core(
    BACKWARD_ARGUMENTS MODIFICATION_PARAMETERS) {
  local uchar memory[2 * STAGE_BYTES] __attribute__((aligned(16)));
  const uint item = get_local_id(0), lane = item % 32, warp = item / 32;
  const uint own_row = warp * 16 + lane / 4, own_column = lane % 4 * 2;
  const uint q0 = (uint)(get_num_groups(0) - 1 - get_group_id(0)) * OWN;
  const uint z = get_group_id(1), b = z / p.heads, h = z % p.heads, hk = h / p.group;
  const uint queries = min((uint)OWN, p.queries - q0);
  const uint keys = p.causal ? min(p.keys, q0 + queries) : p.keys;
  query = OPERAND(query) + HEAD_AT(query, IN, b, h) + q0 * p.query.row * SIZE;
  key = OPERAND(key) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value) + HEAD_AT(value, IN, b, hk);
  out = OPERAND(out) + HEAD_AT(out, IN, b, h) + q0 * p.out.row * SIZE;
  grad = OPERAND(grad) + HEAD_AT(grad, IN, b, h) + q0 * p.grad.row * SIZE;
#if MASKED
  global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
  HEAD_BLOCKS(b, h);
  const bool scatters = false;
#endif
  const ulong row = (ulong)z * p.queries;
  const uint stages = local_address(memory);

  uint tile = stages, other = stages + STAGE_BYTES;
  uint k0 = 0, next_k0;
  KINDS
  SKIP_KEYS(k0, kind, WALK)
  copy_keys(tile, key, value, k0, keys, item, p);
  OWNED(own_query, query, p.query.row, queries, DEPTH, p.depth);
  OWNED(own_grad, grad, p.grad.row, queries, COLUMNS, p.columns);
  float logarithm[2], product[2] = {0, 0};
  {
    OWNED(own_out, out, p.out.row, queries, COLUMNS, p.columns);
    _Pragma("unroll") for (uint i = 0; i < PIECES(COLUMNS) * 4; i++) {
      product[i % 2] = PAIR_PRODUCT(((private const uint*)own_out)[i],
                                    ((private const uint*)own_grad)[i], product[i % 2]);
    }
  }
  _Pragma("unroll") for (uint r = 0; r < 2; r++) {
    const uint at = own_row + r * 8;
    _Pragma("unroll") for (uint step = 1; step <= 2; step *= 2) {
      product[r] += exchange(product[r], step);
    }
    const bool there = at < queries;
#if MODIFIED_LSE
    if (there) product[r] -= ((global const T*)OPERAND(lse_slopes))[row + q0 + at];
#endif
    if (there && lane % 4 == 0) ((global T*)OPERAND(delta))[row + q0 + at] = product[r];
    logarithm[r] = there ? logarithm_of(((global const T*)OPERAND(lse))[row + q0 + at]) : INFINITY;
  }

  float sums[DEPTH / 2];
  _Pragma("unroll") for (uint i = 0; i < DEPTH / 2; i++) sums[i] = 0;
  for (; k0 < keys; k0 = next_k0 NEXT_KIND) {
    next_k0 = k0 + WALK;
    SKIP_KEYS(next_k0, next_kind, WALK)
    // This work-item's part of the tile is there; after the barrier, everyone's is, and no one
    // reads the tile before any more.
    WAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    copy_keys(other, key, value, next_k0, keys, item, p);
    float s[FW * 4], slope[FW * 4];
    PRODUCTS(s, own_query, tile, DEPTH);
    PRODUCTS(slope, own_grad, tile + FIRST_BYTES, COLUMNS);
#if MODIFIED
    TAKEN_BITS(FW * 4, QUERY_OF, KEY_OF, kind, k0 + WALK > keys || queries < OWN)
    _Pragma("unroll") for (uint i = 0; i < FW * 4; i++) {
      const uint r = i / 2 % 2;
      WEIGH_MODIFIED(s[i], slope[i], QUERY_OF(i), KEY_OF(i), logarithm[r], product[r],
                     taken >> i & 1);
    }
#else
    const bool checked = MASKED || k0 + WALK > keys || (p.causal && k0 + WALK > q0 + warp * 16 + 1);
    _Pragma("unroll") for (uint i = 0; i < FW * 4; i++) {
      const uint r = i / 2 % 2, q_ = q0 + own_row + r * 8;
      const uint k_ = k0 + i / 4 * 8 + own_column + i % 2;
      s[i] *= factor;
      if (checked) MASK_SCORE(s[i], q_, k_);
      WEIGH(s[i], slope[i], logarithm[r], product[r], KEEP(row + q_, k_));
    }
#endif
    ADD_PRODUCTS(sums, slope, tile, DEPTH);
    SWAP_STAGES;
  }
  WAIT_COPIES(0);
  grad_query = OPERAND(grad_query) + HEAD_AT(grad_query, IN, b, h) + q0 * p.grad_query.row * SIZE;
  STORE_ROWS(grad_query, p.grad_query.row, sums, DEPTH, p.depth, queries, scale);
}

#undef QUERY_OF
#undef KEY_OF
#define QUERY_OF(i) (q0 + (i) / 4 * 8 + own_column + (i) % 2)
#define KEY_OF(i) (k0 + own_row + (i) / 2 % 2 * 8)

// Steps of attention_key_gradient_tensor_core are blocks of queries of all heads that share the
// key, one after the other.
#if MODIFIED
#define KIND_AT(n)                                                           \
  kind_of_all(all_blocks + (hk * p.group + (n) / steps_of_head) * m.head, m, \
              begin + (n) % steps_of_head * WALK,                            \
              min((uint)WALK, p.queries - (begin + (n) % steps_of_head * WALK)), k0, keys)
#define SKIP_QUERIES(n, kind) \
  while ((n) < steps && (kind = KIND_AT(n)) == NOTHING) (n)++;
#else
#define SKIP_QUERIES(n, kind)
#endif

/// The tile of step `at` as a group of copies, and a query's logarithm, and product of grad and
/// out, which the work-item holds until then. `query` and `grad` are at the first head, `row0` is
/// its first query among all, `begin` the first query that a head's steps take.
static ALWAYS_INLINE void copy_queries(uint to, private float2* held, global const char* query,
                                       global const char* grad, global const char* lse,
                                       global const char* delta, ulong row0, uint begin, uint at,
                                       uint steps_of_head, uint steps, uint item,
                                       const Arguments p) {
  if (at < steps) {
    const uint head = at / steps_of_head, q = begin + at % steps_of_head * WALK;
    const uint there = p.queries - q;
    copy_rows(to, query + (head * p.query.head + q * p.query.row) * SIZE, p.query.row,
              grad + (head * p.grad.head + q * p.grad.row) * SIZE, p.grad.row, there, item, p);
    const ulong row = row0 + (ulong)head * p.queries + q + item;
    *held = (float2)(INFINITY, 0);
    if (item < WALK && item < there) {
      *held = (float2)(logarithm_of(((global const T*)lse)[row]), ((global const T*)delta)[row]);
    }
  }
  commit_copies();
}

/// Global size: blocks of OWN keys * ITEMS, batch * heads of key.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_key_gradient_tensor_core(
    BACKWARD_ARGUMENTS MODIFICATION_PARAMETERS) {
  local uchar memory[2 * STAGE_BYTES] __attribute__((aligned(16)));
  local float2 states[2][WALK];  // of the tiles' queries: logarithm, and product of grad and out
  const uint item = get_local_id(0), lane = item % 32, warp = item / 32;
  const uint own_row = warp * 16 + lane / 4, own_column = lane % 4 * 2;
  const uint k0 = (uint)get_group_id(0) * OWN, z = get_group_id(1), key_heads = p.heads / p.group;
  const uint b = z / key_heads, hk = z % key_heads;
  const uint keys = min((uint)OWN, p.keys - k0);
  key = OPERAND(key) + HEAD_AT(key, IN, b, hk) + k0 * p.key.row * SIZE;
  value = OPERAND(value) + HEAD_AT(value, IN, b, hk) + k0 * p.value.row * SIZE;
  query = OPERAND(query) + HEAD_AT(query, IN, b, hk * p.group);
  grad = OPERAND(grad) + HEAD_AT(grad, IN, b, hk * p.group);
  lse = OPERAND(lse);
  delta = OPERAND(delta);
  const uint stages = local_address(memory);

  // The blocks of queries of all heads that share the key, one after the other.
  const uint begin = p.causal ? k0 : 0;
  const uint steps_of_head = begin < p.queries ? (p.queries - begin + WALK - 1) / WALK : 0;
  const uint steps = steps_of_head * p.group;
  const ulong row0 = ((ulong)b * p.heads + hk * p.group) * p.queries;
  float2 next = (float2)(0);
  uint tile = stages, other = stages + STAGE_BYTES;
#if MODIFIED
  CAPTURED_DECLARATIONS
  const bool scatters = true;
  global const uchar* const all_blocks = blocks + blocks_offset + b * m.batch;
#endif
  uint n = 0, next_n, stage = 0;
  KINDS
  SKIP_QUERIES(n, kind)
  copy_queries(tile, &next, query, grad, lse, delta, row0, begin, n, steps_of_head, steps, item, p);
  if (item < WALK) states[0][item] = next;
  OWNED(own_key, key, p.key.row, keys, DEPTH, p.depth);
  OWNED(own_value, value, p.value.row, keys, COLUMNS, p.columns);
  float key_sums[DEPTH / 2], value_sums[COLUMNS / 2];
  _Pragma("unroll") for (uint i = 0; i < DEPTH / 2; i++) key_sums[i] = 0;
  _Pragma("unroll") for (uint i = 0; i < COLUMNS / 2; i++) value_sums[i] = 0;
  for (; n < steps; n = next_n NEXT_KIND) {
    next_n = n + 1;
    SKIP_QUERIES(next_n, next_kind)
    WAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    copy_queries(other, &next, query, grad, lse, delta, row0, begin, next_n, steps_of_head, steps,
                 item, p);
    const uint head = n / steps_of_head, q0 = begin + n % steps_of_head * WALK;
#if MODIFIED
    const uint h = hk * p.group + head;
    global const uchar* const head_blocks = all_blocks + h * m.head;
#endif
    const ulong row = row0 + (ulong)head * p.queries;
#if MASKED
    global const char* const head_mask =
        OPERAND(mask) + HEAD_AT(mask, MASK, b, hk * p.group + head);
#endif
    float s[FW * 4], slope[FW * 4];
    PRODUCTS(s, own_key, tile, DEPTH);
    PRODUCTS(slope, own_value, tile + FIRST_BYTES, COLUMNS);
#if MODIFIED
    TAKEN_BITS(FW * 4, QUERY_OF, KEY_OF, kind, q0 + WALK > p.queries || keys < OWN)
#else
    const bool checked = MASKED || q0 + WALK > p.queries || (p.causal && k0 + OWN > q0 + 1);
#endif
    _Pragma("unroll") for (uint i = 0; i < FW * 4; i++) {
      const uint column = i / 4 * 8 + own_column + i % 2;
      const float2 state = states[stage][column];
      const uint q_ = q0 + column, k_ = k0 + own_row + i / 2 % 2 * 8;
#if MODIFIED
      WEIGH_MODIFIED(s[i], slope[i], q_, k_, state.x, state.y, taken >> i & 1);
#else
      s[i] *= factor;
      if (checked) MASK_SCORE(s[i], q_, k_);
      WEIGH(s[i], slope[i], state.x, state.y, KEEP(row + q_, k_));
#endif
    }
    ADD_PRODUCTS(value_sums, s, tile + FIRST_BYTES, COLUMNS);
    ADD_PRODUCTS(key_sums, slope, tile, DEPTH);
    stage = 1 - stage;
    if (item < WALK) states[stage][item] = next;
    SWAP_STAGES;
  }
  WAIT_COPIES(0);
  grad_key = OPERAND(grad_key) + HEAD_AT(grad_key, IN, b, hk) + k0 * p.grad_key.row * SIZE;
  grad_value = OPERAND(grad_value) + HEAD_AT(grad_value, IN, b, hk) + k0 * p.grad_value.row * SIZE;
  STORE_ROWS(grad_key, p.grad_key.row, key_sums, DEPTH, p.depth, keys, scale);
  STORE_ROWS(grad_value, p.grad_value.row, value_sums, COLUMNS, p.columns, keys, 1.0f);
}
