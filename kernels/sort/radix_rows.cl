// Radix sort of whole rows by one work-item each, the low digit first. For CPU devices.
//
// Compile parameters: KEY (key.clh).
#include "include/item_by_item.clh"
#include "sort/key.clh"

#define DIGIT_BITS 8
#define DIGITS (1 << DIGIT_BITS)
#define PASSES STORAGE_SIZE(KEY)
#define DIGIT(key, pass) ((uint)((key) >> ((pass) * DIGIT_BITS)) & (DIGITS - 1))

/// Sorts the keys in place and writes the positions they came from. spare_keys, spare_index: as
/// large as keys and index.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void sort_radix_rows(
    global char* keys_base, ulong keys_offset, global char* index_base, ulong index_offset,
    global char* spare_keys_base, ulong spare_keys_offset, global char* spare_index_base,
    ulong spare_index_offset, uint n, uint rows, uint rows_per_item) {
  local uint counts[PASSES][DIGITS];
  const uint begin = get_global_id(0) * rows_per_item;
  const uint end = min(begin + rows_per_item, rows);
  for (uint row = begin; row < end; row++) {
    const ulong first = (ulong)row * n;
    global Key* keys = (global Key*)(keys_base + keys_offset) + first;
    global uint* index = (global uint*)(index_base + index_offset) + first;
    global Key* to_keys = (global Key*)(spare_keys_base + spare_keys_offset) + first;
    global uint* to_index = (global uint*)(spare_index_base + spare_index_offset) + first;

    for (uint pass = 0; pass < PASSES; pass++)
      for (uint d = 0; d < DIGITS; d++) counts[pass][d] = 0;
    for (uint i = 0; i < n; i++) {
      const Key key = keys[i];
      for (uint pass = 0; pass < PASSES; pass++) counts[pass][DIGIT(key, pass)]++;
    }

    bool moved = false, swapped = false;
    for (uint pass = 0; pass < PASSES; pass++) {
      local uint* next = counts[pass];
      if (next[DIGIT(keys[0], pass)] == n) continue;  // all digits are equal
      uint total = 0;
      for (uint d = 0; d < DIGITS; d++) {
        const uint count = next[d];
        next[d] = total;
        total += count;
      }
      if (moved) {
        for (uint i = 0; i < n; i++) {
          const Key key = keys[i];
          const uint to = next[DIGIT(key, pass)]++;
          to_keys[to] = key;
          to_index[to] = index[i];
        }
      } else {
        for (uint i = 0; i < n; i++) {
          const Key key = keys[i];
          const uint to = next[DIGIT(key, pass)]++;
          to_keys[to] = key;
          to_index[to] = i;
        }
      }
      global Key* const old_keys = keys;
      global uint* const old_index = index;
      keys = to_keys;
      index = to_index;
      to_keys = old_keys;
      to_index = old_index;
      moved = true;
      swapped = !swapped;
    }
    if (!moved) {
      for (uint i = 0; i < n; i++) index[i] = i;
    } else if (swapped) {
      for (uint i = 0; i < n; i++) {
        to_keys[i] = keys[i];
        to_index[i] = index[i];
      }
    }
  }
}
