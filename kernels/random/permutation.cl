// Random permutations without a sort.
//
// Offers: permute_rank (small n: position by rank of random keys, exactly uniform), permute_feistel
// (any n: a keyed bijection, one pass). Compile parameter: OUT (tag of the result).
#include "include/dtype.clh"

#ifndef OUT
#define OUT i64
#endif

/// out[rank of keys[i]] = i. Quadratic. Equal keys keep their order.
kernel void permute_rank(global char *out, ulong out_offset, global const char *keys_base,
                         ulong keys_offset, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  global const long *keys = (global const long *)(keys_base + keys_offset);
  const long key = keys[i];
  uint rank = 0;
  for (uint j = 0; j < n; j++) rank += keys[j] < key || (keys[j] == key && j < i);
  STORE_FROM(OUT, i64, out + out_offset, rank, (long)i);
}

#define ROUNDS 24
typedef struct {
  ulong n;
  uint left_bits, right_bits;  // 2^(left_bits + right_bits) > n
  uint key[ROUNDS];
} FeistelKeys;

static inline uint mix(uint x, uint key) {
  x = (x ^ key) * 0x9e3779b1u;
  x = (x ^ (x >> 15)) * 0x85ebca77u;
  x = (x ^ (x >> 13)) * 0xc2b2ae3du;
  return x ^ (x >> 16);
}

/// A Feistel network is a bijection of [0, 2^bits); following it from i until it comes back below n
/// (cycle walking) makes it one of [0, n).
kernel void permute_feistel(global char *out, ulong out_offset, const FeistelKeys keys) {
  const ulong i = get_global_id(0);
  if (i >= keys.n) return;
  const uint left_mask = 0xffffffffu >> (32 - keys.left_bits);
  const uint right_mask = 0xffffffffu >> (32 - keys.right_bits);
  ulong value = i;
  do {
    uint left = (uint)(value >> keys.right_bits);
    uint right = (uint)value & right_mask;
    for (int round = 0; round < ROUNDS; round += 2) {
      left ^= mix(right, keys.key[round]) & left_mask;
      right ^= mix(left, keys.key[round + 1]) & right_mask;
    }
    value = ((ulong)left << keys.right_bits) | right;
  } while (value >= keys.n);
  STORE_FROM(OUT, i64, out + out_offset, i, (long)value);
}
