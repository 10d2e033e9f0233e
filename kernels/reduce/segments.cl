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

typedef TYPE(C) real;

// The layout is that of csrc/ops/SegmentReduce.cpp.
typedef struct {
  ulong data_offset, offsets_offset, out_offset, grad_offset, result_offset;  // bytes
  ulong length, segments, inner;
  ulong results;
} SegmentArgs;

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
  global const char* offsets = offsets_base + args.offsets_offset;                  \
  const long from = LOAD_AS(i64, INDEX, offsets, number);                           \
  const long to = LOAD_AS(i64, INDEX, offsets, number + 1);                         \
  if (to < from) record_failure(to - from, 0, asserts, site);                       \
  const ulong begin = clamp(from, 0l, (long)args.length);                           \
  const ulong end = clamp(to, (long)begin, (long)args.length);                      \
  global const char* data = data_base + args.data_offset
#define DECLARE_SEGMENT()                    \
  const ulong i = get_global_id(0);          \
  if (i >= args.results) return;             \
  const ulong row = i / args.inner;          \
  const ulong column = i - row * args.inner; \
  DECLARE_ROW()
#define AT(j) ((outer * args.length + (j)) * args.inner + column)
#define ELEMENT(j) LOAD_AS(C, E, data, AT(j))

kernel void segment_reduce(global const char* data_base, global const char* offsets_base,
                           global char* out_base, const SegmentArgs args, real initial,
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
  STORE_FROM(E, C, out_base + args.out_offset, i, result);
}

#define SPAN (16 * WIDTH)

/// SPAN columns to a work-item, WIDTH of them at a time, the last ones overlapping. Global size:
/// ceil(inner / SPAN) by outer * segments, or more.
kernel ITEM_BY_ITEM void segment_reduce_rows(global const char* data_base,
                                             global const char* offsets_base, global char* out_base,
                                             const SegmentArgs args, real initial,
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
    global char* out = out_base + args.out_offset + (row * args.inner + column) * STORAGE_SIZE(E);
    STOREV_FROM(E, C, WIDTH, out, 0, result);
  }
}

/// The gradient by data, which has no elements outside of segments that are not 0 already.
kernel void segment_reduce_backward(global const char* data_base, global const char* offsets_base,
                                    global const char* grad_base, global const char* result_base,
                                    global char* out_base, const SegmentArgs args, real initial,
                                    global int* asserts, uint site) {
  DECLARE_SEGMENT();
  global char* out = out_base + args.out_offset;
  const real grad = LOAD_AS(C, E, grad_base + args.grad_offset, i);
#if REDUCE == 0 || REDUCE == 2
  // Equal extremes share it.
  const real result = LOAD_AS(C, E, result_base + args.result_offset, i);
  uint count = 0;
  for (ulong j = begin; j < end; j++) {
    const real value = ELEMENT(j);
    count += value == result || value != value;
  }
  for (ulong j = begin; j < end; j++) {
    const real value = ELEMENT(j);
    const bool extreme = value == result || value != value;
    STORE_FROM(E, C, out, AT(j), extreme ? grad / count : (real)0);
  }
#elif REDUCE == 4
  // A quotient, but for what can't divide: there the others are multiplied. The stored result may
  // be rounded to a half type.
  real result = INITIAL ? initial : START;
  for (ulong j = begin; j < end; j++) result *= ELEMENT(j);
  for (ulong j = begin; j < end; j++) {
    const real value = ELEMENT(j);
    real slope = result / value;
    if (value == 0 || value != value) {
      slope = INITIAL ? initial : (real)1;
      for (ulong k = begin; k < end; k++) {
        if (k != j) slope *= ELEMENT(k);
      }
    }
    STORE_FROM(E, C, out, AT(j), grad * slope);
  }
#else
  for (ulong j = begin; j < end; j++) {
    STORE_FROM(E, C, out, AT(j), REDUCE == 1 ? grad / (end - begin) : grad);
  }
#endif
}
