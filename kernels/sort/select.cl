// The least k keys of each row: a work-item walks along a part of its row and keeps what is below
// the k-th least key it knows. These are about k log(n / k) of n keys in any order, so that nearly
// all of them are only compared, a vector at a time. For CPU devices.
//
// Compile parameters: KEY (key.clh), WIDTH (keys of a vector), FEW (the most that sort_select_few
// finds), CAPACITY (keys that sort_select keeps: a multiple of WIDTH, twice as many as are wanted
// or more).
#ifndef WIDTH
#define WIDTH 16
#endif
#include "include/item_by_item.clh"
#include "sort/key.clh"
#ifndef FEW
#define FEW 32
#endif
#ifndef CAPACITY
#define CAPACITY 64
#endif

#include "sort/arguments.clh"

/// Where part number `number` of all rows begins in its row, and where it ends.
static inline uint2 range_of(uint number, const SelectArguments s) {
  const uint part = number % s.parts, begin = part * s.part;
  // The last part has what the others leave.
  return (uint2)(begin, part == s.parts - 1 ? s.n : begin + s.part);
}

/// Leaves the least k of `count` keys, in the order they were in: of equal keys the first ones.
/// Returns the k-th least.
static inline Key keep_least(private Key* keys, private uint* positions, uint count, uint k) {
  for (uint i = count; i % WIDTH != 0; i++) keys[i] = KEY_MAX;
  // The greatest number with fewer than k keys below it, bit by bit.
  Key limit = 0;
  uint below = 0;
  for (Key bit = KEY_SIGN; bit != 0; bit >>= 1) {
    const KeyV tried = (KeyV)((Key)(limit | bit));
    KeyV less = (KeyV)(0);
    for (uint i = 0; i < count; i += WIDTH) {
      less += LOAD_KEYS(keys + i) < tried ? (KeyV)(1) : (KeyV)(0);
    }
    uint total = 0;
    for (uint lane = 0; lane < WIDTH; lane++) total += ((private const Key*)&less)[lane];
    if (total < k) {
      limit |= bit;
      below = total;
    }
  }
  uint equal = k - below, kept = 0;
  for (uint i = 0; i < count; i++) {
    const Key key = keys[i];
    const uint position = positions[i];
    const bool is_equal = key == limit && equal > 0;
    keys[kept] = key;
    positions[kept] = position;
    equal -= is_equal;
    kept += key < limit || is_equal;
  }
  return limit;
}

/// Sorts the keys, equal ones in their order; `to_keys` and `to_positions` are as long.
static inline void merge_sort(private Key* keys, private uint* positions, private Key* to_keys,
                              private uint* to_positions, uint count) {
  bool swapped = false;
  for (uint length = 1; length < count; length *= 2) {
    for (uint begin = 0; begin < count; begin += 2 * length) {
      const uint middle = min(begin + length, count), end = min(begin + 2 * length, count);
      uint left = begin, right = middle;
      for (uint i = begin; i < end; i++) {
        const bool takes_left = left < middle && (right == end || keys[left] <= keys[right]);
        const uint from = takes_left ? left++ : right++;
        to_keys[i] = keys[from];
        to_positions[i] = positions[from];
      }
    }
   private Key* const other_keys = keys;
   private uint* const other_positions = positions;
    keys = to_keys;
    positions = to_positions;
    to_keys = other_keys;
    to_positions = other_positions;
    swapped = !swapped;
  }
  if (!swapped) return;
  for (uint i = 0; i < count; i++) {
    to_keys[i] = keys[i];
    to_positions[i] = positions[i];
  }
}

#define SELECT_ARGS                                                               \
  global const char *keys_base, ulong keys_offset, global const char *index_base, \
      ulong index_offset, global char *out_keys_base, ulong out_keys_offset,      \
      global char *out_index_base, ulong out_index_offset, const SelectArguments s
// keys, source, out_keys and out_index of part `number`
#define OPERANDS_OF(number)                                                                      \
  const ulong first_ = (ulong)((number) / s.parts) * s.n;                                        \
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + first_;                \
  global const uint* source = (global const uint*)(index_base + index_offset) + first_;          \
  global Key* out_keys = (global Key*)(out_keys_base + out_keys_offset) + (ulong)(number) * s.k; \
  global uint* out_index =                                                                       \
      (global uint*)(out_index_base + out_index_offset) + (ulong)(number) * s.k;

// Runs through the keys [begin, end) below `limit`, which TAKE(i) may lower.
#define FOR_BELOW_LIMIT(begin, end, TAKE)                       \
  do {                                                          \
    uint i_ = (begin);                                          \
    for (; i_ + WIDTH <= (end); i_ += WIDTH) {                  \
      if (!any(LOAD_KEYS(keys + i_) < (KeyV)(limit))) continue; \
      for (uint j_ = i_; j_ < i_ + WIDTH; j_++) {               \
        if (keys[j_] < limit) TAKE(j_);                         \
      }                                                         \
    }                                                           \
    for (; i_ < (end); i_++) {                                  \
      if (keys[i_] < limit) TAKE(i_);                           \
    }                                                           \
  } while (0)

// Puts key i behind those of the first `count` that are not greater.
#define INSERT(i)                                    \
  do {                                               \
    const Key key_ = keys[i];                        \
    uint at_ = count;                                \
    for (; at_ > 0 && best[at_ - 1] > key_; at_--) { \
      best[at_] = best[at_ - 1];                     \
      positions[at_] = positions[at_ - 1];           \
    }                                                \
    best[at_] = key_;                                \
    positions[at_] = s.has_source ? source[i] : (i); \
  } while (0)
#define INSERT_AND_DROP(i) \
  do {                     \
    INSERT(i);             \
    limit = best[s.k - 1]; \
  } while (0)

/// out_keys, out_index: the k least keys of each part, and their positions in the row, in order,
/// [row][part][k]. keys, index: [row][n]. Every part has k elements or more. Global size: rows *
/// parts / per_item.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void sort_select_few(
    SELECT_ARGS) {
  const uint first = get_global_id(0) * s.per_item;
  const uint last = min(first + s.per_item, s.rows * s.parts);
  for (uint number = first; number < last; number++) {
    OPERANDS_OF(number)
    const uint2 range = range_of(number, s);
    Key best[FEW];
    uint positions[FEW];
    uint count = 0;
    for (; count < s.k; count++) INSERT(range.s0 + count);
    count = s.k - 1;  // what is inserted drives the greatest out
    Key limit = best[s.k - 1];
    FOR_BELOW_LIMIT(range.s0 + s.k, range.s1, INSERT_AND_DROP);
    for (uint j = 0; j < s.k; j++) {
      out_keys[j] = best[j];
      out_index[j] = positions[j];
    }
  }
}

#define KEEP(i)                                                \
  do {                                                         \
    best[count] = keys[i];                                     \
    positions[count++] = s.has_source ? source[i] : (uint)(i); \
    if (count == CAPACITY) {                                   \
      limit = keep_least(best, positions, count, s.k);         \
      count = s.k;                                             \
    }                                                          \
  } while (0)

/// Selects more elements; in the order of their positions if not `sorted`.
kernel ITEM_BY_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) void sort_select(SELECT_ARGS) {
  const uint number = get_global_id(0);
  OPERANDS_OF(number)
  const uint2 range = range_of(number, s);
  Key best[CAPACITY], other_keys[CAPACITY];
  uint positions[CAPACITY], other_positions[CAPACITY];
  Key limit = KEY_MAX;
  uint count = 0;
  const uint filled = min(range.s0 + CAPACITY, range.s1);
  for (uint i = range.s0; i < filled; i++) KEEP(i);
  FOR_BELOW_LIMIT(filled, range.s1, KEEP);
  if (count > s.k) keep_least(best, positions, count, s.k);
  if (s.sorted) merge_sort(best, positions, other_keys, other_positions, s.k);
  for (uint j = 0; j < s.k; j++) {
    out_keys[j] = best[j];
    out_index[j] = positions[j];
  }
}
