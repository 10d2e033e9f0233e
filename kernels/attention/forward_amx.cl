// Flash attention of bfloat16 by x86's AMX (gemm/amx.clh), on CPUs.
//
// A work-item takes 32 queries of a head and walks along its keys, 64 at a time, with the maximum
// and the sum of each query's row kept up to date (online softmax). All that it computes has
// queries in its lanes. Scores are keys times queries: keys are tiles' rows as they lie, and
// queries are packed once. Results are values, transposed by a kernel of their own (amx_values.cl),
// times weights. Pairs of a query's weights are an operand without a move across lanes. They are
// two numbers of bfloat16 each: by one, results would be less exact than CPU torch's.
//
// Compile parameters besides attention.clh's (C f32, IN bf16): STEPS and COLUMN_TILES (a row of key
// and of value, in 32 elements).
#define WIDTH 16
#define NV 2
#define R 8
#define BLOCK 64
#include "include/item_by_item.clh"
#include "attention/lanes.clh"
#define K_PACK 2
#include "gemm/amx.clh"

#ifndef STEPS
#define STEPS 2
#endif
#ifndef COLUMN_TILES
#define COLUMN_TILES 2
#endif

#define T V
#include "include/transpose.clh"
#undef T

/// packed[pair of depth][query], with zeros for queries that aren't there.
static inline void pack_queries(global const char* query, uint queries, private uint* packed,
                                const Arguments p) {
  for (uint i = 0; i < STEPS * 16 * NQ; i++) packed[i] = 0;
  for (uint q = 0; q < queries; q++) {
    global const ushort* row = (global const ushort*)query + q * p.query.row;
    for (uint pair = 0; pair < STEPS * 16; pair++) {
      packed[pair * NQ + q] =
          row[2 * pair * p.query.column] | (uint)row[(2 * pair + 1) * p.query.column] << 16;
    }
  }
}

/// scores[key][query] of 32 keys, of which `count` exist.
static inline void score_keys(global const char* key, uint count, private const uint* packed,
                              private V* scores, const Arguments p) {
  ushort16 rows[32][2 * STEPS];
  ulong first = (ulong)key, row = p.key.row * STORAGE_SIZE(bf16);
  if (count < 32) {
    for (uint i = 0; i < 32; i++) {
      for (uint j = 0; j < 2 * STEPS; j++) {
        rows[i][j] =
            i < count ? vload16(j, (global const ushort*)key + i * p.key.row) : (ushort16)(0);
      }
    }
    first = (ulong)rows;
    row = STEPS * 64;
  }
  for (uint i = 0; i < 32 * NV; i++) scores[i] = (V)(0);
  multiply_tiles(first, first + 16 * row, row, 64, STEPS, 0, 1, (global const uint*)(ulong)packed,
                 scores);
}

/// Both numbers of each lane side by side, the first one in the low half.
static inline uint16 pair_of(ushort16 low, ushort16 high) {
  return convert_uint16(low) | convert_uint16(high) << (uint16)(16);
}

/// Scales and masks the scores of `count` keys from k0 on, in `tiles` of 32, and raises the rows'
/// maxima.
static ALWAYS_INLINE void mask_scores(private V* scores, private V* largest, uint q0, uint k0,
                                      uint count, uint tiles, float factor, const V lanes,
                                      const Arguments p MASK_PARAMETERS) {
  for (uint k = 0; k < count; k += R) {
    V tile[R * NV];
    _Pragma("unroll") for (uint i = 0; i < R * NV; i++) {
      tile[i] = scores[k * NV + i] * (V)(factor);
    }
    MASK_TILE(tile, head_mask, k, k0, count, q0);
    _Pragma("unroll") for (uint i = 0; i < R; i++) {
      _Pragma("unroll") for (uint v = 0; v < NV; v++) {
        const V x = tile[i * NV + v];
        scores[(k + i) * NV + v] = x;
        largest[v] = x > largest[v] ? x : largest[v];
      }
    }
  }
  // Keys that fill the last tile have no weight.
  for (uint i = (count + R - 1) / R * R * NV; i < 32 * NV * tiles; i++) scores[i] = (V)(-INFINITY);
}

/// Weights of scores, as pairs of keys in two numbers of bfloat16 each: rounded, and what is left.
/// Adds them to the rows' totals.
static ALWAYS_INLINE void weigh_scores(private const V* scores, private const V* base,
                                       private V* total, private uint* weights, private uint* rests,
                                       uint tiles) {
  for (uint pair = 0; pair < 16 * tiles; pair++) {
    _Pragma("unroll") for (uint v = 0; v < NV; v++) {
      const V low = EXP2_LANES(scores[2 * pair * NV + v] - base[v]);
      const V high = EXP2_LANES(scores[(2 * pair + 1) * NV + v] - base[v]);
      total[v] += low + high;
      const ushort16 even = encode_bf1616(low), odd = encode_bf1616(high);
      vstore16(pair_of(even, odd), v, weights + pair * NQ);
      // The rest is cut, not rounded: its last bits are past those of float.
      const uint16 left_even = as_uint16(low - decode_bf1616(even));
      const uint16 left_odd = as_uint16(high - decode_bf1616(odd));
      vstore16(left_even >> (uint16)(16) | (left_odd & (uint16)(0xffff0000u)), v,
               rests + pair * NQ);
    }
  }
}

/// Stores the rows' logarithms, and sums[column][query] by the rows' totals as rows of `out`.
static inline void store_results(private const V* sums, private const V* maximum,
                                 private const V* total, global float* logarithms, global char* out,
                                 uint queries, const Arguments p) {
  for (uint v = 0; v < NV; v++) {
    // A row that is masked whole is 0, as in CPU torch.
    const V inverse = total[v] == (V)(0) ? (V)(0) : (V)(1) / total[v];
    Lanes logarithm;
    logarithm.vector = maximum[v] + log2(total[v]);
    for (uint e = 0; e < WIDTH && v * WIDTH + e < queries; e++) {
      logarithms[v * WIDTH + e] = logarithm.element[e];
    }
    for (uint c = 0; c < COLUMN_TILES * 32; c += 16) {
      V square[16];
      _Pragma("unroll") for (uint i = 0; i < 16; i++) square[i] = sums[(c + i) * NV + v] * inverse;
      transpose(square);
      for (uint e = 0; e < WIDTH && v * WIDTH + e < queries; e++) {
        global char* to = out + ((v * WIDTH + e) * p.out.row + c * p.out.column) * STORAGE_SIZE(IN);
        if (p.out.column == 1) {
          STOREV_FROM(IN, C, 16, to, 0, square[e]);
        } else {
          Lanes columns;
          columns.vector = square[e];
          for (uint i = 0; i < 16; i++) STORE_FROM(IN, C, to, i * p.out.column, columns.element[i]);
        }
      }
    }
  }
}

/// Global size: blocks of 32 queries, batch * heads. Buffers: query, key, value, mask, out, lse (of
/// C: see attention.clh), value being what amx_values.cl left. factor: scale * log2(e).
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void attention_forward_amx(
    global const char* query, const ulong query_offset, global const char* key,
    const ulong key_offset, global const char* value, const ulong value_offset,
    global const char* mask, const ulong mask_offset, global char* out, const ulong out_offset,
    global char* lse, const ulong lse_offset, const Arguments p, const float factor,
    const uint value_row, const float keep_threshold, const float keep_scale) {
  LOCATE_QUERIES;
  value += (ulong)(b * (p.heads / p.group) + hk) * p.columns * value_row * STORAGE_SIZE(IN);
#if MASKED
  global const char* const head_mask = OPERAND(mask) + HEAD_AT(mask, MASK, b, h);
#endif
  uint packed[STEPS * 16 * NQ], weights[BLOCK / 2 * NQ], rests[BLOCK / 2 * NQ];
  V scores[BLOCK * NV], sums[COLUMN_TILES * 32 * NV];
  pack_queries(query, queries, packed, p);
  const V lanes = lane_numbers();
  V maximum[NV], total[NV];
  for (uint v = 0; v < NV; v++) {
    maximum[v] = (V)(-INFINITY);
    total[v] = (V)(0);
  }
  for (uint i = 0; i < COLUMN_TILES * 32 * NV; i++) sums[i] = (V)(0);

  begin_tiles();
  for (uint k0 = 0; k0 < keys; k0 += BLOCK) {
    const uint count = min((uint)BLOCK, keys - k0), tiles = (count + 31) / 32;
    for (uint t = 0; t < tiles; t++) {
      score_keys(key + (k0 + 32 * t) * p.key.row * STORAGE_SIZE(IN), min(32u, count - 32 * t),
                 packed, scores + 32 * NV * t, p);
    }
    V largest[NV], base[NV], shrink[NV];
    for (uint v = 0; v < NV; v++) largest[v] = maximum[v];
    mask_scores(scores, largest, q0, k0, count, tiles, factor, lanes, p MASK_PASSED);
    bool shrinks = false;
    for (uint v = 0; v < NV; v++) {
      base[v] = FINITE(V, largest[v]);
      shrink[v] = EXP2_LANES(maximum[v] - base[v]);
      shrinks |= any(shrink[v] != (V)(1));
      total[v] *= shrink[v];
      maximum[v] = largest[v];
    }
    weigh_scores(scores, base, total, weights, rests, tiles);
    if (shrinks) {
      for (uint c = 0; c < COLUMN_TILES * 32; c++) {
        _Pragma("unroll") for (uint v = 0; v < NV; v++) sums[c * NV + v] *= shrink[v];
      }
    }
    const ulong row = value_row * STORAGE_SIZE(bf16);
    for (uint c = 0; c < COLUMN_TILES; c++) {
      const ulong first = (ulong)value + 32 * c * row + k0 * STORAGE_SIZE(bf16);
      multiply_tiles(first, first + 16 * row, row, 64, tiles, 0, 1,
                     (global const uint*)(ulong)weights, sums + c * 32 * NV);
      multiply_tiles(first, first + 16 * row, row, 64, tiles, 0, 1,
                     (global const uint*)(ulong)rests, sums + c * 32 * NV);
    }
  }
  end_tiles();

  store_results(sums, maximum, total, (global float*)lse + (ulong)z * p.queries + q0, out, queries,
                p);
}
