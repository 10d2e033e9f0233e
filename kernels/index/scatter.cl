// Writes through indices, element by element: scatter, put, index_copy, index_fill, index_put. Which of
// several values for one place stays is not defined; index/reduce.cl keeps the last.
//
// Compile parameters: those of index/operands.clh; FILL (1: every element is `value`; 0: it comes
// from `in`).
#include "index/operands.clh"

#ifndef FILL
#define FILL 0
#endif

typedef struct {
  ulong offset[2 + NIDX];   // bytes: out (indexed), in, indices
  long index_size[NIDX];
  long index_stride[NIDX];  // bytes
  uint n;
  uint dims;
  uint size[DIMS];  // innermost first
  uint stride[2 + NIDX][DIMS];
} ScatterLayout;

/// Global size: n or more. `in` is not read if FILL.
kernel void scatter_elements(global char *out, global const char *in INDEX_PARAMETERS,
                             const ScatterLayout layout, global int *asserts, uint site,
                             TYPE(E) value) {
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  uint at[2 + NIDX] = {0};
  DECODE_OFFSETS(at, 2 + NIDX, (uint)i, layout.dims, layout.size, layout.stride);
  long moved = 0;
  bool valid = true;
  FOR_INDICES(ADD_INDEX)
  if (!valid) return;
#if !FILL
  value = LOAD(E, in + layout.offset[1] + at[1], 0);
#endif
  STORE(E, out + (layout.offset[0] + at[0]) + moved, 0, value);
}
