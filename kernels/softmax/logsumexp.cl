// logsumexp: the largest element plus the logarithm of the sum of exponentials of differences from
// it. Every row is read twice, the second time from a cache if it fits one.
//
// An infinite largest element isn't subtracted, as infinities have no difference: a row of
// -infinities has the sum 0, and in one with an infinity all terms are at most 1. A NaN makes the
// sum NaN.
#include "include/item_by_item.clh"
#include "softmax/passes.clh"

#define SHIFT_OF(largest) (fabs(largest) == INFINITY ? 0 : (largest))
// As exact as ACC, whatever the result's dtype: it may be near 0, where the sum isn't.
#define TERM_OF(n, zero, below) EXP_BELOW_FOR(ACC, SCALAR, n, (below) > (zero) ? (zero) : (below))

/// Along a contiguous dimension: a work-item, or a work-group of GROUP, per row.
kernel ITEM_BY_ITEM void logsumexp_rows(global const char* in, const ulong in_offset,
                                        global char* out, const ulong out_offset,
                                        const Arguments args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  const uint vectors = args.length / WIDTH;
  const uint end_row = min((group + 1) * args.outer_per_item, args.outer);
  const ulong in_bytes = (ulong)args.length * STORAGE_SIZE(IN);
  in += in_offset + group * args.outer_per_item * in_bytes;
  for (uint row = group * args.outer_per_item; row < end_row; row++, in += in_bytes) {
    SCALAR largest = LOWEST(ACC), sum = 0;
    if (vectors > 0) largest = max_lanes(largest_of(in, item, vectors));
    FOR_TAIL(i) {
      const SCALAR x = LOAD_OF(IN, in, i);
      largest = LARGER(x, largest);
    }
    largest = group_max(largest, item, SHARED);
    const SCALAR shift = SHIFT_OF(largest);
    if (vectors > 0) {
      const VECTOR zero = (VECTOR)(0);
      VECTOR total = zero;
      FOR_BLOCKS(begin) {
        VECTOR block = zero;
        FOR_VECTORS(v, begin) {
          const VECTOR below = LOADV_OF(IN, in, v) - shift;
          block += TERM_OF(SUFFIX(WIDTH), zero, below);
        }
        total += block;
      }
      sum = sum_lanes(total);
    }
    FOR_TAIL(i) {
      const SCALAR below = LOAD_OF(IN, in, i) - shift;
      sum += TERM_OF(, 0, below);
    }
    sum = group_sum(sum, item, SHARED);
    if (item == 0) STORE_FROM(OUT, ACC, out + out_offset, row, log(sum) + largest);
  }
}

/// Along another dimension: a work-item for each WIDTH adjacent positions, which it may share with
/// the one before.
kernel ITEM_BY_ITEM void logsumexp_columns(global const char* in, const ulong in_offset,
                                           global char* out, const ulong out_offset,
                                           const Arguments args) {
  const uint tiles = (args.inner + WIDTH - 1) / WIDTH;
  const uint id = get_global_id(0);
  const uint outer = id / tiles;
  if (outer >= args.outer) return;
  const uint column = min(id % tiles * WIDTH, args.inner - WIDTH);
  const ulong next = (ulong)args.inner * STORAGE_SIZE(IN);
  in += in_offset + outer * args.length * next + column * STORAGE_SIZE(IN);
  VECTOR largest = (VECTOR)(LOWEST(ACC));
  for (uint i = 0; i < args.length; i++) {
    const VECTOR x = LOADV_OF(IN, in + i * next, 0);
    largest = LARGER(x, largest);
  }
  const VECTOR zero = (VECTOR)(0);
  const VECTOR shift = fabs(largest) == (VECTOR)(INFINITY) ? zero : largest;
  VECTOR sum = zero;
  for (uint begin = 0; begin < args.length; begin += BLOCK) {
    VECTOR block = zero;
    for (uint i = begin; i < min(begin + BLOCK, args.length); i++) {
      const VECTOR below = LOADV_OF(IN, in + i * next, 0) - shift;
      block += TERM_OF(SUFFIX(WIDTH), zero, below);
    }
    sum += block;
  }
  STOREV_FROM(OUT, ACC, WIDTH,
              out + out_offset + ((ulong)outer * args.inner + column) * STORAGE_SIZE(OUT), 0,
              log(sum) + largest);
}
