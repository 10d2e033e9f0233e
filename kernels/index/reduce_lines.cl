// Combines through indices element by element, for CPUs: what index/reduce.cl does, with the places
// of 16 elements computed at a time. Every place belongs to one work-item, which takes what goes
// there in the order of the indices.
//
// Compile parameters: those of index/places.clh and index/reduce.clh; PARTS (1: the places of a
// column are shared out among several work-items).
#include "include/item_by_item.clh"
#include "index/places.clh"
#include "index/reduce.clh"
#ifndef PARTS
#define PARTS 0
#endif

// Elements whose places are collected before any of them is combined, where others' are among them.
#define BLOCK 256

#if FILL
#define OPERAND(at) value
#else
#define OPERAND(at) LOAD_AS(C, E, at, 0)
#endif
#define COMBINE_AT(to_at, from_at)            \
  {                                           \
    global char* to_ = (to_at);               \
    const TYPE(C) a_ = LOAD_AS(C, E, to_, 0); \
    const TYPE(C) b_ = OPERAND(from_at);      \
    const TYPE(C) result_ = COMBINE(a_, b_);  \
    STORE_FROM(E, C, to_, 0, result_);        \
  }

// Which of the work-items of a column a place belongs to. Neighbouring places share cache lines, so
// they go together where there are many.
#define PART_OF(n, place)                                                 \
  mul_hi(PASTE2(as_uint, n)((place) >> (int)arguments.row) * 0x9e3779b1u, \
         (PASTE2(uint, n))(arguments.parts))

#define REDUCE_LINES_PARAMETERS                                                \
  global char *out, const ulong out_offset, global const char *in,             \
      const ulong in_offset INDEX_PARAMETERS, const ReduceArguments arguments, \
      global int *asserts, uint site, TYPE(C) value

/// Along the steps, of which the innermost dimension is a line. Global size: columns by parts, or
/// more.
kernel ITEM_BY_ITEM void index_reduce_steps(REDUCE_LINES_PARAMETERS) {
  out += out_offset;
  in += in_offset;
  ADD_INDEX_OFFSETS()
  const uint column = get_global_id(0);
  const uint part = get_global_id(1);
  if (column >= arguments.columns || part >= arguments.parts) return;
  uint base[2 + NIDX] = {0}, steps[2 + NIDX];
  DECODE_COLUMN(base, column);
  for (uint k = 0; k < 2 + NIDX; k++) steps[k] = STEP_STRIDE(k, 0);
  const uint size = arguments.step_size[0];
#if PARTS
  int place[BLOCK];
  uint which[BLOCK];
#endif
  for (uint first = 0; first < arguments.steps; first += size) {
    uint at[2 + NIDX];
    for (uint k = 0; k < 2 + NIDX; k++) at[k] = base[k];
    DECODE_STEP(at, first);
    global char* to = out + base[0];
    for (uint start = 0; start < size; start += BLOCK) {
      global const char* from = in + at[1];
      const uint count = min(size - start, (uint)BLOCK);
      uint taken = 0;
      for (uint i = 0; i < count;) {
        int16 places = 0;
        long16 bad = 0;
        const bool whole = i + LANES <= count;
        if (whole) {
          FOR_INDICES(ADD_PLACES)
        }
        if (whole && !any(bad)) {
          int found[LANES];
          vstore16(places, 0, found);
#if PARTS
          int mine[LANES];
          vstore16(PART_OF(16, places) == (uint16)part, 0, mine);
#endif
          _Pragma("unroll") for (uint j = 0; j < LANES; j++) {
#if PARTS
            place[taken] = found[j];
            which[taken] = i + j;
            taken -= mine[j];  // -1: yes
#else
            COMBINE_AT(to + found[j], from + (i + j) * steps[1])
#endif
          }
          i += LANES;
          for (uint k = 0; k < 2 + NIDX; k++) at[k] += LANES * steps[k];
        } else {
          const uint end = min(i + LANES, count);
          for (; i < end; i++) {
            long moved = 0;
            bool valid = true;
            FOR_INDICES(ADD_INDEX)
#if PARTS
            if (valid && PART_OF(, (int)moved) == part) {
              place[taken] = (int)moved;
              which[taken++] = i;
            }
#else
            if (valid) COMBINE_AT(to + moved, from + i * steps[1])
#endif
            for (uint k = 0; k < 2 + NIDX; k++) at[k] += steps[k];
          }
        }
      }
#if PARTS
      for (uint i = 0; i < taken; i++) {
        COMBINE_AT(to + place[i], from + which[i] * steps[1])
      }
#endif
    }
  }
}

/// Along the innermost column dimension, `chunk` columns to a work-item, which are counted by
/// column_size[0]; there are `row`. Global size: columns.
kernel ITEM_BY_ITEM void index_reduce_columns(REDUCE_LINES_PARAMETERS) {
  out += out_offset;
  in += in_offset;
  ADD_INDEX_OFFSETS()
  const uint column = get_global_id(0);
  if (column >= arguments.columns) return;
  uint base[2 + NIDX] = {0}, steps[2 + NIDX];
  DECODE_COLUMN(base, column);
  for (uint k = 0; k < 2 + NIDX; k++) steps[k] = COLUMN_STRIDE(k, 0) / arguments.chunk;
  const uint count =
      min(arguments.row - column % arguments.column_size[0] * arguments.chunk, arguments.chunk);
  const int16 lanes =
      (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) * (int16)((int)steps[0]);
  for (uint step = 0; step < arguments.steps; step++) {
    uint at[2 + NIDX];
    for (uint k = 0; k < 2 + NIDX; k++) at[k] = base[k];
    DECODE_STEP(at, step);
    for (uint i = 0; i < count;) {
      int16 places = lanes;
      long16 bad = 0;
      const bool whole = i + LANES <= count;
      if (whole) {
        FOR_INDICES(ADD_PLACES)
      }
      global char* to = out + at[0];
      global const char* from = in + at[1];
      if (whole && !any(bad)) {
        int place[LANES];
        vstore16(places, 0, place);
        _Pragma("unroll") for (uint j = 0; j < LANES;
                               j++){COMBINE_AT(to + place[j], from + j * steps[1])} i += LANES;
        for (uint k = 0; k < 2 + NIDX; k++) at[k] += LANES * steps[k];
      } else {
        const uint end = min(i + LANES, count);
        for (; i < end; i++) {
          long moved = 0;
          bool valid = true;
          FOR_INDICES(ADD_INDEX)
          if (valid) {
            COMBINE_AT(out + at[0] + moved, in + at[1])
          }
          for (uint k = 0; k < 2 + NIDX; k++) at[k] += steps[k];
        }
      }
    }
  }
}
