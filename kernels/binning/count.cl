// How often each bin is named: bincount and histograms without weights.
//
// count_<where> adds to uint counters, count_finish turns them into the result. Work-items count
// where they don't disturb each other: on a CPU each in a copy of its own, on a GPU in local memory
// first, and with atomics in one copy where bins are many.
//
// Compile parameters: INDEX (tag of the bin numbers), OUT (tag of the result), LOCAL_BINS (counters
// in local memory).
#ifndef INDEX
#define INDEX i64
#endif
#ifndef OUT
#define OUT i64
#endif
#ifndef LOCAL_BINS
#define LOCAL_BINS 16
#endif
#include "include/dtype.clh"
#include "binning/arguments.clh"

#define LOAD_BIN(i) LOAD_AS(i64, INDEX, index + index_offset + (long)(i) * arguments.index_step, 0)

/// Global size: copies. A work-item owns a copy of the counters and a chunk of the bin numbers.
kernel void count_private(global const char* index, const ulong index_offset,
                          global char* counts_base, const ulong counts_offset,
                          const Arguments arguments) {
  const uint item = get_global_id(0);
  if (item >= arguments.copies) return;
  global uint* counts = (global uint*)(counts_base + counts_offset) + (ulong)item * arguments.bins;
  for (uint b = 0; b < arguments.bins; b++) counts[b] = 0;
  const ulong first = (ulong)item * arguments.chunk;
  const ulong end = min(first + arguments.chunk, (ulong)arguments.n);
  for (ulong i = first; i < end; i++) {
    const ulong bin = (ulong)LOAD_BIN(i);
    if (bin < arguments.bins) counts[bin]++;
  }
}

/// One copy of zeroed counters for all.
kernel void count_atomic(global const char* index, const ulong index_offset,
                         global char* counts_base, const ulong counts_offset,
                         const Arguments arguments) {
  global uint* counts = (global uint*)(counts_base + counts_offset);
  const ulong stride = get_global_size(0);
  for (ulong i = get_global_id(0); i < arguments.n; i += stride) {
    const ulong bin = (ulong)LOAD_BIN(i);
    if (bin < arguments.bins) atomic_inc(counts + bin);
  }
}

/// Counts through local memory; bins <= LOCAL_BINS.
kernel void count_local(global const char* index, const ulong index_offset,
                        global char* counts_base, const ulong counts_offset,
                        const Arguments arguments) {
  local uint shared[LOCAL_BINS];
  global uint* counts = (global uint*)(counts_base + counts_offset);
  for (uint b = get_local_id(0); b < arguments.bins; b += get_local_size(0)) shared[b] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong stride = get_global_size(0);
  for (ulong i = get_global_id(0); i < arguments.n; i += stride) {
    const ulong bin = (ulong)LOAD_BIN(i);
    if (bin < arguments.bins) atomic_inc(shared + bin);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint b = get_local_id(0); b < arguments.bins; b += get_local_size(0)) {
    const uint count = shared[b];
    if (count != 0) atomic_add(counts + b, count);
  }
}

/// Adds the copies to the result, which may hold the counts of earlier parts.
kernel void count_finish(global const char* counts_base, const ulong counts_offset,
                         global char* out, const ulong out_offset, const Arguments arguments) {
  const uint bin = get_global_id(0);
  if (bin >= arguments.bins) return;
  global const uint* counts = (global const uint*)(counts_base + counts_offset);
  ulong total = 0;
  for (uint c = 0; c < arguments.copies; c++) total += counts[(ulong)c * arguments.bins + bin];
  global char* place = out + out_offset + bin * arguments.out_step;
  const TYPE(OUT) sum = LOAD(OUT, place, 0) + (TYPE(OUT))total;
  STORE(OUT, place, 0, sum);
}
