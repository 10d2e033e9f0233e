// The least few keys of each row: a work-item walks along its row and keeps the best so far, in order.
// For CPU devices.
//
// Compile parameters: KEY (key.clh), SIZE (no more are wanted).
#include "include/item_by_item.clh"
#include "sort/key.clh"
#ifndef SIZE
#define SIZE 32
#endif

/// The first k keys of each row become its least ones, in order; index: the positions they came from.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void sort_select(
    global char* keys_base, ulong keys_offset, global char* index_base, ulong index_offset, uint n,
    uint rows, uint k, uint rows_per_item) {
  const uint begin = get_global_id(0) * rows_per_item;
  const uint end = min(begin + rows_per_item, rows);
  for (uint row = begin; row < end; row++) {
    global Key* keys = (global Key*)(keys_base + keys_offset) + (ulong)row * n;
    global uint* index = (global uint*)(index_base + index_offset) + (ulong)row * n;
    Key best[SIZE];
    uint source[SIZE];
    for (uint i = 0; i < n; i++) {
      const Key key = keys[i];
      // Of equal keys the first ones stay.
      if (i >= k && key >= best[k - 1]) continue;
      uint at = min(i, k - 1);
      for (; at > 0 && best[at - 1] > key; at--) {
        best[at] = best[at - 1];
        source[at] = source[at - 1];
      }
      best[at] = key;
      source[at] = i;
    }
    for (uint i = 0; i < k; i++) {
      keys[i] = best[i];
      index[i] = source[i];
    }
  }
}
