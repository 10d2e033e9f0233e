// Random permutations without a sort.
//
// By rank of random keys, exactly uniform, for small n; by a keyed bijection in one pass for any n,
// on CPUs in vectors for n up to 2^31. Compile parameter: OUT (tag of the result).
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "random/arguments.clh"

#ifndef OUT
#define OUT i64
#endif

/// out[rank of keys[i]] = i. Quadratic. Equal keys keep their order.
kernel void permute_rank(global char* out, const ulong out_offset, global const char* keys,
                         const ulong keys_offset, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  global const long* all = (global const long*)(keys + keys_offset);
  const long key = all[i];
  uint rank = 0;
  for (uint j = 0; j < n; j++) rank += all[j] < key || (all[j] == key && j < i);
  STORE_FROM(OUT, i64, out + out_offset, rank, (long)i);
}

static inline uint mix(uint x, uint key) {
  x = (x ^ key) * 0x9e3779b1u;
  x = (x ^ (x >> 15)) * 0x85ebca77u;
  x = (x ^ (x >> 13)) * 0xc2b2ae3du;
  return x ^ (x >> 16);
}

/// A Feistel network is a bijection of [0, 2^bits); following it from i until it comes back below n
/// (cycle walking) makes it one of [0, n).
kernel void permute_feistel(global char* out, const ulong out_offset, const FeistelArguments keys) {
  const ulong i = get_global_id(0);
  if (i >= keys.n) return;
  const uint left_mask = 0xffffffffu >> (32 - keys.left_bits);
  const uint right_mask = 0xffffffffu >> (32 - keys.right_bits);
  ulong value = i;
  do {
    uint left = (uint)(value >> keys.right_bits);
    uint right = (uint)value & right_mask;
    for (int round = 0; round < kRounds; round += 2) {
      left ^= mix(right, keys.key[round]) & left_mask;
      right ^= mix(left, keys.key[round + 1]) & right_mask;
    }
    value = ((ulong)left << keys.right_bits) | right;
  } while (value >= keys.n);
  value ^= value < 2 ? keys.swaps : 0;
  STORE_FROM(OUT, i64, out + out_offset, i, (long)value);
}

#ifdef OCL_DEVICE_CPU
#define AT_ONCE 32  // of them, in two vectors

static inline uint16 mix16(uint16 x, uint key) {
  x = (x ^ (uint16)(key)) * 0x9e3779b1u;
  x = (x ^ (x >> 15)) * 0x85ebca77u;
  x = (x ^ (x >> 13)) * 0xc2b2ae3du;
  return x ^ (x >> 16);
}

/// Two vectors side by side, whose multiplications don't wait for each other. Every number takes
/// one step at a time; those that left [0, n) are put together for the next.
kernel ITEM_BY_ITEM void permute_feistel_lanes(global char* out, const ulong out_offset,
                                               const FeistelArguments keys) {
  const ulong first = (ulong)get_global_id(0) * kFeistelStretch;
  if (first >= keys.n) return;
  const uint count = (uint)min((ulong)kFeistelStretch, keys.n - first);
  const uint16 left_mask = (uint16)(0xffffffffu >> (32 - keys.left_bits));
  const uint16 right_mask = (uint16)(0xffffffffu >> (32 - keys.right_bits));
  const uint16 shift = (uint16)(keys.right_bits);
  const uint n = (uint)keys.n;
  uint result[kFeistelStretch], pending[kFeistelStretch], place[kFeistelStretch];
  for (uint j = 0; j < kFeistelStretch; j++) {
    pending[j] = (uint)first + j;
    place[j] = j;
  }
  for (uint left = count; left > 0;) {
    uint remaining = 0;
    for (uint v = 0; v < left; v += AT_ONCE) {
      const uint16 a = vload16(0, pending + v), b = vload16(1, pending + v);
      uint16 left_a = a >> shift, right_a = a & right_mask;
      uint16 left_b = b >> shift, right_b = b & right_mask;
      for (int round = 0; round < kRounds; round += 2) {
        left_a ^= mix16(right_a, keys.key[round]) & left_mask;
        left_b ^= mix16(right_b, keys.key[round]) & left_mask;
        right_a ^= mix16(left_a, keys.key[round + 1]) & right_mask;
        right_b ^= mix16(left_b, keys.key[round + 1]) & right_mask;
      }
      uint value[AT_ONCE];
      vstore16(left_a << shift | right_a, 0, value);
      vstore16(left_b << shift | right_b, 1, value);
      // A later step writes over numbers that are not final.
#define STORE_NUMBER(j)                \
  {                                    \
    const uint where = place[v + (j)]; \
    result[where] = value[j];          \
    pending[remaining] = value[j];     \
    place[remaining] = where;          \
    remaining += value[j] >= n;        \
  }
      if (left - v >= AT_ONCE) {
        _Pragma("unroll") for (uint j = 0; j < AT_ONCE; j++) STORE_NUMBER(j)
      } else {
        for (uint j = 0; j < left - v; j++) STORE_NUMBER(j)
      }
    }
    left = remaining;
  }
  out += out_offset + first * STORAGE_SIZE(OUT);
  uint j = 0;
  for (; j + 16 <= count; j += 16) {
    const uint16 numbers = vload16(0, result + j);
    const long16 values = convert_long16(numbers ^ (as_uint16(numbers < 2) & keys.swaps));
    STOREV_FROM(OUT, i64, 16, out, j / 16, values);
  }
  for (; j < count; j++) {
    const uint number = result[j] ^ (result[j] < 2 ? keys.swaps : 0);
    STORE_FROM(OUT, i64, out, j, (long)number);
  }
}
#endif
