// Flash attention for GPUs: a work-group takes BQ queries of a head and walks along its keys, BK at
// a time, with the maximum and the sum of each query's row kept up to date (online softmax).
//
// With SPLIT the keys are split among work-groups, where there are few queries, and
// attention_combine of decode.cl combines what they leave.
#include "attention/local.clh"

#ifndef SPLIT
#define SPLIT 0
#endif

#define TILE_ROWS (BQ > BK ? BQ : BK)
#define PITCH_S (BK + 4)

typedef TYPEV(C, 2) T2;

/// Global size: splits * blocks of BQ queries * 256, batch * heads. Buffers: as attention_decode's.
/// per_item: keys of a split. scratch: 2 * TILE_ROWS * PITCH of C for tiles, BQ * PITCH_S for
/// weights, BQ * 16 for maxima.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_forward_local(
    global const char* query, const ulong query_offset, global const char* key,
    const ulong key_offset, global const char* value, const ulong value_offset,
    global const char* mask, const ulong mask_offset, global char* out, const ulong out_offset,
    global char* lse, const ulong lse_offset, global char* workspace, const ulong workspace_offset,
    const Arguments p, const T factor, const T keep_threshold,
    const T keep_scale MODIFICATION_PARAMETERS, local T4* scratch) {
  const uint item = get_local_id(0), x = item % 16, y = item / 16;
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
#define FETCH_SCORES(k, c)                                                                       \
  do {                                                                                           \
    fetch_tile(held_left, query, p.query.row, p.query.column, queries, BQ, (c) * CHUNK, p.depth, \
               item);                                                                            \
    fetch_tile(held_right, key + (k) * p.key.row * STORAGE_SIZE(IN), p.key.row, p.key.column,    \
               min((uint)BK, keys - (k)), BK, (c) * CHUNK, p.depth, item);                       \
  } while (0)
#define FETCH_VALUES(k, c)                                                                      \
  do {                                                                                          \
    global const char* const from = value + (k) * p.value.row * STORAGE_SIZE(IN);               \
    const uint there = min((uint)BK, keys - (k));                                               \
    fetch_tile(held_left, from, p.value.row, p.value.column, there, BK, (c) * CHUNK, p.columns, \
               item);                                                                           \
    if ((c) + 1 < CV) {                                                                         \
      fetch_tile(held_right, from, p.value.row, p.value.column, there, BK, ((c) + 1) * CHUNK,   \
                 p.columns, item);                                                              \
    }                                                                                           \
  } while (0)
  uint k0 = first, next_k0;
  KINDS
  SKIP_KEYS(k0, kind, BK)
  if (k0 < keys) FETCH_SCORES(k0, 0);
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
        FETCH_SCORES(k0, c + 1);
      } else {
        FETCH_VALUES(k0, 0);
      }
      dot_tiles(left, right, x, y, s);
    }
    MASK_SCORES(s, q0, k0);
    _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
      T largest = maximum[i];
      _Pragma("unroll") for (uint j = 0; j < RK; j++) {
        largest = s[i][j] > largest ? s[i][j] : largest;
      }
      shared[(y + SIDE * i) * 16 + x] = largest;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
      T largest = maximum[i];
      _Pragma("unroll") for (uint n = 0; n < 16; n += 4) {
        const T4 others = LOAD4(shared + (y + SIDE * i) * 16 + n);
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
        weight *= keep_weight(p.seed, p.counter, row + y + SIDE * i, k0 + x + 16 * j,
                              keep_threshold, keep_scale);
#endif
        weights[(y + SIDE * i) * PITCH_S + x + 16 * j] = weight;
      }
    }
    // Two chunks of columns at a time, one in each tile: rows past the last key are zeros.
    _Pragma("unroll") for (uint c = 0; c < CV; c += 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      store_tile(left, held_left, BK, item);
      if (c + 1 < CV) store_tile(right, held_right, BK, item);
      barrier(CLK_LOCAL_MEM_FENCE);
      if (c + 2 < CV) {
        FETCH_VALUES(k0, c + 2);
      } else if (next_k0 < keys) {
        FETCH_SCORES(next_k0, 0);
      }
      _Pragma("unroll 1") for (uint k = 0; k < BK; k += 4) {
        T4 weight[RQ];
        _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
          weight[i] = LOAD4(weights + (y + SIDE * i) * PITCH_S + k);
        }
        _Pragma("unroll") for (uint kk = 0; kk < 4; kk++) {
          _Pragma("unroll") for (uint n = 0; n < 2; n++) {
            if (c + n >= CV) continue;
            const T2 v = *(local const T2*)((n == 0 ? left : right) + (k + kk) * PITCH + 2 * x);
            _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
              const T w = ((private const T*)weight)[i * 4 + kk];
              sums[i][c + n][0] = fma(w, v.s0, sums[i][c + n][0]);
              sums[i][c + n][1] = fma(w, v.s1, sums[i][c + n][1]);
            }
          }
        }
      }
    }
  }

  // Each work-item summed its own keys.
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) shared[(y + SIDE * i) * 16 + x] = total[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint i = 0; i < RQ; i++) {
    const uint q = y + SIDE * i;
    T sum = 0;
    for (uint n = 0; n < 16; n++) sum += shared[q * 16 + n];
    if (q >= queries) continue;
#if SPLIT
    global T* const state = (global T*)OPERAND(workspace) +
                            ((row + q) * p.splits + split) * (2 + (p.columns + 3) / 4 * 4);
    if (x == 0) {
      state[0] = maximum[i];
      state[1] = sum;
    }
#else
    // A row that is masked whole is 0, as in CPU torch.
    const T shrink = sum == 0 ? (T)0 : (T)1 / sum;
    if (x == 0) ((global T*)lse)[row + q] = maximum[i] + log2(sum);
#if MODIFIED_MAXIMA
    if (x == 0) ((global T*)OPERAND(maxima))[row + q] = maximum[i];
#endif
    global char* const to = out + q * p.out.row * STORAGE_SIZE(IN);
#endif
    _Pragma("unroll") for (uint n = 0; n < 2 * CV; n++) {
      const uint column = n / 2 * CHUNK + 2 * x + n % 2;
      if (column < p.columns) {
#if SPLIT
        state[2 + column] = sums[i][n / 2][n % 2];
#else
        STORE_FROM(IN, C, to, column * p.out.column, sums[i][n / 2][n % 2] * shrink);
#endif
      }
    }
  }
}
