// A radix pass with a part of a row per work-item. For CPU devices.
//
// Compile parameters: KEY (key.clh).
#define DIGIT_BITS kPartsDigitBits
#include "include/item_by_item.clh"
#include "sort/radix.clh"

kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void sort_count_parts(
    global const char* keys_base, ulong keys_offset, global char* counts_base, ulong counts_offset,
    const RadixArguments pass) {
  local uint digits[DIGITS];
  const uint row = get_global_id(0) / pass.parts, part = get_global_id(0) % pass.parts;
  const uint begin = part * pass.part, end = min(begin + pass.part, pass.n);
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + (ulong)row * pass.n;
  global uint* counts = (global uint*)(counts_base + counts_offset);
  for (uint d = 0; d < DIGITS; d++) digits[d] = 0;
  for (uint i = begin; i < end; i++) digits[DIGIT(keys[i], pass)]++;
  for (uint d = 0; d < DIGITS; d++) PART_COUNTS(counts, pass, row, d, part) = digits[d];
}

kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void sort_move_parts(
    global const char* keys_base, ulong keys_offset, global const char* index_base,
    ulong index_offset, global char* to_keys_base, ulong to_keys_offset, global char* to_index_base,
    ulong to_index_offset, global const char* counts_base, ulong counts_offset,
    const RadixArguments pass) {
  local uint next[DIGITS];
  const uint row = get_global_id(0) / pass.parts, part = get_global_id(0) % pass.parts;
  const uint begin = part * pass.part, end = min(begin + pass.part, pass.n);
  const ulong start = (ulong)row * pass.n;
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + start;
  global const uint* index = (global const uint*)(index_base + index_offset) + start;
  global Key* to_keys = (global Key*)(to_keys_base + to_keys_offset) + start;
  global uint* to_index = (global uint*)(to_index_base + to_index_offset) + start;
  global const uint* counts = (global const uint*)(counts_base + counts_offset);
  for (uint d = 0; d < DIGITS; d++) next[d] = PART_COUNTS(counts, pass, row, d, part);
  for (uint i = begin; i < end; i++) {
    const Key key = keys[i];
    const uint to = next[DIGIT(key, pass)]++;
    to_keys[to] = key;
    to_index[to] = pass.first ? i : index[i];
  }
}
