// The most frequent element of each sorted row: a work-group per row.
//
// Compile parameters: KEY, ORDER (key.clh).
#include "sort/key.clh"
#include "sort/rows.clh"

/// Where the run of `key` ends, knowing that it reaches up to `from`: keys are ascending.
static inline uint run_end(global const Key* keys, Key key, uint from, uint n) {
  uint low = from, high = n;
  while (low < high) {
    const uint middle = low + (high - low) / 2;
    if (keys[middle] > key)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// The smallest of equally frequent elements wins, and the last of equal ones. A NaN equals
/// nothing, so each counts once. counts, ends: an element per work-item of the group.
kernel void sort_mode(global const char* in, const ulong in_offset, global const char* keys_base,
                      ulong keys_offset, global const char* index_base, ulong index_offset,
                      global char* values, const ulong values_offset, global char* indices,
                      const ulong indices_offset, const RowArguments args, local uint* counts,
                      local uint* ends) {
  const uint row = get_group_id(0);
  const uint id = get_local_id(0), group = get_local_size(0);
  global const Key* keys = (global const Key*)(keys_base + keys_offset) + (ulong)row * args.n;
  global const uint* index = (global const uint*)(index_base + index_offset) + (ulong)row * args.n;
  const uint share = (args.n + group - 1) / group;
  const uint begin = min(id * share, args.n), end = min(begin + share, args.n);

  // The work-item in whose share a run begins counts it, beyond its share if need be.
  uint best = 0, best_end = 0;
  for (uint i = begin; i < end;) {
    const Key key = keys[i];
    uint next = i + 1;
    if (!is_nan_key(key)) {
      while (next < end && keys[next] == key) next++;
      if (next == end) next = run_end(keys, key, next, args.n);
      if (i == begin && i > 0 && keys[i - 1] == key) {
        i = next;
        continue;
      }
    }
    if (next - i > best) {
      best = next - i;
      best_end = next;
    }
    i = next;
  }
  counts[id] = best;
  ends[id] = best_end;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id != 0) return;
  for (uint other = 1; other < group; other++) {
    if (counts[other] > best) {
      best = counts[other];
      best_end = ends[other];
    }
  }
  const uint chosen = best_end - 1;
  ulong offset[3] = {in_offset, values_offset, indices_offset};
  ROW_OFFSETS(offset, IN, SECOND_OUT, row, args);
  const uint source = index[chosen];
  *(global Key*)(values + offset[FIRST_OUT]) =
      *(global const Key*)(in + offset[IN] + (long)source * args.along[IN]);
  *(global long*)(indices + offset[SECOND_OUT]) = source;
}
