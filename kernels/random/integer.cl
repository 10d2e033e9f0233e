// Uniform integers: base + a number in [0, range).
//
// Compile parameters, besides fill.clh's: BITS. 32: one Philox call for four elements, range below
// 2^32. 64: two calls. Range 0 stands for all 2^BITS numbers. V must be i64. LANES is for BITS=32
// alone. Global size: ceil(n / (4 * ITEM_GROUPS)) or more.
#include "random/fill.clh"
#include "random/lanes.clh"

#ifndef BITS
#define BITS 32
#endif

// The upper half of bits * range: as even as a remainder, and cheaper.
#define IN_RANGE(n, bits) \
  (range != 0 ? (bits * (ulong##n)(range)) >> (ulong##n)(32) : bits) + (ulong##n)((ulong)base)

kernel BY_LANES void random_integer(global char* out, const ulong out_offset,
                                    const FillArguments layout, ulong seed, ulong offset, long base,
                                    ulong range) {
  out += out_offset;
  const ulong first = get_global_id(0) * ITEM_GROUPS;
  if (first * 4 >= layout.n) return;
#define STORE_INTEGERS(word, place)           \
  const ulong16 bits = convert_ulong16(word); \
  STOREV_FROM(OUT, V, 16, out, place, as_long16(IN_RANGE(16, bits)))
  STORE_LANES(STORE_INTEGERS, layout.n)
  const ulong end = min(first + ITEM_GROUPS, (layout.n + 3) / 4);
  for (ulong group = first; group < end; group++) {
    const uint4 a = philox4x32(seed, group, offset);
#if BITS == 64
    const uint4 b = philox4x32(seed, group, offset + 1);
    ulong4 value =
        convert_ulong4((uint4)(a.xz, b.xz)) | (convert_ulong4((uint4)(a.yw, b.yw)) << (ulong4)(32));
    if (range != 0) value = mul_hi(value, (ulong4)(range));
    const long4 result = as_long4(value + (ulong4)((ulong)base));
#else
    const ulong4 bits = convert_ulong4(a);
    const long4 result = as_long4(IN_RANGE(4, bits));
#endif
    STORE_FOUR(out, layout, group, result);
  }
}
