// Runs of equal neighbours among n elements: count where they begin, sum the counts (scan.cl),
// write.
//
// Compile parameters: KEY, ORDER (key.clh); COLUMNS: an element is a row of keys instead of one
// key.
#include "sort/key.clh"
#ifndef COLUMNS
#define COLUMNS 0
#endif

#include "sort/arguments.clh"

/// Whether element i differs from the one before it. A NaN differs from everything.
static inline bool begins_run(global const Key* keys, global const uint* index, uint i,
                              const RunArguments runs) {
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
                            global char* counts_base, ulong counts_offset,
                            const RunArguments runs) {
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

#ifndef GROUP
#define GROUP 256
#endif
// A work-group's kRunShare elements for each work-item are a chunk.

/// Counts runs on GPUs. Global size: chunks * GROUP.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void sort_count_runs_in_groups(
    global const char* keys_base, ulong keys_offset, global const char* index_base,
    ulong index_offset, global char* counts_base, ulong counts_offset, const RunArguments runs) {
  local uint count;
  const uint id = get_local_id(0);
  const ulong first = (ulong)get_group_id(0) * (GROUP * kRunShare);
  global const Key* keys = (global const Key*)(keys_base + keys_offset);
  global const uint* index = (global const uint*)(index_base + index_offset);
  if (id == 0) count = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint own = 0;
  for (uint j = 0; j < kRunShare; j++) {
    const ulong i = first + j * GROUP + id;
    if (i < runs.n) own += begins_run(keys, index, i, runs);
  }
  if (own > 0) atomic_add(&count, own);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id == 0) ((global uint*)(counts_base + counts_offset))[get_group_id(0)] = count;
}

/// Writes what is wanted of the elements from `begin` to `end`, of which the first run to begin is
/// `run`.
static inline void write_runs(global const Key* keys, global const uint* index, global long* firsts,
                              global long* starts, global long* inverse, uint wanted, uint begin,
                              uint end, uint run, const RunArguments runs) {
  for (uint i = begin; i < end; i++) {
    const uint item = runs.ordered ? index[i] : i;
    if (begins_run(keys, index, i, runs)) {
      if (wanted & 1) firsts[run] = item;
      if (wanted & 2) starts[run] = i;
      run++;
    }
    if (wanted & 4) inverse[item] = run - 1;
  }
  if ((wanted & 2) && begin < end && end == runs.n) starts[run] = runs.n;
}

#define WRITE_OPERANDS                                                                   \
  global const char *keys_base, ulong keys_offset, global const char *index_base,        \
      ulong index_offset, global const char *counts_base, ulong counts_offset,           \
      global char *firsts_base, ulong firsts_offset, global char *starts_base,           \
      ulong starts_offset, global char *inverse_base, ulong inverse_offset, uint wanted, \
      const RunArguments runs
// The operands as typed pointers.
#define TYPED_OPERANDS                                                        \
  global const Key* keys = (global const Key*)(keys_base + keys_offset);      \
  global const uint* index = (global const uint*)(index_base + index_offset); \
  global long* firsts = (global long*)(firsts_base + firsts_offset);          \
  global long* starts = (global long*)(starts_base + starts_offset);          \
  global long* inverse = (global long*)(inverse_base + inverse_offset);       \
  global const uint* counts = (global const uint*)(counts_base + counts_offset);

/// Writes of each run: firsts, the number in the input of its first element; starts, where it
/// begins. Each element of the input has the run that it is in, in inverse. All int64; `wanted` has
/// a bit for each of the three.
kernel void sort_write_runs(WRITE_OPERANDS) {
  const ulong first = (ulong)get_global_id(0) * runs.chunk;
  if (first >= runs.n) return;
  TYPED_OPERANDS
  const uint begin = first;
  write_runs(keys, index, firsts, starts, inverse, wanted, begin,
             begin + min(runs.chunk, runs.n - begin), counts[get_global_id(0)], runs);
}

/// Writes runs on GPUs. Global size: chunks * GROUP.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void sort_write_runs_in_groups(
    WRITE_OPERANDS) {
  local uint sums[GROUP];
  const uint id = get_local_id(0);
  TYPED_OPERANDS
  const uint begin = min((ulong)runs.n, (ulong)get_global_id(0) * kRunShare);
  const uint end = begin + min((uint)kRunShare, runs.n - begin);
  uint own = 0;
  for (uint i = begin; i < end; i++) own += begins_run(keys, index, i, runs);
  uint sum = own;
  sums[id] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = 1; step < GROUP; step <<= 1) {
    if (id >= step) sum += sums[id - step];
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[id] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  write_runs(keys, index, firsts, starts, inverse, wanted, begin, end,
             counts[get_group_id(0)] + sum - own, runs);
}
