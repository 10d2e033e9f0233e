// From the swaps that LAPACK's pivots stand for to the permutation they make.
#include "include/assert.clh"

/// permutation: [batch, rows] longs, 0, 1, 2, ...; pivots: [batch, count] ints counted from 1. The
/// swap of row k with row pivots[k] - 1 is made for k = 0, 1, ...; a pivot
/// out of range is recorded. A work-item per matrix.
kernel void unpack_pivots(global char* permutation, ulong permutation_offset,
                          global const char* pivots, ulong pivots_offset, ulong batch, uint rows,
                          uint count, global int* asserts, uint site) {
  const ulong z = get_global_id(0);
  if (z >= batch) return;
  global long* row = (global long*)(permutation + permutation_offset) + z * rows;
  global const int* pivot = (global const int*)(pivots + pivots_offset) + z * count;
  for (uint k = 0; k < count; k++) {
    if (!check_index((long)pivot[k] - 1, rows, asserts, site)) continue;
    const uint other = (uint)(pivot[k] - 1);
    const long value = row[k];
    row[k] = row[other];
    row[other] = value;
  }
}
