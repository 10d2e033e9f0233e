// Reads through indices: index_select, gather, take, advanced indexing.
//
// Compile parameters: those of index/operands.clh; WIDTH (elements of a vector in the rows kernel), SPAN
// (elements per work-item there, a multiple of WIDTH).
#include "index/operands.clh"

#ifndef WIDTH
#define WIDTH 8
#endif
#ifndef SPAN
#define SPAN WIDTH
#endif

typedef struct {
  ulong offset[2 + NIDX];   // bytes: in (indexed), out, indices
  long index_size[NIDX];
  long index_stride[NIDX];  // bytes
  uint n;
  uint dims;
  uint size[DIMS];  // innermost first
  uint stride[2 + NIDX][DIMS];
} GatherLayout;

/// Element by element. Global size: n or more.
kernel void gather_elements(global const char *in, global char *out INDEX_PARAMETERS,
                            const GatherLayout layout, global int *asserts, uint site) {
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  uint at[2 + NIDX] = {0};
  DECODE_OFFSETS(at, 2 + NIDX, (uint)i, layout.dims, layout.size, layout.stride);
  long moved = 0;
  bool valid = true;
  FOR_INDICES(ADD_INDEX)
  if (!valid) return;
  const TYPE(E) value = LOAD(E, in + (layout.offset[0] + at[0]) + moved, 0);
  STORE(E, out + layout.offset[1] + at[1], 0, value);
}

/// The innermost dimension is contiguous and not indexed, so one look-up serves SPAN elements. Global
/// size: ceil(size[0] / SPAN) by n / size[0], or more; dimensions from 1 on are decoded.
kernel void gather_rows(global const char *in, global char *out INDEX_PARAMETERS,
                        const GatherLayout layout, global int *asserts, uint site) {
  const uint first = get_global_id(0) * SPAN;
  const uint row = get_global_id(1);
  if (first >= layout.size[0] || row >= layout.n / layout.size[0]) return;
  uint at[2 + NIDX] = {0};
  DECODE_ROW(at, row);
  long moved = 0;
  bool valid = true;
  FOR_INDICES(ADD_INDEX)
  if (!valid) return;
  global const char *from = in + (layout.offset[0] + at[0]) + moved;
  global char *to = out + layout.offset[1] + at[1];
  const uint end = min(first + SPAN, layout.size[0]);
  uint i = first;
#if WIDTH > 1
  for (; i + WIDTH <= end; i += WIDTH) {
    const TYPEV(E, WIDTH) values = LOADV(E, WIDTH, from, i / WIDTH);
    STOREV(E, WIDTH, to, i / WIDTH, values);
  }
#endif
  for (; i < end; i++) {
    const TYPE(E) value = LOAD(E, from, i);
    STORE(E, to, i, value);
  }
}
