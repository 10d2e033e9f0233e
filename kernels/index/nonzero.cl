// Coordinates of the nonzero elements, in row-major order: count per chunk, sum the counts, write.
//
// Compile parameters: IN (tag), CONTIGUOUS.
#include "include/dtype.clh"
#include "include/indexing.clh"

#ifndef IN
#define IN f32
#endif
#ifndef CONTIGUOUS
#define CONTIGUOUS 0
#endif

typedef struct {
  ulong in_offset;
  ulong counts_offset;  // long[chunks + 1]
  uint n;
  uint chunk;     // elements per work-item
  uint dims;      // of the tensor, none merged: size gives the coordinates
  uint size[16];  // innermost first
  uint stride[1][16];
} NonzeroLayout;

/// Whether element i is nonzero. A macro: see DECODE_OFFSETS.
#if CONTIGUOUS
#define TEST(result, i) const bool result = LOAD_AS(b8, IN, in + layout.in_offset, i)
#else
#define TEST(result, i)                                              \
  uint at[1] = {0};                                                  \
  DECODE_OFFSETS(at, 1, i, layout.dims, layout.size, layout.stride); \
  const bool result = LOAD_AS(b8, IN, in + layout.in_offset + at[0], 0)
#endif

kernel void nonzero_count(global const char* in, global char* counts, const NonzeroLayout layout) {
  const uint first = get_global_id(0) * layout.chunk;
  if (first >= layout.n) return;
  const uint end = first + min(layout.chunk, layout.n - first);
  long count = 0;
  for (uint i = first; i < end; i++) {
    TEST(nonzero, i);
    count += nonzero;
  }
  ((global long*)(counts + layout.counts_offset))[get_global_id(0)] = count;
}

/// counts[i] becomes the number before chunk i, counts[chunks] the total. One work-item: the chunks
/// are few.
kernel void nonzero_scan(global char* counts_base, ulong counts_offset, uint chunks) {
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
kernel void nonzero_write(global const char* in, global const char* counts,
                          const NonzeroLayout layout, global char* out_base, ulong out_offset,
                          ulong row_step, ulong dim_step, ulong limit, uint coordinates) {
  const uint first = get_global_id(0) * layout.chunk;
  if (first >= layout.n) return;
  const uint end = first + min(layout.chunk, layout.n - first);
  global long* out = (global long*)(out_base + out_offset);
  ulong row = ((global const long*)(counts + layout.counts_offset))[get_global_id(0)];
  for (uint i = first; i < end && row < limit; i++) {
    TEST(nonzero, i);
    if (!nonzero) continue;
    uint rest = i;
    for (uint d = 0; d < coordinates; d++) {
      const uint quotient = rest / layout.size[d];
      out[row * row_step + (coordinates - 1 - d) * dim_step] = rest - quotient * layout.size[d];
      rest = quotient;
    }
    row++;
  }
}
