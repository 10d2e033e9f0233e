// Writes through indices: scatter, put, index_copy, index_fill, index_put. Which of several values
// for one place stays is not defined; index/reduce.cl keeps the last.
//
// Compile parameters: those of index/copies.clh; FILL (1: every element is `value`; 0: it comes
// from `in`).
#include "index/copies.clh"

#ifndef FILL
#define FILL 0
#endif

/// Global size: n or more. `in` is not read if FILL.
kernel void scatter_elements(global char* out, const ulong out_offset, global const char* in,
                             const ulong in_offset INDEX_PARAMETERS, const MoveArguments arguments,
                             global int* asserts, uint site, TYPE(E) value) {
  out += out_offset;
  in += in_offset;
  ADD_INDEX_OFFSETS()
  const size_t i = get_global_id(0);
  if (i >= arguments.n) return;
  uint at[2 + NIDX] = {0};
  DECODE_ELEMENT(at, (uint)i);
  LOOK_UP
  if (!valid) return;
#if !FILL
  value = LOAD(E, in + at[1], 0);
#endif
  STORE(E, out + at[0] + moved, 0, value);
}

/// The innermost dimension is contiguous and not indexed, so one look-up serves SPAN elements.
/// Global size: ceil(size[0] / SPAN) by n / size[0], or more; dimensions from 1 on are decoded.
kernel void scatter_rows(global char* out, const ulong out_offset, global const char* in,
                         const ulong in_offset INDEX_PARAMETERS, const MoveArguments arguments,
                         global int* asserts, uint site, TYPE(E) value) {
  out += out_offset;
  in += in_offset;
  ADD_INDEX_OFFSETS()
  const uint first = get_global_id(0) * SPAN;
  const uint row = get_global_id(1);
  if (first >= arguments.size[0] || row >= arguments.n / arguments.size[0]) return;
  uint at[2 + NIDX] = {0};
  DECODE_ROW(at, row);
  LOOK_UP
  if (!valid) return;
  global char* to = out + at[0] + moved;
  const uint end = min(first + SPAN, arguments.size[0]);
#if FILL
  fill_span(to, value, first, end);
#else
  copy_span(to, in + at[1], first, end);
#endif
}
