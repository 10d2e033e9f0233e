// Combines through indices: index_add, scatter_add, scatter_reduce, index_put with accumulate, the
// gradient of embedding. Deterministic, in the order of the indices, for every dtype and without
// atomics: every place of the result belongs to one work-item.
//
// A work-item (x, y) owns chunk x of the columns (the dimensions in which the result is not
// indexed), and of each column the places whose hash falls into part y. It walks through all
// indices and skips the places of others.
//
// Compile parameters: those of index/operands.clh and index/reduce.clh; WIDTH (lanes; above 1 the
// innermost column dimension is contiguous and not indexed, and a work-item takes `chunk` columns
// of it).
#include "index/operands.clh"
#include "index/reduce.clh"

#ifndef WIDTH
#define WIDTH 1
#endif

/// Global size: columns by parts, or more.
kernel void index_reduce(global char* out, const ulong out_offset, global const char* in,
                         const ulong in_offset INDEX_PARAMETERS, const ReduceArguments arguments,
                         global int* asserts, uint site, TYPE(C) value) {
  out += out_offset;
  in += in_offset;
  ADD_INDEX_OFFSETS()
  const uint column = get_global_id(0);
  const uint part = get_global_id(1);
  if (column >= arguments.columns || part >= arguments.parts) return;
  uint base[2 + NIDX] = {0};
  DECODE_COLUMN(base, column);
#if WIDTH > 1
  const uint chunks = arguments.column_size[0];
  const uint first = column % chunks * arguments.chunk;
  const uint count = min(arguments.row - first, arguments.chunk), vectors = count / WIDTH;
#endif
  for (uint step = 0; step < arguments.steps; step++) {
    uint at[2 + NIDX];
    for (uint k = 0; k < 2 + NIDX; k++) at[k] = base[k];
    DECODE_STEP(at, step);
    if (arguments.skips && LOAD_AS(i64, INDEX, index0 + at[2], 0) == arguments.skipped) {
      continue;
    }
    long moved = 0;
    bool valid = true;
    FOR_INDICES(ADD_INDEX)
    if (!valid) continue;
    const uint hash = (uint)((ulong)moved >> 1) * 0x9e3779b1u;
    if (mul_hi(hash, arguments.parts) != part) continue;
    global char* to = out + at[0] + moved;
    global const char* from = in + at[1];
#if WIDTH > 1
    for (uint v = 0; v < vectors; v++) {
      const TYPEV(C, WIDTH) a = LOADV_AS(C, E, WIDTH, to, v);
#if FILL
      const TYPEV(C, WIDTH) b = (TYPEV(C, WIDTH))(value);
#else
      const TYPEV(C, WIDTH) b = LOADV_AS(C, E, WIDTH, from, v);
#endif
      const TYPEV(C, WIDTH) result = COMBINE(a, b);
      STOREV_FROM(E, C, WIDTH, to, v, result);
    }
    for (uint i = vectors * WIDTH; i < count; i++) {
#else
    const uint i = 0;
    {
#endif
      const TYPE(C) a = LOAD_AS(C, E, to, i);
#if FILL
      const TYPE(C) b = value;
#else
      const TYPE(C) b = LOAD_AS(C, E, from, i);
#endif
      const TYPE(C) result = COMBINE(a, b);
      STORE_FROM(E, C, to, i, result);
    }
  }
}
