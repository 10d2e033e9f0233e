// Flash attention for GPUs: a work-group takes BQ queries of a head and walks along its keys, BK at
// a time, with the maximum and the sum of each query's row kept up to date (online softmax).
//
// With SPLIT the keys are split among work-groups, where there are few queries, and
// attention_combine of combine.cl combines what they leave.
#include "attention/local.clh"

#ifndef SPLIT
#define SPLIT 0
#endif

#define TILE_ROWS (BQ > BK ? BQ : BK)
#define PITCH_S (BK + kLocalPadding)

typedef TYPEV(C, 2) T2;

/// The tiles of a chunk of columns: of the queries, and of the keys from k on.
static ALWAYS_INLINE void fetch_scores(private T* held_left, private T* held_right,
                                       global const char* query, uint queries,
                                       global const char* key, uint k, uint keys, uint chunk,
                                       uint item, const Arguments p) {
  fetch_tile(held_left, query, p.query.row, p.query.column, queries, BQ, chunk * kLocalChunk,
             p.depth, item);
  fetch_tile(held_right, key + k * p.key.row * STORAGE_SIZE(IN), p.key.row, p.key.column,
             min((uint)BK, keys - k), BK, chunk * kLocalChunk, p.depth, item);
}

/// The tiles of two chunks of the values from k on.
static ALWAYS_INLINE void fetch_values(private T* held_left, private T* held_right,
                                       global const char* value, uint k, uint keys, uint chunk,
                                       uint item, const Arguments p) {
  global const char* const from = value + k * p.value.row * STORAGE_SIZE(IN);
  const uint there = min((uint)BK, keys - k);
  fetch_tile(held_left, from, p.value.row, p.value.column, there, BK, chunk * kLocalChunk,
             p.columns, item);
  if (chunk + 1 < CV) {
    fetch_tile(held_right, from, p.value.row, p.value.column, there, BK, (chunk + 1) * kLocalChunk,
               p.columns, item);
  }
}

/// Each work-item's largest scores, for those that share the rows.
static ALWAYS_INLINE void share_maxima(local T* shared, private T s[RQ][RK],
                                       private const T* maximum, uint x, uint y) {
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    T largest = maximum[i];
    _Pragma("unroll") for (uint j = 0; j < RK; j++) {
      largest = s[i][j] > largest ? s[i][j] : largest;
    }
    shared[(y + SIDE * i) * kLocalSide + x] = largest;
  }
}

/// Takes the maxima that are shared into the rows', shrinks what was summed before, and turns
/// scores into weights: `row` is the first query's number among all.
static ALWAYS_INLINE void weigh_scores(private T s[RQ][RK], local const T* shared, local T* weights,
                                       private T* maximum, private T* total,
                                       private T sums[RQ][CV][2], uint x, uint y, ulong row,
                                       uint k0, T keep_threshold, T keep_scale, const Arguments p) {
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    T largest = maximum[i];
    _Pragma("unroll") for (uint n = 0; n < kLocalSide; n += 4) {
      const T4 others = LOAD4(shared + (y + SIDE * i) * kLocalSide + n);
      largest = others.s0 > largest ? others.s0 : largest;
      largest = others.s1 > largest ? others.s1 : largest;
      largest = others.s2 > largest ? others.s2 : largest;
      largest = others.s3 > largest ? others.s3 : largest;
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
      weight *= keep_weight(p.seed, p.counter, row + y + SIDE * i, k0 + x + kLocalSide * j,
                            keep_threshold, keep_scale);
#endif
      weights[(y + SIDE * i) * PITCH_S + x + kLocalSide * j] = weight;
    }
  }
}

/// sums += weights times the values of two chunks of columns, from `chunk` on.
static ALWAYS_INLINE void add_values(private T sums[RQ][CV][2], local const T* weights,
                                     local const T* left, local const T* right, uint chunk, uint x,
                                     uint y) {
  _Pragma("unroll 1") for (uint k = 0; k < BK; k += 4) {
    T4 weight[RQ];
    _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
      weight[i] = LOAD4(weights + (y + SIDE * i) * PITCH_S + k);
    }
    _Pragma("unroll") for (uint kk = 0; kk < 4; kk++) {
      _Pragma("unroll") for (uint n = 0; n < 2; n++) {
        if (chunk + n >= CV) continue;
        const T2 v = *(local const T2*)((n == 0 ? left : right) + (k + kk) * PITCH + 2 * x);
        _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
          const T w = ((private const T*)weight)[i * 4 + kk];
          sums[i][chunk + n][0] = fma(w, v.s0, sums[i][chunk + n][0]);
          sums[i][chunk + n][1] = fma(w, v.s1, sums[i][chunk + n][1]);
        }
      }
    }
  }
}

/// Stores a row's results, or with SPLIT what attention_combine wants of it: its number `at` among
/// all, `to` its place in out.
static ALWAYS_INLINE void store_row(private T sums[CV][2], T maximum, T sum, ulong at, uint split,
                                    uint x, global char* to, global char* lse,
                                    global char* workspace, const Arguments p) {
#if SPLIT
  global T* const state =
      (global T*)workspace + (at * p.splits + split) * (2 + (p.columns + 3) / 4 * 4);
  if (x == 0) {
    state[0] = maximum;
    state[1] = sum;
  }
#else
  // A row that is masked whole is 0, as in CPU torch.
  const T shrink = sum == 0 ? (T)0 : (T)1 / sum;
  if (x == 0) ((global T*)lse)[at] = maximum + log2(sum);
#endif
  _Pragma("unroll") for (uint n = 0; n < 2 * CV; n++) {
    const uint column = n / 2 * kLocalChunk + 2 * x + n % 2;
    if (column < p.columns) {
#if SPLIT
      state[2 + column] = sums[n / 2][n % 2];
#else
      STORE_FROM(IN, C, to, column * p.out.column, sums[n / 2][n % 2] * shrink);
#endif
    }
  }
}

/// Global size: splits * blocks of BQ queries * 256, batch * heads. Buffers: as attention_decode's.
/// per_item: keys of a split. scratch: 2 * TILE_ROWS * PITCH of C for tiles, BQ * PITCH_S for
/// weights, BQ * kLocalSide for maxima.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_forward_local(
    global const char* query, const ulong query_offset, global const char* key,
    const ulong key_offset, global const char* value, const ulong value_offset,
    global const char* mask, const ulong mask_offset, global char* out, const ulong out_offset,
    global char* lse, const ulong lse_offset, global char* workspace, const ulong workspace_offset,
    const Arguments p, const T factor, const T keep_threshold,
    const T keep_scale MODIFICATION_PARAMETERS, local T4* scratch) {
  const uint item = get_local_id(0), x = item % kLocalSide, y = item / kLocalSide;
  LOCATE_BLOCK;
#if MASKED
  global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
#if MODIFIED
  HEAD_BLOCKS(b, h);
#endif
  const ulong row = (ulong)z * p.queries + q0;
  local T* const left = (local T*)scratch;
  local T* const right = left + TILE_ROWS * PITCH;
  local T* const weights = right + TILE_ROWS * PITCH;
  local T* const shared = weights + BQ * PITCH_S;

  T maximum[RQ], total[RQ], sums[RQ][CV][2];
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    maximum[i] = -INFINITY;
    total[i] = 0;
    _Pragma("unroll") for (uint c = 0; c < CV; c++) sums[i][c][0] = sums[i][c][1] = 0;
  }
  // The next tiles travel while the current ones are multiplied.
  T held_left[HELD], held_right[HELD];
  uint k0 = first, next_k0;
  KINDS
  SKIP_KEYS(k0, kind, BK)
  if (k0 < keys) fetch_scores(held_left, held_right, query, queries, key, k0, keys, 0, item, p);
  for (; k0 < keys; k0 = next_k0 NEXT_KIND) {
    next_k0 = k0 + BK;
    SKIP_KEYS(next_k0, next_kind, BK)
    T s[RQ][RK];
    _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
      _Pragma("unroll") for (uint j = 0; j < RK; j++) s[i][j] = 0;
    }
    _Pragma("unroll 1") for (uint c = 0; c < CD; c++) {
      barrier(CLK_LOCAL_MEM_FENCE);
      store_tile(left, held_left, BQ, item);
      store_tile(right, held_right, BK, item);
      barrier(CLK_LOCAL_MEM_FENCE);
      if (c + 1 < CD) {
        fetch_scores(held_left, held_right, query, queries, key, k0, keys, c + 1, item, p);
      } else {
        fetch_values(held_left, held_right, value, k0, keys, 0, item, p);
      }
      dot_tiles(left, right, x, y, s);
    }
    MASK_SCORES(s, q0, k0);
    share_maxima(shared, s, maximum, x, y);
    barrier(CLK_LOCAL_MEM_FENCE);
    weigh_scores(s, shared, weights, maximum, total, sums, x, y, row, k0, keep_threshold,
                 keep_scale, p);
    // Two chunks of columns at a time, one in each tile: rows past the last key are zeros.
    _Pragma("unroll") for (uint c = 0; c < CV; c += 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      store_tile(left, held_left, BK, item);
      if (c + 1 < CV) store_tile(right, held_right, BK, item);
      barrier(CLK_LOCAL_MEM_FENCE);
      if (c + 2 < CV) {
        fetch_values(held_left, held_right, value, k0, keys, c + 2, item, p);
      } else if (next_k0 < keys) {
        fetch_scores(held_left, held_right, query, queries, key, next_k0, keys, 0, item, p);
      }
      add_values(sums, weights, left, right, c, x, y);
    }
  }

  // Each work-item summed its own keys.
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) shared[(y + SIDE * i) * kLocalSide + x] =
      total[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    const uint q = y + SIDE * i;
    T sum = 0;
    for (uint n = 0; n < kLocalSide; n++) sum += shared[q * kLocalSide + n];
    if (q >= queries) continue;
#if MODIFIED_MAXIMA && !SPLIT
    if (x == 0) ((global T*)OPERAND(maxima))[row + q] = maximum[i];
#endif
    store_row(sums[i], maximum[i], sum, row + q, split, x, out + q * p.out.row * STORAGE_SIZE(IN),
              lse, OPERAND(workspace), p);
  }
}
