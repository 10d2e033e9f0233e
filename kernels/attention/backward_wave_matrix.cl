// The gradients of attention in half and bfloat16 by the matrix instructions of AMD's waves,
// without atomics: one kernel walks along the keys for the gradient of query, another along the
// queries for those of key and value. Weights are computed again from the rows' logarithms.
//
// A work-group owns BQ rows of a head, and walks along BK others at a time. Both operands of the
// own rows stay in registers, as scores, slopes and results do. A walked row has two operands, too
// (query and grad, or key and value): while the one's tile is multiplied, the other is on its way.
//
// Compile parameters besides wave_matrix.clh's: OF_KEYS and OF_VALUES (1: the second kernel
// computes the gradients of key, of value). Where both exceed the registers, it runs for each.
#define ROW_PAIRS 1
#define WAVES_OF_32 4
#define OWN_HALVES 1  // all would be more than registers, where both halves of a wave have them
#include "attention/wave_matrix.clh"
#include "attention/backward_arguments.clh"
#include "attention/backward_weights.clh"

#ifndef OF_KEYS
#define OF_KEYS 1
#define OF_VALUES 1
#endif

#define DEPTH_FRAGMENTS (WHOLE(DEPTH) / PIECE_K)
#define COLUMN_FRAGMENTS (WHOLE(COLUMNS) / PIECE_K)

/// The work-item's part of the product of two rows, of COLUMNS.
static ALWAYS_INLINE float product_of_rows(global const char* a, const Strides a_strides,
                                           global const char* b, const Strides b_strides, uint own,
                                           uint lane) {
  float sum = 0;
  UNROLL_LANES
  for (uint d = 0; d < WHOLE(COLUMNS); d += 16) {
    const uint c = d + lane / PIECE_M * 8;
    const ushort8 x = load_row8(a, own * (uint)a_strides.row, (uint)a_strides.column, c, COLUMNS);
    const ushort8 y = load_row8(b, own * (uint)b_strides.row, (uint)b_strides.column, c, COLUMNS);
    sum += sum_of_eight(DECODE_AS(f32, IN, 8, x) * DECODE_AS(f32, IN, 8, y));
  }
  return sum;
}

/// A tile of rows on its way: to lines along the head alone, or to others, or both.
static ALWAYS_INLINE void fetch(private ushort8* held, global const char* from,
                                const Strides strides, uint rows, const uint columns,
                                const bool across, uint item) {
  if (across) {
    fetch_across(held, from, strides, rows, columns, item);
  } else {
    fetch_rows(held, from, strides, rows, columns, item);
  }
}

static ALWAYS_INLINE void store(local ushort* tile, local ushort* tile_across,
                                private const ushort8* held, const uint columns, const bool along,
                                const bool across, uint item) {
  if (!across) {
    store_rows(tile, held, columns, item);
  } else {
    store_across(tile_across, held, columns, item);
    if (along) store_rows_too(tile, held, columns, item);
  }
}

/// A row's results, 0 yet.
static ALWAYS_INLINE void clear(private Sums* sums, const uint columns) {
  UNROLL_LANES
  for (uint n = 0; n < PIECES(columns); n++) sums[n] = (Sums)(0);
}

// The query and the key of a work-item's score i. Tiles begin at multiples of BK, so that the
// compiler sees which keys share a call of dropout's.
#define WALKED(i) ((i) / SUMS * PIECE_M + SUM_LINE(lane, (i) % SUMS))
#define QUERY_OF(i) (q0 + own)
#define KEY_OF(i) (k0 / BK * BK + WALKED(i))

#if DROPOUT
/// Declares `kept`: a bit for each score, which says whether dropout keeps its weight. In a loop of
/// its own, for the registers' sake.
#define KEPT_BITS                                                                           \
  uint kept = 0;                                                                            \
  _Pragma("unroll 4") for (uint i = 0; i < SCORES; i++) {                                   \
    const float keep =                                                                      \
        keep_weight(p.seed, p.counter, row + QUERY_OF(i), KEY_OF(i), keep_threshold, 1.0f); \
    kept |= (uint)(keep != 0) << i;                                                         \
  }
#define KEPT(i) (kept >> (i) & 1 ? keep_scale : 0.0f)
#else
#define KEPT_BITS
#define KEPT(i) 1.0f
#endif

/// Scores of products. `edge`: some are outside of the matrix, or causal.
#define SCALE_AND_MASK(edge)                             \
  UNROLL_LANES                                           \
  for (uint i = 0; i < SCORES; i++) weight[i] *= factor; \
  if (MASKED || (edge)) {                                \
    UNROLL_LANES                                         \
    for (uint i = 0; i < SCORES; i++) {                  \
      MASK_SCORE(weight[i], QUERY_OF(i), KEY_OF(i));     \
    }                                                    \
  }

/// Also leaves, for the other kernel, the product of each query's row of grad and of out in delta.
/// Global size: blocks of BQ queries * ITEMS, batch * heads.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void
attention_query_gradient_wave_matrix(BACKWARD_ARGUMENTS MODIFICATION_PARAMETERS) {
  local ushort key_tile[ELEMENTS(DEPTH)] __attribute__((aligned(16)));
  local ushort key_across[ELEMENTS_ACROSS(DEPTH)] __attribute__((aligned(16)));
  local ushort value_tile[ELEMENTS(COLUMNS)] __attribute__((aligned(16)));
  // These are of the own queries: the logarithm, and the product of grad and out. In registers,
  // Intel's compiler for CPUs, which tests run this with, would mix up the work-items' values.
  local float2 states[BQ];
#ifdef REGISTERS
  local uint registers[REGISTERS];
#endif
  const uint item = get_local_id(0), lane = LANE(item);
  const uint q0 = (uint)(get_num_groups(0) - 1 - get_group_id(0)) * BQ;
  const uint z = get_group_id(1), b = z / p.heads, h = z % p.heads, hk = h / p.group;
  const uint queries = min((uint)BQ, p.queries - q0);
  const uint keys = p.causal ? min(p.keys, q0 + queries) : p.keys;
  query = OPERAND(query) + HEAD_AT(query, IN, b, h) + q0 * p.query.row * 2;
  key = OPERAND(key) + HEAD_AT(key, IN, b, hk);
  value = OPERAND(value) + HEAD_AT(value, IN, b, hk);
  out = OPERAND(out) + HEAD_AT(out, IN, b, h) + q0 * p.out.row * 2;
  grad = OPERAND(grad) + HEAD_AT(grad, IN, b, h) + q0 * p.grad.row * 2;
#if MASKED
  global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
  HEAD_BLOCKS(b, h);
  const bool scatters = false;
#endif
  const ulong row = (ulong)z * p.queries;
  const uint wave_query = WAVE_OF(item) * PIECE_N, own = wave_query + lane % PIECE_N;
  const bool there = own < queries;
  Own own_query[DEPTH_FRAGMENTS], own_grad[COLUMN_FRAGMENTS];
  load_own(own_query, query, p.query, own, there, DEPTH, lane);
  load_own(own_grad, grad, p.grad, own, there, COLUMNS, lane);
  float product = there ? product_of_rows(out, p.out, grad, p.grad, own, lane) : 0;
  product += of_others(product, lane REGISTERS_PASSED);
#if MODIFIED_LSE
  if (there) product -= ((global const T*)OPERAND(lse_slopes))[row + q0 + own];
#endif
  if (there && lane < PIECE_N) ((global T*)OPERAND(delta))[row + q0 + own] = product;
  if (lane < PIECE_N) {
    states[own] =
        (float2)(there ? logarithm_of(((global const T*)OPERAND(lse))[row + q0 + own]) : INFINITY,
                 product);
  }

  Sums sums[PIECES(DEPTH)];
  clear(sums, DEPTH);
  KEEP_SUMS(sums, PIECES(DEPTH));
  ushort8 held[MOST(HELD_ACROSS(DEPTH), HELD(COLUMNS))];
  uint k0 = 0, next_k0;
  KINDS
  SKIP_KEYS(k0, kind, BK)
  if (k0 < keys) fetch(held, key + k0 * p.key.row * 2, p.key, keys - k0, DEPTH, true, item);
  for (; k0 < keys; k0 = next_k0 NEXT_KIND) {
    next_k0 = k0 + BK;
    SKIP_KEYS(next_k0, next_kind, BK)
    // No one reads the keys before any more, and then everyone's are there.
    barrier(CLK_LOCAL_MEM_FENCE);
    store(key_tile, key_across, held, DEPTH, true, true, item);
    fetch(held, value + k0 * p.value.row * 2, p.value, keys - k0, COLUMNS, false, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    // A wave without queries, or whose queries see none of these keys. All work-items emulate.
    const bool works =
        EMULATED || (wave_query < queries && !(p.causal && k0 >= q0 + wave_query + PIECE_N));
    Sums s[FK], slopes[FK];
    if (works) multiply_rows(s, own_query, key_tile, DEPTH, lane REGISTERS_PASSED);
    store_rows(value_tile, held, COLUMNS, item);
    if (next_k0 < keys) {
      fetch(held, key + next_k0 * p.key.row * 2, p.key, keys - next_k0, DEPTH, true, item);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!works) continue;
   private float* const weight = (private float*)s;
   private float* const slope = (private float*)slopes;
#if MODIFIED
    TAKEN_BITS(SCORES, QUERY_OF, KEY_OF, kind, k0 + BK > keys || queries < BQ)
#else
    SCALE_AND_MASK(k0 + BK > keys || (p.causal && k0 + BK > q0 + wave_query + 1))
#endif
    KEPT_BITS
    multiply_rows(slopes, own_grad, value_tile, COLUMNS, lane REGISTERS_PASSED);
    const float2 state = states[own];
    UNROLL_LANES
    for (uint i = 0; i < SCORES; i++) {
#if MODIFIED
      WEIGH_MODIFIED(weight[i], slope[i], QUERY_OF(i), KEY_OF(i), state.x, state.y, taken >> i & 1);
#else
      WEIGH(weight[i], slope[i], state.x, state.y, KEPT(i));
#endif
    }
    add_rows(sums, slopes, key_across, DEPTH, lane REGISTERS_PASSED);
    KEEP_SUMS(sums, PIECES(DEPTH));
  }
  if (!there) return;
  grad_query = OPERAND(grad_query) + HEAD_AT(grad_query, IN, b, h);
  store_own(grad_query + (q0 + own) * p.grad_query.row * 2, p.grad_query.column, sums, DEPTH, scale,
            lane);
}

#undef QUERY_OF
#undef KEY_OF
#define QUERY_OF(i) (q0 + WALKED(i))
#define KEY_OF(i) (k0 + own)

// attention_key_gradient_wave_matrix walks along the queries of all heads that share the key, one
// after the other: from query `begin` of each on.
#define ADVANCE(n, q)     \
  do {                    \
    q += BK;              \
    if (q >= p.queries) { \
      q = begin;          \
      n++;                \
    }                     \
  } while (0)
#define ROWS_AT(base, strides, n, q) ((base) + ((n) * strides.head + (q) * strides.row) * 2)
#if MODIFIED
#define KIND_AT(n, q)                                                                           \
  kind_of_all(all_blocks + (hk * p.group + (n)) * m.head, m, q, min((uint)BK, p.queries - (q)), \
              k0, keys)
#define SKIP_QUERIES(n, q, kind) \
  while ((n) < p.group && (kind = KIND_AT(n, q)) == NOTHING) ADVANCE(n, q);
#else
#define SKIP_QUERIES(n, q, kind)
#endif

/// A walked query's logarithm, and product of grad and out; of one that isn't there, what leaves no
/// weight.
static ALWAYS_INLINE float2 state_of(global const char* lse, global const char* delta, ulong at,
                                     bool there) {
  return there ? (float2)(logarithm_of(((global const T*)lse)[at]), ((global const T*)delta)[at])
               : (float2)(INFINITY, 0);
}

#define KEEP_KEY_SUMS                                      \
  do {                                                     \
    if (OF_KEYS) KEEP_SUMS(key_sums, PIECES(DEPTH));       \
    if (OF_VALUES) KEEP_SUMS(value_sums, PIECES(COLUMNS)); \
  } while (0)

// The weights and slopes of the work-item's scores, by the walked queries' states.
#if MODIFIED
#define WEIGH_SCORE(i, state) \
  WEIGH_MODIFIED(weight[i], slope[i], QUERY_OF(i), KEY_OF(i), state.x, state.y, taken >> i & 1)
#else
#define WEIGH_SCORE(i, state) WEIGH(weight[i], slope[i], state.x, state.y, KEPT(i))
#endif
#define WEIGH_SCORES                        \
  UNROLL_LANES                              \
  for (uint i = 0; i < SCORES; i++) {       \
    const float2 state = states[WALKED(i)]; \
    WEIGH_SCORE(i, state);                  \
  }

// Rows of queries and their states on their way.
#define FETCH_QUERIES(n, q)                                                           \
  do {                                                                                \
    const uint left_ = p.queries - (q);                                               \
    fetch(held, ROWS_AT(query, p.query, n, q), p.query, left_, DEPTH, OF_KEYS, item); \
    next_state = state_of(lse, delta, row0 + (ulong)(n) * p.queries + (q) + item,     \
                          item < BK && item < left_);                                 \
  } while (0)

/// Global size: blocks of BQ keys * ITEMS, batch * heads of key.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void
attention_key_gradient_wave_matrix(BACKWARD_ARGUMENTS MODIFICATION_PARAMETERS) {
  local ushort query_tile[ELEMENTS(DEPTH)] __attribute__((aligned(16)));
  local ushort query_across[ELEMENTS_ACROSS(DEPTH)] __attribute__((aligned(16)));
  local ushort grad_tile[ELEMENTS(COLUMNS)] __attribute__((aligned(16)));
  local ushort grad_across[ELEMENTS_ACROSS(COLUMNS)] __attribute__((aligned(16)));
  local float2 states[BK];  // of the walked queries
#ifdef REGISTERS
  local uint registers[REGISTERS];
#endif
  const uint item = get_local_id(0), lane = LANE(item);
  const uint k0 = (uint)get_group_id(0) * BQ, z = get_group_id(1), key_heads = p.heads / p.group;
  const uint b = z / key_heads, hk = z % key_heads;
  const uint keys = min((uint)BQ, p.keys - k0);
  key = OPERAND(key) + HEAD_AT(key, IN, b, hk) + k0 * p.key.row * 2;
  value = OPERAND(value) + HEAD_AT(value, IN, b, hk) + k0 * p.value.row * 2;
  query = OPERAND(query) + HEAD_AT(query, IN, b, hk * p.group);
  grad = OPERAND(grad) + HEAD_AT(grad, IN, b, hk * p.group);
  lse = OPERAND(lse);
  delta = OPERAND(delta);

  const uint begin = p.causal ? k0 : 0;
  const ulong row0 = ((ulong)b * p.heads + hk * p.group) * p.queries;
#if MODIFIED
  CAPTURED_DECLARATIONS
  const bool scatters = OF_KEYS;
  global const uchar* const all_blocks = blocks + blocks_offset + b * m.batch;
#endif
  const uint wave_key = WAVE_OF(item) * PIECE_N, own = wave_key + lane % PIECE_N;
  Own own_key[DEPTH_FRAGMENTS], own_value[COLUMN_FRAGMENTS];
  load_own(own_key, key, p.key, own, own < keys, DEPTH, lane);
  if (OF_KEYS) load_own(own_value, value, p.value, own, own < keys, COLUMNS, lane);
  Sums key_sums[PIECES(DEPTH)], value_sums[PIECES(COLUMNS)];
  clear(key_sums, DEPTH);
  clear(value_sums, COLUMNS);
  KEEP_KEY_SUMS;
  ushort8 held[MOST(OF_KEYS ? HELD_ACROSS(DEPTH) : HELD(DEPTH),
                    OF_VALUES ? HELD_ACROSS(COLUMNS) : HELD(COLUMNS))];
  float2 next_state;
  uint head = begin < p.queries ? 0 : p.group, q0 = begin, next_head, next_q0;
  KINDS
  SKIP_QUERIES(head, q0, kind)
  if (head < p.group) FETCH_QUERIES(head, q0);
  for (; head < p.group; head = next_head, q0 = next_q0 NEXT_KIND) {
    next_head = head;
    next_q0 = q0;
    ADVANCE(next_head, next_q0);
    SKIP_QUERIES(next_head, next_q0, next_kind)
    const uint h = hk * p.group + head;
    const ulong row = ((ulong)b * p.heads + h) * p.queries;
#if MASKED
    global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
    global const uchar* const head_blocks = all_blocks + h * m.head;
#endif
    // No one reads the queries before any more, and then everyone's are there.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < BK) states[item] = next_state;
    store(query_tile, query_across, held, DEPTH, true, OF_KEYS, item);
    fetch(held, ROWS_AT(grad, p.grad, head, q0), p.grad, p.queries - q0, COLUMNS, OF_VALUES, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    // A wave without keys, or whose keys none of these queries sees.
    const bool works = EMULATED || (wave_key < keys && !(p.causal && q0 + BK <= k0 + wave_key));
    Sums s[FK], slopes[FK];
    clear(slopes, BK);
    if (works) multiply_rows(s, own_key, query_tile, DEPTH, lane REGISTERS_PASSED);
    store(grad_tile, grad_across, held, COLUMNS, OF_KEYS, OF_VALUES, item);
    if (next_head < p.group) FETCH_QUERIES(next_head, next_q0);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!works) continue;
   private float* const weight = (private float*)s;
   private float* const slope = (private float*)slopes;
#if MODIFIED
    TAKEN_BITS(SCORES, QUERY_OF, KEY_OF, kind, q0 + BK > p.queries || keys < BQ)
#else
    SCALE_AND_MASK(q0 + BK > p.queries || (p.causal && k0 + wave_key + PIECE_N > q0 + 1))
#endif
    KEPT_BITS
    if (OF_KEYS) multiply_rows(slopes, own_value, grad_tile, COLUMNS, lane REGISTERS_PASSED);
    KEEP_APART;  // else the states are on their way too early, and take registers
    WEIGH_SCORES
    if (OF_VALUES) add_rows(value_sums, s, grad_across, COLUMNS, lane REGISTERS_PASSED);
    if (OF_KEYS) add_rows(key_sums, slopes, query_across, DEPTH, lane REGISTERS_PASSED);
    KEEP_KEY_SUMS;
  }
  if (own >= keys) return;
  if (OF_KEYS) {
    grad_key = OPERAND(grad_key) + HEAD_AT(grad_key, IN, b, hk);
    store_own(grad_key + (k0 + own) * p.grad_key.row * 2, p.grad_key.column, key_sums, DEPTH, scale,
              lane);
  }
  if (OF_VALUES) {
    grad_value = OPERAND(grad_value) + HEAD_AT(grad_value, IN, b, hk);
    store_own(grad_value + (k0 + own) * p.grad_value.row * 2, p.grad_value.column, value_sums,
              COLUMNS, 1.0f, lane);
  }
}
