// Norms over lists of tensors: operand 0 is read, and operand 1 has an element for each chunk of
// it. A second run over these makes one of them, and so on.
//
// Compile parameters, besides tensors.clh's: NORM (1: sums of magnitudes, 2: roots of sums of
// squares, 0: the largest magnitude), FIRST (1: of the tensors themselves), LAST (1: each has one
// chunk, so that this is the result), OUT (the storage tag of operand 1).
#include "include/fold_lanes.clh"
#include "include/item_by_item.clh"
#include "include/reduce.clh"
#include "multi_tensor/tensors.clh"

#ifndef NORM
#define NORM 2
#define FIRST 1
#define LAST 1
#define OUT f32
#endif

typedef TYPE(C) real;
typedef TYPEV(C, WIDTH) Vector;

#if NORM == 0
#define COMBINE(a, b) COMBINE_MAX(a, b)
#else
#define COMBINE(a, b) COMBINE_SUM(a, b)
#endif
DEFINE_FOLD_LANES(folded, TYPE(C), COMBINE)
#if !FIRST
#define TERM(v) (v)
#elif NORM == 2
#define TERM(v) ((v) * (v))
#else
#define TERM(v) fabs(v)
#endif
#if LAST && NORM == 2
#define RESULT(v) sqrt(v)
#else
#define RESULT(v) (v)
#endif

// Where vectors of that width, and single elements, are added up.
#define TOTAL_1 rest
#define TOTAL_2 total
#define TOTAL_4 total
#define TOTAL_8 total
#define TOTAL_16 total
#define STEP(width, i)                                        \
  const TYPEV(C, width) value = LOADV_AS(C, E, width, in, i); \
  const TYPEV(C, width) term = TERM(value);                   \
  PASTE2(TOTAL_, width) = COMBINE(PASTE2(TOTAL_, width), term)

kernel ITEM_BY_ITEM void norm_tensors(TENSORS_PARAMETERS) {
#if GROUP > 1
  local real shared[GROUP];
#endif
  FIND_CHUNK();
  global const char* in = PLACE(0);
  Vector total = 0;
  real rest = 0;
  FOR_EACH_VECTOR(STEP);
  rest = COMBINE(rest, FOLD_LANES(folded, WIDTH, total));
#if GROUP > 1
  WORK_GROUP_REDUCE(shared, GROUP_ITEM, GROUP, rest, COMBINE);
  if (GROUP_ITEM != 0) return;
#endif
  STOREV_FROM(OUT, C, 1, PLACE(1), begin / CHUNK, RESULT(rest));
}
