// Flash attention in half and bfloat16 by NVIDIA's tensor cores: a work-group takes 64 queries of a
// head, a warp (32 work-items) 16 of them, and walks along the keys, BK at a time, with the maximum
// and the sum of each query's row kept up to date (online softmax). Scores, weights and results
// never leave the registers; keys and values are prefetched to local memory while those before them
// are multiplied.
//
// A work-item has 4 of a 16 x 8 piece of scores or results: rows lane / 4 and 8 further on, columns
// lane % 4 * 2 and the next. A piece of weights is laid out as the multiplication with value wants
// it.
//
// Compile parameters besides attention.clh's: DEPTH and COLUMNS (of a row of query and key, and of
// value, rounded up to multiples of 16), BK (32 or 64), SPLIT (1: keys are split among work-groups,
// where there are few queries, and attention_combine of combine.cl combines what they leave). IN is
// f16 or bf16, C f32. Rows of query, key and value are contiguous, aligned to 16 bytes and a
// multiple of 8 elements long.
#ifndef IN
#define IN f16
#endif
#include "attention/tensor_core.clh"

#ifndef DEPTH
#define DEPTH 64
#define COLUMNS 64
#endif
#ifndef BK
#define BK 64
#endif
#ifndef SPLIT
#define SPLIT 0
#endif

#define BQ kTensorCoreRows
#define ITEMS kTensorCoreItems
#define FD (DEPTH / 16)  // 16 x 16 pieces of a query's row, 16 x 8 pieces of scores and of results
#define FK (BK / 8)
#define FC (COLUMNS / 8)
#define KEY_BYTES (BK * LINE(DEPTH))
#define STAGE_BYTES (KEY_BYTES + BK * LINE(COLUMNS))
#define QUERY_BYTES (BQ * LINE(DEPTH))
#define MEMORY_BYTES (QUERY_BYTES > 2 * STAGE_BYTES ? QUERY_BYTES : 2 * STAGE_BYTES)

/// Starts the copies of the keys and values from k on, and commits them as a group.
static ALWAYS_INLINE void copy_keys(uint to, global const char* key, global const char* value,
                                    uint k, uint keys, uint item, const Arguments p) {
  if (k < keys) {
    COPY_ROWS(to, key + k * p.key.row * 2, p.key.row, BK, keys - k, DEPTH, p.depth);
    COPY_ROWS(to + KEY_BYTES, value + k * p.value.row * 2, p.value.row, BK, keys - k, COLUMNS,
              p.columns);
  }
  commit_copies();
}

/// The pieces of a warp's queries, by way of local memory.
static ALWAYS_INLINE void load_queries(private uint4* q, uint memory, global const char* query,
                                       uint queries, uint item, const Arguments p) {
  const uint lane = item % 32, warp = item / 32;
  COPY_ROWS(memory, query, p.query.row, BQ, queries, DEPTH, p.depth);
  commit_copies();
  WAIT_COPIES(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint d = 0; d < FD; d++) {
    q[d] = load_matrices(memory + (warp * 16 + lane % 16) * LINE(DEPTH) + (d * 2 + lane / 16) * 16);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

/// s = the products of the warp's queries with the keys of a tile.
static ALWAYS_INLINE void score_keys(private float* s, private const uint4* q, uint tile,
                                     uint lane) {
  _Pragma("unroll") for (uint i = 0; i < FK * 4; i++) s[i] = 0;
  _Pragma("unroll") for (uint d = 0; d < FD; d++) {
    _Pragma("unroll") for (uint j = 0; j < FK / 2; j++) {
      const uint4 k = load_matrices(tile + (j * 16 + lane / 16 * 8 + lane % 8) * LINE(DEPTH) +
                                    (d * 2 + lane / 8 % 2) * 16);
      MULTIPLY(IN, s + j * 8, q[d], k.s0, k.s1);
      MULTIPLY(IN, s + j * 8 + 4, q[d], k.s2, k.s3);
    }
  }
}

// The query and the key of a work-item's score i.
#define QUERY_OF(i) (q0 + own_row + (i) / 2 % 2 * 8)
#define KEY_OF(i) (k0 + (i) / 4 * 8 + own_column + (i) % 2)
/// Scales and masks, or modifies, the scores of the queries from q0 and the keys from k0.
static ALWAYS_INLINE void mask_scores(private float* s, uint q0, uint queries, uint k0, uint keys,
                                      uint warp, uint own_row, uint own_column, T factor,
                                      const Arguments p MASK_PARAMETERS) {
#if MODIFIED
  TAKEN_BITS(FK * 4, QUERY_OF, KEY_OF, kind, k0 + BK > keys || queries < BQ)
  _Pragma("unroll") for (uint i = 0; i < FK * 4; i++) {
    s[i] = MODIFY_IF(taken >> i & 1, s[i] * factor, QUERY_OF(i), KEY_OF(i));
  }
#else
  _Pragma("unroll") for (uint i = 0; i < FK * 4; i++) s[i] *= factor;
  // Masks where the block needs any.
  if (MASKED || k0 + BK > keys || (p.causal && k0 + BK > q0 + warp * 16 + 1)) {
    _Pragma("unroll") for (uint i = 0; i < FK * 4; i++) {
      const uint q = QUERY_OF(i), k = KEY_OF(i);
      if (k >= keys || q >= p.queries || (p.causal && k > q)) {
        s[i] = -INFINITY;
      } else {
#if MASKED
        s[i] += score_of_mask(LOAD_AS(C, MASK, head_mask, q * p.mask.row + k * p.mask.column));
#endif
      }
    }
  }
#endif
}

/// Takes the scores into the rows' maxima, shrinks what was summed before, and leaves what scores
/// are taken less.
static ALWAYS_INLINE void raise_maxima(private const float* s, private float* maximum,
                                       private float* total, private float* sums,
                                       private float* base) {
  _Pragma("unroll") for (uint r = 0; r < 2; r++) {
    float largest = maximum[r];
    _Pragma("unroll") for (uint j = 0; j < FK; j++) {
      _Pragma("unroll") for (uint c = 0; c < 2; c++) {
        const float score = s[j * 4 + r * 2 + c];
        largest = score > largest ? score : largest;
      }
    }
    // The 4 work-items that share a row.
    _Pragma("unroll") for (uint step = 1; step <= 2; step *= 2) {
      const float theirs = exchange(largest, step);
      largest = theirs > largest ? theirs : largest;
    }
    base[r] = FINITE(float, largest);
    const float shrink = native_exp2(maximum[r] - base[r]);
    maximum[r] = largest;
    total[r] *= shrink;
    _Pragma("unroll") for (uint n = 0; n < FC; n++) {
      sums[n * 4 + r * 2] *= shrink;
      sums[n * 4 + r * 2 + 1] *= shrink;
    }
  }
}

/// sums += weights times the values of a tile.
static ALWAYS_INLINE void add_values(private float* sums, private const float* weights, uint tile,
                                     uint lane) {
  _Pragma("unroll") for (uint k = 0; k < BK / 16; k++) {
    uint4 piece;
    _Pragma("unroll") for (uint i = 0; i < 4; i++) {
      uint pair;
      PACK2(IN, weights[k * 8 + i * 2], weights[k * 8 + i * 2 + 1], pair);
      ((private uint*)&piece)[i] = pair;
    }
    _Pragma("unroll") for (uint n = 0; n < FC / 2; n++) {
      const uint4 v = load_matrices_transposed(
          tile + KEY_BYTES + (k * 16 + lane % 16) * LINE(COLUMNS) + (n * 2 + lane / 16) * 16);
      MULTIPLY(IN, sums + n * 8, piece, v.s0, v.s1);
      MULTIPLY(IN, sums + n * 8 + 4, piece, v.s2, v.s3);
    }
  }
}

/// Stores a row's results, or with SPLIT what attention_combine wants of it: its number `at` among
/// all, `to` its place in out.
static ALWAYS_INLINE void store_row(private const float* sums, float maximum, float sum, ulong at,
                                    uint split, uint lane, global char* to, global char* lse,
                                    global char* workspace, const Arguments p) {
#if SPLIT
  global T* const state =
      (global T*)workspace + (at * p.splits + split) * (2 + (p.columns + 3) / 4 * 4);
  if (lane % 4 == 0) {
    state[0] = maximum;
    state[1] = sum;
  }
#else
  // A row that is masked whole is 0, as in CPU torch.
  const float scale = sum == 0 ? 0.0f : 1.0f / sum;
  if (lane % 4 == 0) ((global T*)lse)[at] = maximum + log2(sum);
#endif
  _Pragma("unroll") for (uint n = 0; n < FC; n++) {
    const uint column = n * 8 + lane % 4 * 2;
    if (column >= p.columns) continue;
    const float low = sums[n * 4], high = sums[n * 4 + 1];
#if SPLIT
    state[2 + column] = low;
    state[3 + column] = high;
#else
    uint pair;
    PACK2(IN, low * scale, high * scale, pair);
    *(global uint*)(to + column * 2) = pair;
#endif
  }
}

/// Global size: splits * blocks of BQ queries * ITEMS, batch * heads. Buffers: as
/// attention_decode's. per_item: keys of a split.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_forward_tensor_core(
    global const char* query, const ulong query_offset, global const char* key,
    const ulong key_offset, global const char* value, const ulong value_offset,
    global const char* mask, const ulong mask_offset, global char* out, const ulong out_offset,
    global char* lse, const ulong lse_offset, global char* workspace, const ulong workspace_offset,
    const Arguments p, const T factor, const T keep_threshold,
    const T keep_scale MODIFICATION_PARAMETERS) {
  local uchar memory[MEMORY_BYTES] __attribute__((aligned(16)));
  const uint item = get_local_id(0), lane = item % 32, warp = item / 32;
  LOCATE_BLOCK;
#if MASKED
  global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
  HEAD_BLOCKS(b, h);
#endif
  const ulong row0 = (ulong)z * p.queries + q0;
  const uint own_row = warp * 16 + lane / 4, own_column = lane % 4 * 2;
  const uint stages = local_address(memory);

  uint4 q[FD];
  load_queries(q, stages, query, queries, item, p);

  float maximum[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, sums[FC * 4];
  _Pragma("unroll") for (uint i = 0; i < FC * 4; i++) sums[i] = 0;
  uint tile = stages, other = stages + STAGE_BYTES;
  uint k0 = first, next_k0;
  KINDS
  SKIP_KEYS(k0, kind, BK)
  copy_keys(tile, key, value, k0, keys, item, p);
  for (; k0 < keys; k0 = next_k0 NEXT_KIND) {
    next_k0 = k0 + BK;
    SKIP_KEYS(next_k0, next_kind, BK)
    // This work-item's part of the tile is there; after the barrier, everyone's is, and no one
    // reads the tile before any more.
    WAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    copy_keys(other, key, value, next_k0, keys, item, p);
    float s[FK * 4];
    score_keys(s, q, tile, lane);
    mask_scores(s, q0, queries, k0, keys, warp, own_row, own_column, factor, p MASK_PASSED);
    float base[2];
    raise_maxima(s, maximum, total, sums, base);
    _Pragma("unroll") for (uint i = 0; i < FK * 4; i++) {
      const uint r = i / 2 % 2;
      s[i] = native_exp2(s[i] - base[r]);
      total[r] += s[i];
#if DROPOUT
      s[i] *= keep_weight(p.seed, p.counter, row0 + own_row + r * 8,
                          k0 + i / 4 * 8 + own_column + i % 2, keep_threshold, keep_scale);
#endif
    }
    add_values(sums, s, tile, lane);
    const uint swap = tile;
    tile = other;
    other = swap;
  }
  WAIT_COPIES(0);

  _Pragma("unroll") for (uint r = 0; r < 2; r++) {
    float sum = total[r];
    _Pragma("unroll") for (uint step = 1; step <= 2; step *= 2) sum += exchange(sum, step);
    const uint at = own_row + r * 8;
    if (at >= queries) continue;
#if MODIFIED_MAXIMA && !SPLIT
    if (lane % 4 == 0) ((global T*)OPERAND(maxima))[row0 + at] = maximum[r];
#endif
    store_row(sums + r * 2, maximum[r], sum, row0 + at, split, lane, out + at * p.out.row * 2, lse,
              OPERAND(workspace), p);
  }
}
