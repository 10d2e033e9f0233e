// Where a sort begins and ends: elements become keys, sorted keys and positions become results.
//
// Compile parameters: KEY, ORDER (key.clh), WIDTH (keys of a CPU's vector; 1 elsewhere).
#include "include/item_by_item.clh"
#include "sort/key.clh"
#include "sort/rows.clh"

/// Element `index` of the row at `row`, whose flipped key is `key`.
static inline Key element_of(Key key, uint index, global const char* row, long along, Key flip) {
  const Key ascending = key ^ flip;
  return decodable(ascending) ? decode_key(ascending)
                              : *(global const Key*)(row + (long)index * along);
}

/// keys[row * n + i] = key of element i of the row.
kernel ITEM_BY_ITEM void sort_encode(global const char* in, const ulong in_offset,
                                     global char* keys_base, ulong keys_offset,
                                     const RowArguments args) {
  const uint total = args.rows * args.n;
  const ulong begin = (ulong)get_global_id(0) * args.chunk;
  if (begin >= total) return;
  uint at = begin;
  const uint end = at + min(args.chunk, total - at);
  global Key* keys = (global Key*)(keys_base + keys_offset);
  const Key infinity = args.infinity, flip = args.flip;
  while (at < end) {
    const uint row = at / args.n;
    const uint i = at - row * args.n;
    const uint count = min(end - at, args.n - i);
    ulong offset[1] = {in_offset};
    ROW_OFFSETS(offset, IN, IN, row, args);
    global const char* p = in + offset[0] + (long)i * args.along[IN];
    if (args.along[IN] == STORAGE_SIZE(KEY)) {
      uint j = 0;
#if WIDTH > 1
      for (; j + WIDTH <= count; j += WIDTH) {
        const KeyV bits = LOAD_KEYS((global const Key*)p + j);
        STORE_KEYS(encode_keys(bits, infinity) ^ (KeyV)(flip), keys + at + j);
      }
#endif
      for (; j < count; j++) {
        keys[at + j] = encode_key(((global const Key*)p)[j], infinity) ^ flip;
      }
    } else {
      for (uint j = 0; j < count; j++, p += args.along[IN])
        keys[at + j] = encode_key(*(global const Key*)p, infinity) ^ flip;
    }
    at += count;
  }
}

/// The first k of each sorted row, to values and indices (int64).
kernel void sort_take(global const char* in, const ulong in_offset, global const char* keys_base,
                      ulong keys_offset, global const char* index_base, ulong index_offset,
                      global char* values, const ulong values_offset, global char* indices,
                      const ulong indices_offset, const RowArguments args) {
  const uint total = args.rows * args.k;
  const ulong begin = (ulong)get_global_id(0) * args.chunk;
  if (begin >= total) return;
  uint at = begin;
  const uint end = at + min(args.chunk, total - at);
  const Key flip = args.flip;
  while (at < end) {
    const uint row = at / args.k;
    const uint i = at - row * args.k;
    const uint count = min(end - at, args.k - i);
    ulong offset[3] = {in_offset, values_offset, indices_offset};
    ROW_OFFSETS(offset, IN, SECOND_OUT, row, args);
    const ulong first = (ulong)row * args.n + i;
    global const Key* keys = (global const Key*)(keys_base + keys_offset) + first;
    global const uint* index = (global const uint*)(index_base + index_offset) + first;
    global char* value_at = values + offset[FIRST_OUT] + (long)i * args.along[FIRST_OUT];
    global char* index_at = indices + offset[SECOND_OUT] + (long)i * args.along[SECOND_OUT];
    for (uint j = 0; j < count; j++) {
      *(global Key*)value_at = element_of(keys[j], index[j], in + offset[IN], args.along[IN], flip);
      *(global long*)index_at = index[j];
      value_at += args.along[FIRST_OUT];
      index_at += args.along[SECOND_OUT];
    }
    at += count;
  }
}

/// How many of the n ascending keys come before the NaNs.
static inline uint count_numbers(global const Key* keys, uint n) {
  uint low = 0, high = n;
  while (low < high) {
    const uint middle = low + (high - low) / 2;
    if (is_nan_key(keys[middle]))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// One element of each ascending row. which: 0, the one at args.k; 1, the median, NaN if there is
/// one; 2, the median of the numbers.
kernel void sort_pick(global const char* in, const ulong in_offset, global const char* keys_base,
                      ulong keys_offset, global const char* index_base, ulong index_offset,
                      global char* values, const ulong values_offset, global char* indices,
                      const ulong indices_offset, const RowArguments args, uint which) {
  const uint row = get_global_id(0);
  if (row >= args.rows) return;
  ulong offset[3] = {in_offset, values_offset, indices_offset};
  ROW_OFFSETS(offset, IN, SECOND_OUT, row, args);
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + (ulong)row * args.n;
  global const uint* index = (global const uint*)(index_base + index_offset) + (ulong)row * args.n;
  uint position = args.k;
  if (which != 0) {
    const uint numbers = count_numbers(keys, args.n);
    if (which == 1 && numbers < args.n)
      position = numbers;
    else
      position = numbers == 0 ? 0 : (numbers - 1) / 2;  // of an even number, the lower one
  }
  *(global Key*)(values + offset[FIRST_OUT]) =
      element_of(keys[position], index[position], in + offset[IN], args.along[IN], 0);
  *(global long*)(indices + offset[SECOND_OUT]) = index[position];
}
