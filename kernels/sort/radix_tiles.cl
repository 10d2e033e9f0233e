// A radix pass with a part of a row (a tile) per work-group, which sorts it in local memory first
// so that neighbours are written together.
//
// Compile parameters: KEY (key.clh), GROUP (work-group size, a power of two), ITEMS (elements per
// work-item). A part has GROUP * ITEMS elements.
#define DIGIT_BITS kTilesDigitBits
#ifndef GROUP
#define GROUP 64
#endif
#ifndef ITEMS
#define ITEMS 4
#endif
#include "sort/radix.clh"

#define TILE (GROUP * ITEMS)
// Counters that fewer work-items meet on.
#define COUNTERS 8

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void sort_count_tiles(
    global const char* keys_base, ulong keys_offset, global char* counts_base, ulong counts_offset,
    const RadixArguments pass) {
  local uint digits[COUNTERS][DIGITS];
  const uint id = get_local_id(0);
  const uint row = get_group_id(0) / pass.parts, part = get_group_id(0) % pass.parts;
  const uint begin = part * TILE, end = min(begin + TILE, pass.n);
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + (ulong)row * pass.n;
  global uint* counts = (global uint*)(counts_base + counts_offset);
  for (uint i = id; i < COUNTERS * DIGITS; i += GROUP) digits[i / DIGITS][i % DIGITS] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = begin + id; i < end; i += GROUP) {
    atomic_inc(&digits[id % COUNTERS][DIGIT(keys[i], pass)]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint d = id; d < DIGITS; d += GROUP) {
    uint sum = 0;
    for (uint c = 0; c < COUNTERS; c++) sum += digits[c][d];
    PART_COUNTS(counts, pass, row, d, part) = sum;
  }
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void sort_move_tiles(
    global const char* keys_base, ulong keys_offset, global const char* index_base,
    ulong index_offset, global char* to_keys_base, ulong to_keys_offset, global char* to_index_base,
    ulong to_index_offset, global const char* counts_base, ulong counts_offset,
    const RadixArguments pass) {
  local Key tile_keys[TILE];
  local uint tile_index[TILE];
  local ushort
      places[DIGITS * GROUP];  // digit by digit, each work-item's count, then its first place
  local uint sums[GROUP];
  const uint id = get_local_id(0);
  const uint row = get_group_id(0) / pass.parts, part = get_group_id(0) % pass.parts;
  const uint begin = part * TILE;
  const uint count = min((uint)TILE, pass.n - begin);
  const ulong start = (ulong)row * pass.n;
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + start + begin;
  global const uint* index = (global const uint*)(index_base + index_offset) + start + begin;
  global Key* to_keys = (global Key*)(to_keys_base + to_keys_offset) + start;
  global uint* to_index = (global uint*)(to_index_base + to_index_offset) + start;
  global const uint* counts = (global const uint*)(counts_base + counts_offset);

  for (uint i = id; i < TILE; i += GROUP) {
    // Keys that fill the last tile up have the highest digit and stay behind the elements.
    tile_keys[i] = i < count ? keys[i] : KEY_MAX;
    tile_index[i] = i >= count ? 0 : pass.first ? begin + i : index[i];
  }
  for (uint d = 0; d < DIGITS; d++) places[d * GROUP + id] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);

  Key own_keys[ITEMS];
  uint own_index[ITEMS];
  uint rank[ITEMS];
  for (uint j = 0; j < ITEMS; j++) {
    own_keys[j] = tile_keys[id * ITEMS + j];
    own_index[j] = tile_index[id * ITEMS + j];
    rank[j] = places[DIGIT(own_keys[j], pass) * GROUP + id]++;
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  // Exclusive prefix sums of `places`: DIGITS neighbours by each work-item, then across them.
  uint sum = 0;
  for (uint d = 0; d < DIGITS; d++) sum += places[id * DIGITS + d];
  sums[id] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = 1; step < GROUP; step <<= 1) {
    const uint before = id >= step ? sums[id - step] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[id] += before;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint running = sums[id] - sum;
  for (uint d = 0; d < DIGITS; d++) {
    const uint own = places[id * DIGITS + d];
    places[id * DIGITS + d] = running;
    running += own;
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  for (uint j = 0; j < ITEMS; j++) {
    const uint place = places[DIGIT(own_keys[j], pass) * GROUP + id] + rank[j];
    tile_keys[place] = own_keys[j];
    tile_index[place] = own_index[j];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = id; i < count; i += GROUP) {
    const Key key = tile_keys[i];
    const uint digit = DIGIT(key, pass);
    const uint to = PART_COUNTS(counts, pass, row, digit, part) + i - places[digit * GROUP];
    to_keys[to] = key;
    to_index[to] = tile_index[i];
  }
}
