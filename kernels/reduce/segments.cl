// Reductions of stretches of a dimension: data is [outer][length][inner], offsets [outer][segments
// + 1], results [outer][segments][inner], all contiguous. One work-item per result, or, on CPUs,
// per piece of a row of them.
//
// Compile parameters: E (tag of data and results), C (computed with), INDEX (tag of the offsets),
// REDUCE (0 maximum, 1 mean, 2 minimum, 3 sum, 4 product: at::native::ReductionType), INITIAL
// (`initial` is what a segment starts from), WIDTH (of a vector; at most `inner`).
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#ifndef INDEX
#define INDEX i64
#endif
#ifndef REDUCE
#define REDUCE 3
#endif
#ifndef INITIAL
#define INITIAL 0
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#include "include/assert.clh"
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "include/reduce.clh"
#include "reduce/segment_arguments.clh"

typedef TYPE(C) real;

#if REDUCE == 0
#define START (-(real)INFINITY)
#define COMBINE(a, b) COMBINE_MAX(a, b)
#elif REDUCE == 2
#define START ((real)INFINITY)
#define COMBINE(a, b) COMBINE_MIN(a, b)
#elif REDUCE == 4
#define START ((real)1)
#define COMBINE(a, b) COMBINE_PROD(a, b)
#else
#define START ((real)0)
#define COMBINE(a, b) COMBINE_SUM(a, b)
#endif

/// The segment of `row`, within bounds whatever the offsets say.
#define DECLARE_ROW()                                                               \
  const ulong outer = row / args.segments;                                          \
  const ulong number = outer * (args.segments + 1) + (row - outer * args.segments); \
  offsets += offsets_offset;                                                        \
  const long from = LOAD_AS(i64, INDEX, offsets, number);                           \
  const long to = LOAD_AS(i64, INDEX, offsets, number + 1);                         \
  if (to < from) record_failure(to - from, 0, asserts, site);                       \
  const ulong begin = clamp(from, 0l, (long)args.length);                           \
  const ulong end = clamp(to, (long)begin, (long)args.length);                      \
  data += data_offset
#define DECLARE_SEGMENT()                    \
  const ulong i = get_global_id(0);          \
  if (i >= args.results) return;             \
  const ulong row = i / args.inner;          \
  const ulong column = i - row * args.inner; \
  DECLARE_ROW()
#define AT(j) ((outer * args.length + (j)) * args.inner + column)
#define ELEMENT(j) LOAD_AS(C, E, data, AT(j))

kernel void segment_reduce(global const char* data, const ulong data_offset,
                           global const char* offsets, const ulong offsets_offset, global char* out,
                           const ulong out_offset, const SegmentArguments args, real initial,
                           global int* asserts, uint site) {
  DECLARE_SEGMENT();
  real result = INITIAL ? initial : START;
  for (ulong j = begin; j < end; j++) {
    const real value = ELEMENT(j);
    result = COMBINE(result, value);
  }
#if REDUCE == 1
  if (end > begin) {
    result /= end - begin;
  } else if (!INITIAL) {
    result = NAN;  // the mean of nothing
  }
#endif
  STORE_FROM(E, C, out + out_offset, i, result);
}

#define SPAN (kSpanVectors * WIDTH)

/// SPAN columns to a work-item, WIDTH of them at a time, the last ones overlapping. Global size:
/// ceil(inner / SPAN) by outer * segments, or more.
kernel ITEM_BY_ITEM void segment_reduce_rows(global const char* data, const ulong data_offset,
                                             global const char* offsets, const ulong offsets_offset,
                                             global char* out, const ulong out_offset,
                                             const SegmentArguments args, real initial,
                                             global int* asserts, uint site) {
  typedef TYPEV(C, WIDTH) Reals;
  const ulong row = get_global_id(1);
  const ulong first = (ulong)get_global_id(0) * SPAN;
  if (first >= args.inner || row * args.inner >= args.results) return;
  DECLARE_ROW();
  for (ulong c = first; c < min(first + SPAN, args.inner); c += WIDTH) {
    const ulong column = min(c, args.inner - WIDTH);
    Reals result = (Reals)(INITIAL ? initial : START);
    for (ulong j = begin; j < end; j++) {
      const Reals value = LOADV_AS(C, E, WIDTH, data + AT(j) * STORAGE_SIZE(E), 0);
      result = COMBINE(result, value);
    }
#if REDUCE == 1
    if (end > begin) {
      result /= (real)(end - begin);
    } else if (!INITIAL) {
      result = (Reals)(NAN);  // the mean of nothing
    }
#endif
    global char* first_out = out + out_offset + (row * args.inner + column) * STORAGE_SIZE(E);
    STOREV_FROM(E, C, WIDTH, first_out, 0, result);
  }
}

/// The gradient by data, which has no elements outside of segments that are not 0 already.
kernel void segment_reduce_backward(global const char* data, const ulong data_offset,
                                    global const char* offsets, const ulong offsets_offset,
                                    global const char* grad, const ulong grad_offset,
                                    global const char* result, const ulong result_offset,
                                    global char* out, const ulong out_offset,
                                    const SegmentArguments args, real initial, global int* asserts,
                                    uint site) {
  DECLARE_SEGMENT();
  out += out_offset;
  const real flowing = LOAD_AS(C, E, grad + grad_offset, i);
#if REDUCE == 0 || REDUCE == 2
  // Equal extremes share it.
  const real extreme = LOAD_AS(C, E, result + result_offset, i);
  uint count = 0;
  for (ulong j = begin; j < end; j++) {
    const real value = ELEMENT(j);
    count += value == extreme || value != value;
  }
  for (ulong j = begin; j < end; j++) {
    const real value = ELEMENT(j);
    const bool shares = value == extreme || value != value;
    STORE_FROM(E, C, out, AT(j), shares ? flowing / count : (real)0);
  }
#elif REDUCE == 4
  // A quotient, but for what can't divide: there the others are multiplied. The stored result may
  // be rounded to a half type.
  real product = INITIAL ? initial : START;
  for (ulong j = begin; j < end; j++) product *= ELEMENT(j);
  for (ulong j = begin; j < end; j++) {
    const real value = ELEMENT(j);
    real slope = product / value;
    if (value == 0 || value != value) {
      slope = INITIAL ? initial : (real)1;
      for (ulong k = begin; k < end; k++) {
        if (k != j) slope *= ELEMENT(k);
      }
    }
    STORE_FROM(E, C, out, AT(j), flowing * slope);
  }
#else
  for (ulong j = begin; j < end; j++) {
    STORE_FROM(E, C, out, AT(j), REDUCE == 1 ? flowing / (end - begin) : flowing);
  }
#endif
}
