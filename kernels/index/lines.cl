// Reads and writes through indices element by element, for CPUs: a work-item takes SPAN elements of
// the innermost dimension, so that only the index values differ from one to the next. Their places
// are computed 16 at a time; where a value is out of range, and at a line's end, one by one. Where
// several values have one place, the line's last stays.
//
// Compile parameters: those of index/places.clh; WRITE (0: other = indexed, 1: indexed = other, 2:
// indexed = value); DENSE (1: neighbours of the other operand lie side by side); SHORT (1: the
// innermost dimension is two, of which only the indexed operand knows: `inner` elements each).
#include "include/item_by_item.clh"
#include "index/places.clh"

#ifndef WRITE
#define WRITE 0
#endif
#ifndef DENSE
#define DENSE 1
#endif
#ifndef SHORT
#define SHORT 0
#endif

#if WRITE == 0
#define MOVE(indexed_at, other_at)                 \
  {                                                \
    const TYPE(E) value_ = LOAD(E, indexed_at, 0); \
    STORE(E, other_at, 0, value_);                 \
  }
typedef global const char* Indexed;
typedef global char* Other;
#else
typedef global char* Indexed;
typedef global const char* Other;
#if WRITE == 1
#define MOVE(indexed_at, other_at)               \
  {                                              \
    const TYPE(E) value_ = LOAD(E, other_at, 0); \
    STORE(E, indexed_at, 0, value_);             \
  }
#else
#define MOVE(indexed_at, other_at) STORE(E, indexed_at, 0, value);
#endif
#endif

#if DENSE
#define OTHER_STEP STORAGE_SIZE(E)
#else
#define OTHER_STEP steps[1]
#endif

#if SHORT
#define WITHIN(e) \
  ((e) / arguments.inner * arguments.outer_step + (e) % arguments.inner * arguments.inner_step)
#else
#define WITHIN(e) ((e) * steps[0])
#endif

/// Global size: ceil(size[0] / span) by n / size[0], or more.
kernel ITEM_BY_ITEM void index_lines(Indexed indexed, const ulong indexed_offset, Other other,
                                     const ulong other_offset INDEX_PARAMETERS,
                                     const MoveArguments arguments, global int* asserts, uint site
#if WRITE == 2
                                     ,
                                     TYPE(E) value
#endif
) {
  indexed += indexed_offset;
  other += other_offset;
  ADD_INDEX_OFFSETS()
  const uint first = get_global_id(0) * arguments.span;
  const uint line = get_global_id(1);
  if (first >= arguments.size[0] || line >= arguments.n / arguments.size[0]) return;
  uint at[2 + NIDX], steps[2 + NIDX];
  at[0] = 0;
  for (uint k = 0; k < 2 + NIDX; k++) {
    steps[k] = STRIDE(k, 0);
    if (k > 0) at[k] = first * steps[k];
  }
  DECODE_ROW(at, line);
  // Within the work-item's elements.
  const uint16 lanes = (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  at[0] += WITHIN(first);
  const uint total = min(arguments.span, arguments.size[0] - first);
#if SHORT
  const float16 reciprocal = (float16)(1.0f / (float)arguments.inner);
#endif
  for (uint done = 0; done < total;) {
    const uint count = min(total - done, (uint)LANES);
#if SHORT
    // Halves away from a whole number, so that rounding does not matter.
    const uint16 element = lanes + done;
    const uint16 outer = convert_uint16((convert_float16(element) + 0.5f) * reciprocal);
    int16 places = as_int16(outer * arguments.outer_step +
                            (element - outer * arguments.inner) * arguments.inner_step);
#else
    int16 places = as_int16((lanes + done) * steps[0]);
#endif
    long16 bad = 0;
    if (count == LANES) {
      FOR_INDICES(ADD_PLACES)
    }
    Indexed indexed_at = indexed + at[0];
    Other other_at = other + at[1];
    if (count == LANES && !any(bad)) {
      int place[LANES];
      vstore16(places, 0, place);
      _Pragma("unroll") for (uint j = 0; j < LANES; j++) {
        MOVE(indexed_at + place[j], other_at + j * OTHER_STEP)
      }
      for (uint k = 1; k < 2 + NIDX; k++) at[k] += LANES * steps[k];
    } else {
      for (uint j = 0; j < count; j++) {
        long moved = 0;
        bool valid = true;
        FOR_INDICES(ADD_INDEX)
        if (valid) {
          MOVE(indexed_at + WITHIN(done + j) + moved, other + at[1])
        }
        for (uint k = 1; k < 2 + NIDX; k++) at[k] += steps[k];
      }
    }
    done += count;
  }
}
