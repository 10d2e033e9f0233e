// Coin tosses: one probability for all elements, one per element, and dropout.
//
// Compile parameters, besides fill.clh's: IN (tag of the probabilities or of dropout's input). A
// probability has 32 bits: heads if the random word is at most `limit`. P (f32 or f64) is the tag
// that a tensor's probabilities are compared in. Global size: ceil(n / (4 * ITEM_GROUPS)) or more;
// of bernoulli_tensor ceil(n / 4).
#include "random/fill.clh"
#include "random/lanes.clh"
#include "include/assert.clh"

#ifndef IN
#define IN f32
#endif
#ifndef P
#define P f32
#endif
#ifndef C
#define C f32
#endif

kernel BY_LANES void bernoulli_scalar(global char* out, const ulong out_offset,
                                      const FillArguments layout, ulong seed, ulong offset,
                                      uint limit) {
  out += out_offset;
  const ulong first = get_global_id(0) * ITEM_GROUPS;
  if (first * 4 >= layout.n) return;
#define STORE_HEADS(word, place) \
  STOREV_FROM(OUT, i32, 16, out, place, (word <= (uint16)(limit)) & (int16)(1))
  STORE_LANES(STORE_HEADS, layout.n)
  const ulong end = min(first + ITEM_GROUPS, (layout.n + 3) / 4);
  for (ulong group = first; group < end; group++) {
    const uint4 bits = philox4x32(seed, group, offset);
    const int4 heads = (bits <= (uint4)(limit)) & (int4)(1);
    const TYPEV(V, 4) values = CONVERTV(V, i32, 4, heads);
    STORE_FOUR(out, layout, group, values);
  }
}

#if CONTIGUOUS
#define OFFSETS(operands)        \
  ulong at[3];                   \
  at[0] = i * STORAGE_SIZE(OUT); \
  at[1] = i * STORAGE_SIZE(IN);  \
  at[2] = i;
#else
#define OFFSETS(operands) \
  uint at[3] = {0};       \
  DECODE_OFFSETS(at, operands, (uint)i, layout.dims, layout.size, layout.stride);
#endif

/// out = uniform < probability. A probability outside [0, 1], NaN included, fails.
kernel void bernoulli_tensor(global char* out, const ulong out_offset,
                             global const char* probability, const ulong probability_offset,
                             const OperandArguments layout, ulong seed, ulong offset,
                             global int* asserts, uint site) {
  out += out_offset;
  probability += probability_offset;
  const ulong group = get_global_id(0);
  if (group * 4 >= layout.n) return;
  uint word[4];
  vstore4(philox4x32(seed, group, offset), 0, word);
  const ulong end = min(group * 4 + 4, layout.n);
  for (ulong i = group * 4; i < end; i++) {
    OFFSETS(2)
    const TYPE(P) p = LOAD_AS(P, IN, probability + at[1], 0);
    if (!(p >= 0 && p <= 1)) record_failure(0, 0, asserts, site);
    const int heads = (word[i & 3] >> 8) * 0x1p-24f < p;
    STORE_FROM(OUT, i32, out + at[0], 0, heads);
  }
}

/// mask = heads, out = heads ? in * scale : 0
kernel BY_LANES void dropout(global char* out, const ulong out_offset, global const char* in,
                             const ulong in_offset, global char* mask, const ulong mask_offset,
                             const OperandArguments layout, ulong seed, ulong offset, uint limit,
                             TYPE(C) scale) {
  out += out_offset;
  in += in_offset;
  mask += mask_offset;
  const ulong first = get_global_id(0) * ITEM_GROUPS;
  if (first * 4 >= layout.n) return;
  // A product, so that what was NaN or infinite stays NaN.
#define DROP(n, bits, place)                                                              \
  const PASTE2(uchar, n) heads =                                                          \
      PASTE2(convert_uchar, n)((bits <= (PASTE2(uint, n))(limit)) & (PASTE2(int, n))(1)); \
  const TYPEV(C, n) x = LOADV_AS(C, IN, n, in, place);                                    \
  STOREV_FROM(OUT, C, n, out, place, x*(CONVERTV(C, u8, n, heads) * scale));              \
  STOREV(u8, n, mask, place, heads);
#define DROP_LANES(word, place) DROP(16, word, place)
  STORE_LANES(DROP_LANES, layout.n)
  const ulong end_group = min(first + ITEM_GROUPS, (layout.n + 3) / 4);
  for (ulong group = first; group < end_group; group++) {
    const uint4 bits = philox4x32(seed, group, offset);
#if CONTIGUOUS
    if (group * 4 + 4 <= layout.n) {
      DROP(4, bits, group)
      continue;
    }
#endif
    uint word[4];
    vstore4(bits, 0, word);
    const ulong end = min(group * 4 + 4, layout.n);
    for (ulong i = group * 4; i < end; i++) {
      OFFSETS(3)
      const uchar heads = word[i & 3] <= limit;
      const TYPE(C) x = LOAD_AS(C, IN, in + at[1], 0);
      STORE_FROM(OUT, C, out + at[0], 0, x * (heads ? scale : (TYPE(C))(0)));
      *(global uchar*)(mask + at[2]) = heads;
    }
  }
}
