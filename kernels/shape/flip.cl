// Copies with a stride of either sign per dimension: flip.
//
// Compile parameter: E (an unsigned tag of the element's size, u128 for 16 bytes).
#include "include/dtype.clh"
#include "include/indexing.clh"

#ifndef E
#define E u32
#endif

typedef struct {
  ulong offset[2];  // bytes: out, in
  uint n;
  uint dims;
  uint size[16];       // innermost first
  uint stride[2][16];  // bytes, two's complement; sums are below 2^31 in magnitude
} FlipLayout;

/// Global size: n or more.
kernel void copy_signed(global char *out, global const char *in, const FlipLayout layout) {
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  uint at[2] = {0};
  DECODE_OFFSETS(at, 2, (uint)i, layout.dims, layout.size, layout.stride);
  const TYPE(E) value = LOAD(E, in + layout.offset[1] + (long)(int)at[1], 0);
  STORE(E, out + layout.offset[0] + (long)(int)at[0], 0, value);
}
