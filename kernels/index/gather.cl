// Reads through indices: index_select, gather, take, advanced indexing.
//
// Compile parameters: those of index/copies.clh.
#include "index/copies.clh"

/// Element by element. Global size: n or more.
kernel void gather_elements(global const char* in, const ulong in_offset, global char* out,
                            const ulong out_offset INDEX_PARAMETERS, const MoveArguments arguments,
                            global int* asserts, uint site) {
  in += in_offset;
  out += out_offset;
  ADD_INDEX_OFFSETS()
  const size_t i = get_global_id(0);
  if (i >= arguments.n) return;
  uint at[2 + NIDX] = {0};
  DECODE_ELEMENT(at, (uint)i);
  LOOK_UP
  if (!valid) return;
  const TYPE(E) value = LOAD(E, in + at[0] + moved, 0);
  STORE(E, out + at[1], 0, value);
}

/// The innermost dimension is contiguous and not indexed, so one look-up serves SPAN elements.
/// Global size: ceil(size[0] / SPAN) by n / size[0], or more; dimensions from 1 on are decoded.
kernel void gather_rows(global const char* in, const ulong in_offset, global char* out,
                        const ulong out_offset INDEX_PARAMETERS, const MoveArguments arguments,
                        global int* asserts, uint site) {
  in += in_offset;
  out += out_offset;
  ADD_INDEX_OFFSETS()
  const uint first = get_global_id(0) * SPAN;
  const uint row = get_global_id(1);
  if (first >= arguments.size[0] || row >= arguments.n / arguments.size[0]) return;
  uint at[2 + NIDX] = {0};
  DECODE_ROW(at, row);
  LOOK_UP
  if (!valid) return;
  copy_span(out + at[1], in + at[0] + moved, first, min(first + SPAN, arguments.size[0]));
}
