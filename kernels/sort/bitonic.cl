// Sorts rows that fit into local memory: a work-group takes one or several and compares in a
// bitonic network. Positions break ties, which makes it stable.
//
// Compile parameters: KEY (key.clh).
#include "sort/key.clh"

/// Sorts the keys in place and writes the positions they came from. size: n rounded up to a power
/// of two; keys, index: local arrays of rows_per_group * size elements.
kernel void sort_bitonic(global char* keys_base, ulong keys_offset, global char* index_base,
                         ulong index_offset, uint n, uint size, uint rows, uint rows_per_group,
                         local Key* keys, local uint* index) {
  const uint id = get_local_id(0), group = get_local_size(0);
  const uint slots = rows_per_group * size;
  const uint first_row = get_group_id(0) * rows_per_group;
  global Key* all_keys = (global Key*)(keys_base + keys_offset);
  global uint* all_index = (global uint*)(index_base + index_offset);

  for (uint slot = id; slot < slots; slot += group) {
    const uint row = first_row + slot / size, i = slot & (size - 1);
    // Elements that fill a row up have the greatest key, and positions past every element's.
    keys[slot] = row < rows && i < n ? all_keys[(ulong)row * n + i] : KEY_MAX;
    index[slot] = i;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint span = 2; span <= size; span <<= 1) {
    for (uint step = span >> 1; step > 0; step >>= 1) {
      for (uint pair = id; pair < slots / 2; pair += group) {
        const uint a = 2 * pair - (pair & (step - 1)), b = a + step;
        const Key key_a = keys[a], key_b = keys[b];
        const uint index_a = index[a], index_b = index[b];
        const bool ascending = (a & (size - 1) & span) == 0;
        const bool greater = key_a > key_b || (key_a == key_b && index_a > index_b);
        if (greater == ascending) {
          keys[a] = key_b;
          keys[b] = key_a;
          index[a] = index_b;
          index[b] = index_a;
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }
  for (uint slot = id; slot < slots; slot += group) {
    const uint row = first_row + slot / size, i = slot & (size - 1);
    if (row >= rows || i >= n) continue;
    all_keys[(ulong)row * n + i] = keys[slot];
    all_index[(ulong)row * n + i] = index[slot];
  }
}
