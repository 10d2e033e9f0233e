// Reads through indices: index_select, gather, take, advanced indexing.
//
// Compile parameters: those of index/copies.clh.
#include "index/copies.clh"

/// Element by element. Global size: n or more.
kernel void gather_elements(global const char* in, global char* out INDEX_PARAMETERS,
                            const CopyLayout layout, global int* asserts, uint site) {
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  uint at[2 + NIDX] = {0};
  DECODE_OFFSETS(at, 2 + NIDX, (uint)i, layout.dims, layout.size, layout.stride);
  LOOK_UP
  if (!valid) return;
  const TYPE(E) value = LOAD(E, in + (layout.offset[0] + at[0]) + moved, 0);
  STORE(E, out + layout.offset[1] + at[1], 0, value);
}

/// The innermost dimension is contiguous and not indexed, so one look-up serves SPAN elements.
/// Global size: ceil(size[0] / SPAN) by n / size[0], or more; dimensions from 1 on are decoded.
kernel void gather_rows(global const char* in, global char* out INDEX_PARAMETERS,
                        const CopyLayout layout, global int* asserts, uint site) {
  const uint first = get_global_id(0) * SPAN;
  const uint row = get_global_id(1);
  if (first >= layout.size[0] || row >= layout.n / layout.size[0]) return;
  uint at[2 + NIDX] = {0};
  DECODE_ROW(at, row);
  LOOK_UP
  if (!valid) return;
  copy_span(out + layout.offset[1] + at[1], in + (layout.offset[0] + at[0]) + moved, first,
            min(first + SPAN, layout.size[0]));
}
