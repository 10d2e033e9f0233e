// Coordinates of the nonzero elements, in row-major order: count per chunk, sum the counts, write.
//
// Compile parameters: IN (tag), CONTIGUOUS.
#include "include/dtype.clh"
#include "include/indexing.clh"
#define STRIDES 1  // of other kernels
#include "index/arguments.clh"

#ifndef IN
#define IN f32
#endif
#ifndef CONTIGUOUS
#define CONTIGUOUS 0
#endif

/// Whether element i is nonzero. A macro: see DECODE_OFFSETS.
#if CONTIGUOUS
#define TEST(result, i) const bool result = LOAD_AS(b8, IN, in, i)
#else
#define TEST(result, i)                                                       \
  uint at[1] = {0};                                                           \
  DECODE_OFFSETS(at, 1, i, arguments.dims, arguments.size, arguments.stride); \
  const bool result = LOAD_AS(b8, IN, in + at[0], 0)
#endif

kernel void nonzero_count(global const char* in, const ulong in_offset, global char* counts,
                          const ulong counts_offset, const NonzeroArguments arguments) {
  in += in_offset;
  const uint first = get_global_id(0) * arguments.chunk;
  if (first >= arguments.n) return;
  const uint end = first + min(arguments.chunk, arguments.n - first);
  long count = 0;
  for (uint i = first; i < end; i++) {
    TEST(nonzero, i);
    count += nonzero;
  }
  ((global long*)(counts + counts_offset))[get_global_id(0)] = count;
}

/// counts[i] becomes the number before chunk i, counts[chunks] the total. One work-item: the chunks
/// are few.
kernel void nonzero_scan(global char* counts_base, const ulong counts_offset, uint chunks) {
  if (get_global_id(0) != 0) return;
  global long* counts = (global long*)(counts_base + counts_offset);
  long total = 0;
  for (uint i = 0; i < chunks; i++) {
    const long count = counts[i];
    counts[i] = total;
    total += count;
  }
  counts[chunks] = total;
}

/// Row r of out (long) is at r * row_step, coordinate d of it d * dim_step further (elements); rows
/// from `limit` on are dropped.
kernel void nonzero_write(global const char* in, const ulong in_offset, global const char* counts,
                          const ulong counts_offset, const NonzeroArguments arguments,
                          global char* out_base, const ulong out_offset, ulong row_step,
                          ulong dim_step, ulong limit, uint coordinates) {
  in += in_offset;
  const uint first = get_global_id(0) * arguments.chunk;
  if (first >= arguments.n) return;
  const uint end = first + min(arguments.chunk, arguments.n - first);
  global long* out = (global long*)(out_base + out_offset);
  ulong row = ((global const long*)(counts + counts_offset))[get_global_id(0)];
  for (uint i = first; i < end && row < limit; i++) {
    TEST(nonzero, i);
    if (!nonzero) continue;
    uint rest = i;
    for (uint d = 0; d < coordinates; d++) {
      const uint quotient = rest / arguments.size[d];
      out[row * row_step + (coordinates - 1 - d) * dim_step] = rest - quotient * arguments.size[d];
      rest = quotient;
    }
    row++;
  }
}
