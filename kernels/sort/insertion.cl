// Sorts short rows of keys: a work-item inserts each element into its row. For CPU devices, where a
// work-item's own memory is as near as a register.
//
// Compile parameters: KEY (key.clh), SIZE (no row is longer).
#include "include/item_by_item.clh"
#include "sort/key.clh"
#ifndef SIZE
#define SIZE 32
#endif

/// Sorts the keys in place and writes the positions they came from.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void sort_insertion(
    global char* keys_base, ulong keys_offset, global char* index_base, ulong index_offset, uint n,
    uint rows, uint rows_per_item) {
  const uint begin = get_global_id(0) * rows_per_item;
  const uint end = min(begin + rows_per_item, rows);
  for (uint row = begin; row < end; row++) {
    global Key* keys = (global Key*)(keys_base + keys_offset) + (ulong)row * n;
    global uint* index = (global uint*)(index_base + index_offset) + (ulong)row * n;
    Key sorted[SIZE];
    uchar source[SIZE];
    for (uint i = 0; i < n; i++) {
      const Key key = keys[i];
      uint at = i;
      for (; at > 0 && sorted[at - 1] > key; at--) {
        sorted[at] = sorted[at - 1];
        source[at] = source[at - 1];
      }
      sorted[at] = key;
      source[at] = i;
    }
    for (uint i = 0; i < n; i++) {
      keys[i] = sorted[i];
      index[i] = source[i];
    }
  }
}
