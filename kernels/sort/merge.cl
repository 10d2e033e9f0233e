// Merge sort of rows of keys in lexicographic order, moving their numbers alone.
//
// Compile parameters: KEY (key.clh).
#include "sort/key.clh"

/// -1, 0 or 1 as row a is less than, equal to or greater than row b.
static inline int compare_rows(global const Key* keys, uint columns, uint a, uint b) {
  global const Key* p = keys + (ulong)a * columns;
  global const Key* q = keys + (ulong)b * columns;
  for (uint c = 0; c < columns; c++) {
    if (p[c] != q[c]) return p[c] < q[c] ? -1 : 1;
  }
  return 0;
}

/// Merges neighbouring sorted runs of `width` rows: each row finds its place by a binary search in
/// the other run. first: order is not read, row i is at i.
kernel void sort_merge(global const char* keys_base, ulong keys_offset,
                       global const char* from_base, ulong from_offset, global char* to_base,
                       ulong to_offset, uint n, uint columns, uint width, uint first) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  global const Key* keys = (global const Key*)(keys_base + keys_offset);
  global const uint* from = (global const uint*)(from_base + from_offset);
  const uint own = first ? i : from[i];
  const uint run = i / width;
  const bool left = (run & 1) == 0;
  const uint pair = (run & ~1u) * width;  // where the two runs begin
  const uint other = left ? min(pair + width, n) : pair;
  uint low = other, high = left ? min(other + width, n) : pair + width;
  while (low < high) {
    const uint middle = low + (high - low) / 2;
    const int order = compare_rows(keys, columns, first ? middle : from[middle], own);
    // Equal rows of the left run come first.
    if (left ? order < 0 : order <= 0)
      low = middle + 1;
    else
      high = middle;
  }
  const uint start = left ? pair : pair + width;
  ((global uint*)(to_base + to_offset))[pair + (i - start) + (low - other)] = own;
}
