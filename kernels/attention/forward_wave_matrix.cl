// Flash attention in half and bfloat16 by the matrix instructions of AMD's waves: a work-group
// takes BQ queries of a head, a wave a piece of them, and walks along the keys, BK at a time, with
// the maximum and the sum of each query's row kept up to date (online softmax). Scores, weights and
// results never leave the registers. Keys and values go through local memory: while the ones are
// multiplied, the others are on their way in registers.
//
// Compile parameters besides wave_matrix.clh's: SPLIT (1: keys are split among work-groups, where
// there are few queries, and attention_combine of combine.cl combines what they leave).
#include "attention/wave_matrix.clh"

#ifndef SPLIT
#define SPLIT 0
#endif

#define FD (WHOLE(DEPTH) / PIECE_K)
#define FC PIECES(COLUMNS)

// Scores that nothing is added to are scaled as they become weights, where that leaves the largest
// one the largest. gfx908, whose sums lie in registers of their own, would move all of them once
// more.
#define SCALED_LATE(factor) (!MASKED && !MODIFIED && FRAGMENTS != MFMA_GFX908 && (factor) > 0)

// The query and the key of a work-item's score i.
#define QUERY_OF(i) own_query
#define KEY_OF(i) (k0 + (i) / SUMS * PIECE_M + SUM_LINE(lane, (i) % SUMS))
/// Scales and masks, or modifies, the scores of a query and the keys from k0.
static ALWAYS_INLINE void mask_scores(private float* s, uint own_query, uint first_query,
                                      uint queries, uint k0, uint keys, uint lane, T factor,
                                      const Arguments p MASK_PARAMETERS) {
#if MODIFIED
  TAKEN_BITS(SCORES, QUERY_OF, KEY_OF, kind, k0 + BK > keys || queries < BQ)
  UNROLL_LANES
  for (uint i = 0; i < SCORES; i++) {
    s[i] = MODIFY_IF(taken >> i & 1, s[i] * factor, QUERY_OF(i), KEY_OF(i));
  }
#else
  if (!SCALED_LATE(factor)) {
    UNROLL_LANES
    for (uint i = 0; i < SCORES; i++) s[i] *= factor;
  }
  // Masks where the block needs any.
  if (MASKED || k0 + BK > keys || (p.causal && k0 + BK > first_query + 1)) {
    UNROLL_LANES
    for (uint i = 0; i < SCORES; i++) {
      const uint k = KEY_OF(i);
      if (k >= keys || own_query >= p.queries || (p.causal && k > own_query)) {
        s[i] = -INFINITY;
      } else {
#if MASKED
        s[i] +=
            score_of_mask(LOAD_AS(C, MASK, head_mask, own_query * p.mask.row + k * p.mask.column));
#endif
      }
    }
  }
#endif
}

static inline float sum_of(Sums x) {
#if SUMS == 16
  return sum_of_eight(x.lo + x.hi);
#else
  return sum_of_eight(x);
#endif
}

/// Takes the scores into the row's maximum, shrinks what was summed before, and turns scores into
/// weights. `factor`: of scores that aren't scaled yet, above 0.
static ALWAYS_INLINE void weigh_scores(private Sums* s, private float* maximum,
                                       private float* total, private Sums* sums, float factor,
                                       uint lane REGISTERS_PARAMETER) {
  float largest = ((private const float*)s)[0];
  UNROLL_LANES
  for (uint i = 1; i < SCORES; i++) {
    largest = fmax(largest, ((private const float*)s)[i]);  // a NaN is left to the sum
  }
  largest = fmax(largest, of_others(largest, lane REGISTERS_PASSED));
  largest = fmax(*maximum, largest * factor);
  const float base = FINITE(float, largest);
  const float shrink = native_exp2(*maximum - base);
  *maximum = largest;
  *total *= shrink;
  // Few tiles raise a maximum.
  if (shrink != 1) {
    UNROLL_LANES
    for (uint n = 0; n < FC; n++) sums[n] *= shrink;
  }
  UNROLL_LANES
  for (uint i = 0; i < FK; i++) {
    s[i] = native_exp2(fma(s[i], (Sums)(factor), (Sums)(-base)));
    *total += sum_of(s[i]);
  }
}

/// Stores a row's results, or with SPLIT what attention_combine wants of it: its number `at` among
/// all, `to` its place in out. `keep`: the factor of weights that dropout kept.
static ALWAYS_INLINE void store_row(private const Sums* sums, float maximum, float total,
                                    float keep, ulong at, uint split, uint lane, global char* to,
                                    global char* lse, global char* workspace, const Arguments p) {
#if SPLIT
  global T* const state =
      (global T*)workspace + (at * p.splits + split) * (2 + (COLUMNS + 3) / 4 * 4);
  if (lane < PIECE_N) {
    state[0] = maximum;
    state[1] = total;
  }
  const float scale = keep;
#else
  // A row that is masked whole is 0, as in CPU torch.
  const float scale = total == 0 ? 0.0f : keep / total;
  if (lane < PIECE_N) ((global T*)lse)[at] = maximum + log2(total);
#endif
#if SPLIT
  UNROLL_LANES
  for (uint n = 0; n < FC; n++) {
    UNROLL_LANES
    for (uint r = 0; r < SUMS; r += 4) {
      const uint column = n * PIECE_M + SUM_LINE(lane, r);
      const float4 row = ((private const float4*)(sums + n))[r / 4] * scale;
      if (column < COLUMNS) vstore4(row, 0, state + 2 + column);
    }
  }
#else
  store_own(to, p.out.column, sums, COLUMNS, scale, lane);
#endif
}

/// Global size: splits * blocks of BQ queries * ITEMS, batch * heads. Buffers: as
/// attention_decode's. per_item: keys of a split.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void
attention_forward_wave_matrix(global const char* query, const ulong query_offset,
                              global const char* key, const ulong key_offset,
                              global const char* value, const ulong value_offset,
                              global const char* mask, const ulong mask_offset, global char* out,
                              const ulong out_offset, global char* lse, const ulong lse_offset,
                              global char* workspace, const ulong workspace_offset,
                              const Arguments p, const T factor, const T keep_threshold,
                              const T keep_scale MODIFICATION_PARAMETERS) {
  local ushort key_tile[ELEMENTS(DEPTH)] __attribute__((aligned(16)));
  local ushort value_tile[ELEMENTS_ACROSS(COLUMNS)] __attribute__((aligned(16)));
#ifdef REGISTERS
  local uint registers[REGISTERS];
#endif
  const uint item = get_local_id(0), lane = LANE(item);
  LOCATE_BLOCK;
#if MASKED
  global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
  HEAD_BLOCKS(b, h);
#endif
  const uint wave_query = WAVE_OF(item) * PIECE_N, own = wave_query + lane % PIECE_N;
  Own q[FD];
  load_own(q, query, p.query, own, own < queries, DEPTH, lane);

  float maximum = -INFINITY, total = 0;
  Sums sums[FC];
  UNROLL_LANES
  for (uint n = 0; n < FC; n++) sums[n] = (Sums)(0);
  ushort8 held[MOST(HELD(DEPTH), HELD_ACROSS(COLUMNS))];
  uint k0 = first, next_k0;
  KINDS
  SKIP_KEYS(k0, kind, BK)
  if (k0 < keys) fetch_rows(held, key + k0 * p.key.row * 2, p.key, keys - k0, DEPTH, item);
  for (; k0 < keys; k0 = next_k0 NEXT_KIND) {
    next_k0 = k0 + BK;
    SKIP_KEYS(next_k0, next_kind, BK)
    store_rows(key_tile, held, DEPTH, item);
    fetch_across(held, value + k0 * p.value.row * 2, p.value, keys - k0, COLUMNS, item);
    // Everyone's keys are there, and no one reads the values before any more.
    barrier(CLK_LOCAL_MEM_FENCE);
    // A wave without queries, or whose queries see none of these keys. All work-items emulate.
    const bool works =
        EMULATED || (wave_query < queries && !(p.causal && k0 >= q0 + wave_query + PIECE_N));
    Sums s[FK];
    if (works) {
      multiply_rows(s, q, key_tile, DEPTH, lane REGISTERS_PASSED);
      mask_scores((private float*)s, q0 + own, q0 + wave_query, queries, k0, keys, lane, factor,
                  p MASK_PASSED);
      weigh_scores(s, &maximum, &total, sums, SCALED_LATE(factor) ? factor : 1,
                   lane REGISTERS_PASSED);
#if DROPOUT
      UNROLL_LANES
      for (uint i = 0; i < SCORES; i++) {
        // Tiles begin at multiples of BK: the compiler sees which keys share a call.
        ((private float*)s)[i] *= keep_weight(p.seed, p.counter, (ulong)z * p.queries + q0 + own,
                                              KEY_OF(i) - k0 + k0 / BK * BK, keep_threshold, 1.0f);
      }
#endif
    }
    store_across(value_tile, held, COLUMNS, item);
    if (next_k0 < keys) {
      fetch_rows(held, key + next_k0 * p.key.row * 2, p.key, keys - next_k0, DEPTH, item);
    }
    // Everyone's values are there, and no one reads the keys any more.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (works) add_rows(sums, s, value_tile, COLUMNS, lane REGISTERS_PASSED);
  }

  total += of_others(total, lane REGISTERS_PASSED);
  if (own >= queries) return;
  const ulong at = (ulong)z * p.queries + q0 + own;
#if MODIFIED_MAXIMA && !SPLIT
  if (lane < PIECE_N) ((global T*)OPERAND(maxima))[at] = maximum;
#endif
  store_row(sums, maximum, total, DROPOUT ? keep_scale : 1, at, split, lane,
            out + own * p.out.row * 2, lse, OPERAND(workspace), p);
}
