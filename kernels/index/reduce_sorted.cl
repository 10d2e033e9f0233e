// Combines through indices on devices of many work-items, where none should walk through all
// indices (see reduce.cl): the elements are sorted by the place they go to, keeping their order,
// and each place's are combined by one work-item. Deterministic, without atomics.
//
// An element is a step of ReduceArguments; the columns, which share their indices, are combined
// side by side.
//
// Compile parameters: those of index/operands.clh and index/reduce.clh; KEY (u32 or u64, the tag of
// a place's number).
#include "index/operands.clh"
#include "index/reduce.clh"

#ifndef KEY
#define KEY u32
#endif

/// The places of the elements. One work-item each.
kernel void index_places(global char* out, const ulong out_offset, global const char* in,
                         const ulong in_offset INDEX_PARAMETERS, const ReduceArguments arguments,
                         global int* asserts, uint site, global char* keys_base,
                         const ulong keys_offset) {
  ADD_INDEX_OFFSETS()
  const uint element = get_global_id(0);
  if (element >= arguments.steps) return;
  uint at[2 + NIDX] = {0};
  DECODE_STEP(at, element);
  long moved = 0;
  bool valid = true;
  const bool skipped =
      arguments.skips && LOAD_AS(i64, INDEX, index0 + at[2], 0) == arguments.skipped;
  if (!skipped) {
    FOR_INDICES(ADD_INDEX)
  }
  global TYPE(KEY)* keys = (global TYPE(KEY)*)(keys_base + keys_offset);
  keys[element] =
      (TYPE(KEY))(skipped || !valid ? arguments.nowhere : ((ulong)moved + at[0]) / STORAGE_SIZE(E));
}

/// Combines, for each place, what goes there. A work-item per sorted element and column: the first
/// of a place's elements serves all of them.
kernel void index_combine(global char* out, const ulong out_offset, global const char* in,
                          const ulong in_offset INDEX_PARAMETERS, const ReduceArguments arguments,
                          global int* asserts, uint site, global const char* keys_base,
                          const ulong keys_offset, global const char* order_base,
                          const ulong order_offset, TYPE(C) value) {
  out += out_offset;
  in += in_offset;
  ADD_INDEX_OFFSETS()
  const ulong item = get_global_id(0);
  const uint first = (uint)(item / arguments.columns);
  const uint column = (uint)(item - (ulong)first * arguments.columns);
  if (first >= arguments.steps) return;
  global const TYPE(KEY)* keys = (global const TYPE(KEY)*)(keys_base + keys_offset);
  global const uint* order = (global const uint*)(order_base + order_offset);
  const TYPE(KEY) key = keys[first];
  if (key == (TYPE(KEY))arguments.nowhere || (first > 0 && keys[first - 1] == key)) return;
  uint base[2 + NIDX] = {0};
  DECODE_COLUMN(base, column);
  global char* to = out + base[0] + (ulong)key * STORAGE_SIZE(E);
  TYPE(C) result = LOAD_AS(C, E, to, 0);
  for (uint i = first; i < arguments.steps && keys[i] == key; i++) {
#if FILL
    result = COMBINE(result, value);
#else
    uint at[2 + NIDX] = {0};
    DECODE_STEP(at, order[i]);
    const TYPE(C) next = LOAD_AS(C, E, in + base[1] + at[1], 0);
    result = COMBINE(result, next);
#endif
  }
  STORE_FROM(E, C, to, 0, result);
}
