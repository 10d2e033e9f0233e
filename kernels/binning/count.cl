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

typedef struct {
  ulong index_offset, counts_offset, out_offset;
  long index_step, out_step;  // bytes
  uint n;                     // bin numbers
  uint chunk;                 // of them per work-item
  uint bins;                  // numbers outside [0, bins) are passed over
  uint copies;                // of the counters
} CountArgs;

#define LOAD_BIN(i) LOAD_AS(i64, INDEX, index + args.index_offset + (long)(i) * args.index_step, 0)

/// Global size: copies. A work-item owns a copy of the counters and a chunk of the bin numbers.
kernel void count_private(global const char* index, global char* counts_base,
                          const CountArgs args) {
  const uint item = get_global_id(0);
  if (item >= args.copies) return;
  global uint* counts = (global uint*)(counts_base + args.counts_offset) + (ulong)item * args.bins;
  for (uint b = 0; b < args.bins; b++) counts[b] = 0;
  const ulong first = (ulong)item * args.chunk;
  const ulong end = min(first + args.chunk, (ulong)args.n);
  for (ulong i = first; i < end; i++) {
    const ulong bin = (ulong)LOAD_BIN(i);
    if (bin < args.bins) counts[bin]++;
  }
}

/// One copy of zeroed counters for all.
kernel void count_atomic(global const char* index, global char* counts_base, const CountArgs args) {
  global uint* counts = (global uint*)(counts_base + args.counts_offset);
  const ulong stride = get_global_size(0);
  for (ulong i = get_global_id(0); i < args.n; i += stride) {
    const ulong bin = (ulong)LOAD_BIN(i);
    if (bin < args.bins) atomic_inc(counts + bin);
  }
}

/// The same through local memory; bins <= LOCAL_BINS.
kernel void count_local(global const char* index, global char* counts_base, const CountArgs args) {
  local uint shared[LOCAL_BINS];
  global uint* counts = (global uint*)(counts_base + args.counts_offset);
  for (uint b = get_local_id(0); b < args.bins; b += get_local_size(0)) shared[b] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong stride = get_global_size(0);
  for (ulong i = get_global_id(0); i < args.n; i += stride) {
    const ulong bin = (ulong)LOAD_BIN(i);
    if (bin < args.bins) atomic_inc(shared + bin);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint b = get_local_id(0); b < args.bins; b += get_local_size(0)) {
    const uint count = shared[b];
    if (count != 0) atomic_add(counts + b, count);
  }
}

/// Adds the copies to the result, which may hold the counts of earlier parts.
kernel void count_finish(global const char* counts_base, global char* out, const CountArgs args) {
  const uint bin = get_global_id(0);
  if (bin >= args.bins) return;
  global const uint* counts = (global const uint*)(counts_base + args.counts_offset);
  ulong total = 0;
  for (uint c = 0; c < args.copies; c++) total += counts[(ulong)c * args.bins + bin];
  global char* place = out + args.out_offset + bin * args.out_step;
  const TYPE(OUT) sum = LOAD(OUT, place, 0) + (TYPE(OUT))total;
  STORE(OUT, place, 0, sum);
}
