// Writes through indices: scatter, put, index_copy, index_fill, index_put. Which of several values for
// one place stays is not defined; index/reduce.cl keeps the last.
//
// Compile parameters: those of index/operands.clh; FILL (1: every element is `value`; 0: it comes
// from `in`); WIDTH (elements of a vector in the rows kernel), SPAN (elements per work-item there, a
// multiple of WIDTH).
#include "index/operands.clh"

#ifndef FILL
#define FILL 0
#endif
#ifndef WIDTH
#define WIDTH 8
#endif
#ifndef SPAN
#define SPAN WIDTH
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

/// The innermost dimension is contiguous and not indexed, so one look-up serves SPAN elements. Global
/// size: ceil(size[0] / SPAN) by n / size[0], or more; dimensions from 1 on are decoded.
kernel void scatter_rows(global char *out, global const char *in INDEX_PARAMETERS,
                         const ScatterLayout layout, global int *asserts, uint site,
                         TYPE(E) value) {
  const uint first = get_global_id(0) * SPAN;
  const uint row = get_global_id(1);
  if (first >= layout.size[0] || row >= layout.n / layout.size[0]) return;
  uint at[2 + NIDX] = {0};
  DECODE_ROW(at, row);
  long moved = 0;
  bool valid = true;
  FOR_INDICES(ADD_INDEX)
  if (!valid) return;
  global char *to = out + (layout.offset[0] + at[0]) + moved;
#if !FILL
  global const char *from = in + layout.offset[1] + at[1];
#endif
  const uint end = min(first + SPAN, layout.size[0]);
  uint i = first;
#if WIDTH > 1
  for (; i + WIDTH <= end; i += WIDTH) {
#if FILL
    const TYPEV(E, WIDTH) values = (TYPEV(E, WIDTH))(value);
#else
    const TYPEV(E, WIDTH) values = LOADV(E, WIDTH, from, i / WIDTH);
#endif
    STOREV(E, WIDTH, to, i / WIDTH, values);
  }
#endif
  for (; i < end; i++) {
#if !FILL
    value = LOAD(E, from, i);
#endif
    STORE(E, to, i, value);
  }
}
