// Uniform integers: base + a number in [0, range).
//
// Compile parameters, besides fill.clh's: BITS. 32: one Philox call for four elements, range below
// 2^32. 64: two calls. Range 0 stands for all 2^BITS numbers. V must be i64. Global size: ceil(n / 4)
// or more.
#include "random/fill.clh"

#ifndef BITS
#define BITS 32
#endif

/// The upper half of bits * range: as even as a remainder, and cheaper.
kernel void random_integer(global char *out, const FillLayout layout, ulong seed, ulong offset,
                           long base, ulong range) {
  const ulong group = get_global_id(0);
  if (group * 4 >= layout.n) return;
  const uint4 a = philox4x32(seed, group, offset);
#if BITS == 64
  const uint4 b = philox4x32(seed, group, offset + 1);
  ulong4 value = convert_ulong4((uint4)(a.xz, b.xz)) |
                 (convert_ulong4((uint4)(a.yw, b.yw)) << (ulong4)(32));
  if (range != 0) value = mul_hi(value, (ulong4)(range));
#else
  ulong4 value = convert_ulong4(a);
  if (range != 0) value = (value * (ulong4)(range)) >> (ulong4)(32);
#endif
  const long4 result = as_long4(value + (ulong4)((ulong)base));
  STORE_FOUR(out, layout, group, result);
}
