// Runs of equal neighbours among n items: count where they begin, sum the counts (scan.cl), write.
//
// Compile parameters: KEY, ORDER (key.clh); COLUMNS: an item is a row of keys instead of one key.
#include "sort/key.clh"
#ifndef COLUMNS
#define COLUMNS 0
#endif

// The layout is that of csrc/engine/sort_runs.cpp.
typedef struct {
  uint n;
  uint chunk;    // items per work-item
  uint columns;  // keys of an item
  uint ordered;  // there is an index: item i is number index[i] of the input
} Runs;

/// Whether item i differs from the one before it. A NaN differs from everything.
static inline bool begins_run(global const Key* keys, global const uint* index, uint i,
                              const Runs runs) {
  if (i == 0) return true;
#if COLUMNS
  const uint a = runs.ordered ? index[i] : i, b = runs.ordered ? index[i - 1] : i - 1;
  for (uint c = 0; c < runs.columns; c++) {
    const Key key = keys[(ulong)a * runs.columns + c];
    if (key != keys[(ulong)b * runs.columns + c] || is_nan_key(key)) return true;
  }
  return false;
#else
  return keys[i] != keys[i - 1] || is_nan_key(keys[i]);
#endif
}

kernel void sort_count_runs(global const char* keys_base, ulong keys_offset,
                            global const char* index_base, ulong index_offset,
                            global char* counts_base, ulong counts_offset, const Runs runs) {
  const ulong first = (ulong)get_global_id(0) * runs.chunk;
  if (first >= runs.n) return;
  const uint begin = first;
  const uint end = begin + min(runs.chunk, runs.n - begin);
  global const Key* keys = (global const Key*)(keys_base + keys_offset);
  global const uint* index = (global const uint*)(index_base + index_offset);
  uint count = 0;
  for (uint i = begin; i < end; i++) count += begins_run(keys, index, i, runs);
  ((global uint*)(counts_base + counts_offset))[get_global_id(0)] = count;
}

/// Of each run: firsts, the number in the input of its first item; starts, where it begins. Of each
/// item of the input: inverse, the run it is in. All int64; `wanted` has a bit for each of the three.
kernel void sort_write_runs(global const char* keys_base, ulong keys_offset,
                            global const char* index_base, ulong index_offset,
                            global const char* counts_base, ulong counts_offset,
                            global char* firsts_base, ulong firsts_offset, global char* starts_base,
                            ulong starts_offset, global char* inverse_base, ulong inverse_offset,
                            uint wanted, const Runs runs) {
  const ulong first = (ulong)get_global_id(0) * runs.chunk;
  if (first >= runs.n) return;
  const uint begin = first;
  const uint end = begin + min(runs.chunk, runs.n - begin);
  global const Key* keys = (global const Key*)(keys_base + keys_offset);
  global const uint* index = (global const uint*)(index_base + index_offset);
  global long* firsts = (global long*)(firsts_base + firsts_offset);
  global long* starts = (global long*)(starts_base + starts_offset);
  global long* inverse = (global long*)(inverse_base + inverse_offset);
  uint run = ((global const uint*)(counts_base + counts_offset))[get_global_id(0)];
  for (uint i = begin; i < end; i++) {
    const uint item = runs.ordered ? index[i] : i;
    if (begins_run(keys, index, i, runs)) {
      if (wanted & 1) firsts[run] = item;
      if (wanted & 2) starts[run] = i;
      run++;
    }
    if (wanted & 4) inverse[item] = run - 1;
  }
  if ((wanted & 2) && end == runs.n) starts[run] = runs.n;
}
