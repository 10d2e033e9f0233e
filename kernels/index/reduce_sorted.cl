// Combines through indices on devices of many work-items, where none should walk through all
// indices (see reduce.cl): the elements are sorted by the place they go to, keeping their order,
// and each place's are combined by one work-item. Deterministic, without atomics.
//
// An element is one of the indexed dimensions and of those columns whose indices differ; the
// columns that share their indices are combined side by side.
//
// Compile parameters: those of index/operands.clh and index/reduce.clh; KEY (u32 or u64, the tag of
// a place's number).
#include "index/operands.clh"
#include "index/reduce.clh"

#ifndef KEY
#define KEY u32
#endif

typedef struct {
  ulong offset[2 + NIDX];  // bytes: out (indexed), in, indices
  long index_size[NIDX];
  long index_stride[NIDX];  // bytes
  long skipped;             // an index value that is passed over (of the first index tensor)
  ulong nowhere;            // the key of what goes to no place: above all others
  uint elements;
  uint columns;
  uint element_dims;
  uint column_dims;
  uint skips;                      // whether there is such a value
  uint element_size[REDUCE_DIMS];  // innermost first
  uint element_stride[2 + NIDX][REDUCE_DIMS];
  uint column_size[REDUCE_DIMS];
  uint column_stride[2 + NIDX][REDUCE_DIMS];
} SortedLayout;

#define ELEMENT_OFFSETS(at, element)                                              \
  uint at[2 + NIDX] = {0};                                                        \
  DECODE_OFFSETS(at, 2 + NIDX, element, layout.element_dims, layout.element_size, \
                 layout.element_stride)

/// The places of the elements. One work-item each.
kernel void index_places(global char* out, global const char* in INDEX_PARAMETERS,
                         const SortedLayout layout, global int* asserts, uint site,
                         global char* key_base, ulong key_offset) {
  const uint element = get_global_id(0);
  if (element >= layout.elements) return;
  ELEMENT_OFFSETS(at, element);
  long moved = 0;
  bool valid = true;
  const bool skipped =
      layout.skips && LOAD_AS(i64, INDEX, index0 + layout.offset[2] + at[2], 0) == layout.skipped;
  if (!skipped) {
    FOR_INDICES(ADD_INDEX)
  }
  global TYPE(KEY)* keys = (global TYPE(KEY)*)(key_base + key_offset);
  keys[element] =
      (TYPE(KEY))(skipped || !valid ? layout.nowhere : ((ulong)moved + at[0]) / STORAGE_SIZE(E));
}

/// Combines, for each place, what goes there. A work-item per sorted element and column: the first
/// of a place's elements serves all of them.
kernel void index_combine(global char* out, global const char* in INDEX_PARAMETERS,
                          const SortedLayout layout, global int* asserts, uint site,
                          global const char* key_base, ulong key_offset,
                          global const char* order_base, ulong order_offset, TYPE(C) value) {
  const ulong item = get_global_id(0);
  const uint first = (uint)(item / layout.columns);
  const uint column = (uint)(item - (ulong)first * layout.columns);
  if (first >= layout.elements) return;
  global const TYPE(KEY)* keys = (global const TYPE(KEY)*)(key_base + key_offset);
  global const uint* order = (global const uint*)(order_base + order_offset);
  const TYPE(KEY) key = keys[first];
  if (key == (TYPE(KEY))layout.nowhere || (first > 0 && keys[first - 1] == key)) return;
  uint base[2 + NIDX] = {0};
  DECODE_OFFSETS(base, 2 + NIDX, column, layout.column_dims, layout.column_size,
                 layout.column_stride);
  global char* to = out + layout.offset[0] + base[0] + (ulong)key * STORAGE_SIZE(E);
  TYPE(C) result = LOAD_AS(C, E, to, 0);
  for (uint i = first; i < layout.elements && keys[i] == key; i++) {
#if FILL
    result = COMBINE(result, value);
#else
    ELEMENT_OFFSETS(at, order[i]);
    const TYPE(C) next = LOAD_AS(C, E, in + layout.offset[1] + base[1] + at[1], 0);
    result = COMBINE(result, next);
#endif
  }
  STORE_FROM(E, C, to, 0, result);
}
