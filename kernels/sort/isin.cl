// Whether elements are among sorted keys: a binary search each.
//
// Compile parameters: KEY, ORDER (key.clh).
#include "sort/key.clh"

/// out[i] (bool) = (element i is one of the `count` keys) != invert. A NaN is nowhere.
kernel void sort_isin(global const char* elements_base, ulong elements_offset,
                      global const char* keys_base, ulong keys_offset, global char* out_base,
                      ulong out_offset, ulong infinity, uint n, uint count, uint invert) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  global const Key* keys = (global const Key*)(keys_base + keys_offset);
  const Key key =
      encode_key(((global const Key*)(elements_base + elements_offset))[i], (Key)infinity);
  uint low = 0, high = count;
  while (low < high) {
    const uint middle = low + (high - low) / 2;
    if (keys[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  const bool found = low < count && keys[low] == key && !is_nan_key(key);
  ((global uchar*)(out_base + out_offset))[i] = found != (invert != 0);
}
