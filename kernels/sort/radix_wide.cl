// A radix pass with 8-bit digits for GPUs: a work-group ranks a tile's elements by their digits in
// local memory, so that a pass reads and writes everything once, and neighbours are written
// together.
//
// 32 work-items (a warp) rank 32 neighbouring elements at a time: those with the same digit find
// each other, and the first of them counts them all.
//
// Compile parameters: KEY (key.clh), ITEMS (elements per work-item), VOTES (1: the device has
// NVIDIA's warps, whose work-items vote on each bit of the digit; otherwise they meet in local
// memory).
#define DIGIT_BITS kWideDigitBits
#ifndef ITEMS
#define ITEMS 8
#endif
#ifndef VOTES
#define VOTES 0
#endif
#include "include/always_inline.clh"
#include "sort/radix.clh"

#define GROUP DIGITS
#define WARPS (GROUP / 32)
#define TILE (GROUP * ITEMS)
// Bytes of a key or a position.
#define SLOT (STORAGE_SIZE(KEY) < 4 ? 4 : STORAGE_SIZE(KEY))

/// The count of `digit` in a part of a row: each digit's counts, and their total behind them.
#define WIDE_COUNTS(counts, pass, row, digit, part) \
  (counts)[((ulong)(row) * DIGITS + (digit)) * ((pass).parts + 1) + (part)]

#if VOTES
#define MEET() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")
static inline uint votes_of(uint yes) {
  uint votes;
  __asm__ volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
                   : "=r"(votes)
                   : "r"(yes));
  return votes;
}
#else
#define MEET() barrier(CLK_LOCAL_MEM_FENCE)
#endif

/// Global size: rows * parts * GROUP.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void sort_count_wide(
    global const char* keys_base, ulong keys_offset, global char* counts_base, ulong counts_offset,
    const RadixArguments pass) {
  local uint digits[WARPS][DIGITS];
  const uint id = get_local_id(0);
  const uint row = get_group_id(0) / pass.parts, part = get_group_id(0) % pass.parts;
  const uint begin = part * TILE, end = min(begin + TILE, pass.n);
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + (ulong)row * pass.n;
  for (uint w = 0; w < WARPS; w++) digits[w][id] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  Key own[ITEMS];
  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) {
    own[j] = keys[min(begin + j * GROUP + id, pass.n - 1)];
  }
  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) {
    if (begin + j * GROUP + id < end) atomic_inc(&digits[id / 32][DIGIT(own[j], pass)]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint sum = 0;
  for (uint w = 0; w < WARPS; w++) sum += digits[w][id];
  WIDE_COUNTS((global uint*)(counts_base + counts_offset), pass, row, id, part) = sum;
}

#if VOTES
#define MASKS_PARAMETER
#define MASKS
#else
#define MASKS_PARAMETER local uint masks[WARPS][DIGITS],
#define MASKS masks,
#endif
/// place[j] = how many of the warp's elements with the digit of own[j] come before it; counts them
/// in `seen`.
static ALWAYS_INLINE void rank_keys(private uint* place, private const Key* own,
                                    local uint seen[WARPS][DIGITS], MASKS_PARAMETER uint warp,
                                    uint lane, const RadixArguments pass) {
  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) {
    const uint digit = DIGIT(own[j], pass);
#if VOTES
    uint same = 0xffffffff;
    _Pragma("unroll") for (uint b = 0; b < DIGIT_BITS; b++) {
      const uint bit = digit >> b & 1, votes = votes_of(bit);
      same &= bit ? votes : ~votes;
    }
#else
    atomic_or(&masks[warp][digit], 1u << lane);
    MEET();
    const uint same = masks[warp][digit];
#endif
    const uint before = popcount(same & ((1u << lane) - 1)), earlier = seen[warp][digit];
    place[j] = earlier + before;
    MEET();
    if (before == 0) {
      seen[warp][digit] = earlier + popcount(same);
#if !VOTES
      masks[warp][digit] = 0;
#endif
    }
    MEET();
  }
}

/// A work-item's own digit: how many the tile and the row have, then what lies before it in both.
/// Leaves where it begins in `seen`, for each warp, and in first_of.
static ALWAYS_INLINE void place_digits(local uint seen[WARPS][DIGITS], local uint2* sums,
                                       local uint* first_of, global const uint* counts, uint row,
                                       uint part, uint id, const RadixArguments pass) {
  uint tile_count = 0;
  for (uint w = 0; w < WARPS; w++) tile_count += seen[w][id];
  const uint row_count = WIDE_COUNTS(counts, pass, row, id, pass.parts);
  uint2 sum = (uint2)(tile_count, row_count);
  sums[id] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = 1; step < DIGITS; step <<= 1) {
    if (id >= step) sum += sums[id - step];
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[id] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint running = sum.x - tile_count;
  first_of[id] = sum.y - row_count + WIDE_COUNTS(counts, pass, row, id, part) - running;
  for (uint w = 0; w < WARPS; w++) {
    const uint here = seen[w][id];
    seen[w][id] = running;
    running += here;
  }
}

/// Global size: as above.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void sort_move_wide(
    global const char* keys_base, ulong keys_offset, global const char* index_base,
    ulong index_offset, global char* to_keys_base, ulong to_keys_offset, global char* to_index_base,
    ulong to_index_offset, global const char* counts_base, ulong counts_offset,
    const RadixArguments pass) {
  local ulong memory[TILE * SLOT / 8];  // the keys in their new order, then their positions
  local uint seen[WARPS][DIGITS];
  local uint2 sums[DIGITS];
  local uint first_of[DIGITS];  // where a digit's elements begin in the row, less where in the tile
#if !VOTES
  local uint masks[WARPS][DIGITS];
#endif
  const uint id = get_local_id(0), warp = id / 32, lane = id % 32;
  const uint row = get_group_id(0) / pass.parts, part = get_group_id(0) % pass.parts;
  const uint begin = part * TILE;
  const uint count = min((uint)TILE, pass.n - begin);
  const ulong start = (ulong)row * pass.n;
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + start + begin;
  global const uint* index = (global const uint*)(index_base + index_offset) + start + begin;
  global Key* to_keys = (global Key*)(to_keys_base + to_keys_offset) + start;
  global uint* to_index = (global uint*)(to_index_base + to_index_offset) + start;
  global const uint* counts = (global const uint*)(counts_base + counts_offset);

  local Key* const tile = (local Key*)memory;
  local uint* const positions = (local uint*)memory;

  // A warp's elements are neighbours, 32 at a time, so that ranks keep the order.
  const uint own0 = warp * (32 * ITEMS) + lane;
  Key own[ITEMS];
  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) {
    // Keys that fill the last tile up have the highest digit and stay behind the elements.
    own[j] = own0 + j * 32 < count ? keys[own0 + j * 32] : KEY_MAX;
  }
  for (uint w = 0; w < WARPS; w++) {
    seen[w][id] = 0;
#if !VOTES
    masks[w][id] = 0;
#endif
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  uint place[ITEMS];
  rank_keys(place, own, seen, MASKS warp, lane, pass);
  barrier(CLK_LOCAL_MEM_FENCE);

  uint from[ITEMS];
  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) {
    const uint i = own0 + j * 32;
    from[j] = pass.first ? begin + i : i < count ? index[i] : 0;
  }

  place_digits(seen, sums, first_of, counts, row, part, id, pass);
  barrier(CLK_LOCAL_MEM_FENCE);

  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) {
    place[j] += seen[warp][DIGIT(own[j], pass)];
    tile[place[j]] = own[j];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint to[ITEMS];
  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) {
    const uint i = id + j * GROUP;
    const Key key = tile[i];
    to[j] = first_of[DIGIT(key, pass)] + i;
    if (i < count) to_keys[to[j]] = key;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) positions[place[j]] = from[j];
  barrier(CLK_LOCAL_MEM_FENCE);
  _Pragma("unroll") for (uint j = 0; j < ITEMS; j++) {
    const uint i = id + j * GROUP;
    if (i < count) to_index[to[j]] = positions[i];
  }
}
