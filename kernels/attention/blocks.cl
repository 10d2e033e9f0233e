// The table of a flex_attention's block mask: a kind for each block of queries and keys.
#include "include/dtype.clh"

/// kinds[row][index] = 1 for the first counts[row] indices of a row, 2 for those of the full
/// blocks, and 0 elsewhere. indices: [rows][columns]. Global size: rows.
kernel void attention_blocks(global char* kinds, const ulong kinds_offset,
                             global const char* counts, const ulong counts_offset,
                             global const char* indices, const ulong indices_offset,
                             global const char* full_counts, const ulong full_counts_offset,
                             global const char* full_indices, const ulong full_indices_offset,
                             const uint rows, const uint columns, const uint has_full) {
  const size_t row = get_global_id(0);
  if (row >= rows) return;
  global uchar* const to = (global uchar*)(kinds + kinds_offset) + row * columns;
  for (uint i = 0; i < columns; i++) to[i] = 0;
  for (uint full = 0; full <= has_full; full++) {
    global const int* const count =
        (global const int*)(full ? full_counts + full_counts_offset : counts + counts_offset);
    global const int* const index =
        (global const int*)(full ? full_indices + full_indices_offset : indices + indices_offset) +
        row * columns;
    const uint taken = (uint)clamp(count[row], 0, (int)columns);
    for (uint i = 0; i < taken; i++) {
      if ((uint)index[i] < columns) to[index[i]] = full ? 2 : 1;
    }
  }
}
