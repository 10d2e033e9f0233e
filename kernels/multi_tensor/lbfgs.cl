// L-BFGS: a direction from the gradients so far, by one work-group and in one launch.
//
// The history is a ring of rows: the steps that were taken, and how the gradient changed by each.
// A work-item serves the same elements in every pass, so only sums need the others.
//
// Compile parameters: E (storage tag), C (the tag computed with), WIDTH (elements at a time), GROUP
// (work-items, a power of two), RULE (0: the direction from a history, 1: the first direction, 2:
// the slope alone).
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifndef RULE
#define RULE 0
#endif

#include "include/always_inline.clh"
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "multi_tensor/lbfgs_arguments.clh"

typedef TYPE(C) real;

// NaN is the largest.
#define LARGER(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define LARGER_V(a, b) select(a, b, ((b) > (a)) | ((b) != (b)))
#define PICK_1(a, b) LARGER(a, b)
#define PICK_2(a, b) LARGER_V(a, b)
#define PICK_4(a, b) LARGER_V(a, b)
#define PICK_8(a, b) LARGER_V(a, b)
#define PICK_16(a, b) LARGER_V(a, b)
#define PICK(width, a, b) PASTE2(PICK_, width)(a, b)

#if GROUP > 1
#define SCALAR real
#include "include/group_reduction.clh"
DEFINE_GROUP_REDUCTION(group_sum, ADD_TWO)
DEFINE_GROUP_REDUCTION(group_largest, LARGER)
#define SUM(v) group_sum(v, item, shared)
#define LARGEST(v) group_largest(v, item, shared)
#else
#define SUM(v) (v)
#define LARGEST(v) (v)
#endif

// Runs STEP(width, i) over the work-item's vectors, and over what is left element by element.
#define EACH_ELEMENT(STEP)                                       \
  for (uint i = item; i < n / WIDTH; i += GROUP) {               \
    STEP(WIDTH, i);                                              \
  }                                                              \
  if (WIDTH > 1) {                                               \
    for (uint i = n / WIDTH * WIDTH + item; i < n; i += GROUP) { \
      STEP(1, i);                                                \
    }                                                            \
  }
#define READ(width, p, i) LOADV_AS(C, E, width, p, i)
#define WRITE(width, p, i, v) STOREV_FROM(E, C, width, p, i, v)

// Sums in lanes: a vector's width decides which variable it is added to.
#define LANES_1(name) name##_rest
#define LANES_2(name) name##_lanes
#define LANES_4(name) name##_lanes
#define LANES_8(name) name##_lanes
#define LANES_16(name) name##_lanes
#define IN_LANES(width, name) PASTE2(LANES_, width)(name)
#define DECLARE_LANES(name)         \
  TYPEV(C, WIDTH) name##_lanes = 0; \
  real name##_rest = 0
#if WIDTH > 1
#define FOLD(name, COMBINE)                                                        \
  {                                                                                \
    real parts[WIDTH];                                                             \
    PASTE2(vstore, WIDTH)(name##_lanes, 0, parts);                                 \
    for (uint k = 0; k < WIDTH; k++) name##_rest = COMBINE(name##_rest, parts[k]); \
  }
#else
#define FOLD(name, COMBINE)
#endif
#define ADD(a, b) ((a) + (b))
#define TOTAL(name) (SUM(name##_rest))

#define ROW(base, k) (base + (ulong)(k) * n * STORAGE_SIZE(E))

#if GROUP > 1
#define SHARED_PARAMETER , local real* shared
#define SHARED_PASSED , shared
#define MEET() barrier(CLK_GLOBAL_MEM_FENCE)
#else
#define MEET() (void)0
#define SHARED_PARAMETER
#define SHARED_PASSED
#endif

// The steps of the passes, for EACH_ELEMENT. They use the names of lbfgs().
#define ROUNDED(width, v) CONVERTV(C, E, width, CONVERTV(E, C, width, v))
#define LOOK(width, i)                                                                 \
  {                                                                                    \
    const TYPEV(C, width) g = READ(width, gradient, i), d = READ(width, direction, i); \
    IN_LANES(width, slope) += g * d;                                                   \
    IN_LANES(width, largest) = PICK(width, IN_LANES(width, largest), fabs(g));         \
  }
#define START(width, i)                                                        \
  {                                                                            \
    const TYPEV(C, width) g = READ(width, gradient, i);                        \
    WRITE(width, direction, i, -g);                                            \
    WRITE(width, previous, i, g);                                              \
    IN_LANES(width, slope) -= g * g;                                           \
    IN_LANES(width, size) += fabs(g);                                          \
    IN_LANES(width, largest) = PICK(width, IN_LANES(width, largest), fabs(g)); \
  }
#define PAIR(width, i)                                                                           \
  const TYPEV(C, width) y = ROUNDED(width, READ(width, gradient, i) - READ(width, previous, i)); \
  const TYPEV(C, width) s = ROUNDED(width, READ(width, last, i) * t)
#define MEASURE(width, i)                \
  {                                      \
    PAIR(width, i);                      \
    IN_LANES(width, curvature) += y * s; \
    IN_LANES(width, square) += y * y;    \
  }
#define KEEP(width, i)              \
  {                                 \
    PAIR(width, i);                 \
    WRITE(width, new_change, i, y); \
    WRITE(width, new_step, i, s);   \
  }
#define BEGIN(width, i)                                 \
  {                                                     \
    const TYPEV(C, width) g = READ(width, gradient, i); \
    WRITE(width, direction, i, -g);                     \
    WRITE(width, previous, i, g);                       \
  }
#define TURN(width, i)                                                   \
  {                                                                      \
    TYPEV(C, width) q = READ(width, direction, i);                       \
    if (count > 0) q = ROUNDED(width, q + along * READ(width, with, i)); \
    WRITE(width, direction, i, q * scale);                               \
  }
#define FINISH(width, i)                                                       \
  {                                                                            \
    TYPEV(C, width) d = READ(width, direction, i);                             \
    if (count > 0) {                                                           \
      d = ROUNDED(width, d + along * READ(width, with, i));                    \
      WRITE(width, direction, i, d);                                           \
    }                                                                          \
    IN_LANES(width, slope) += READ(width, gradient, i) * d;                    \
    IN_LANES(width, largest) = PICK(width, IN_LANES(width, largest), fabs(d)); \
  }
#define DOT(width, i) IN_LANES(width, product) += READ(width, onto, i) * READ(width, direction, i)
#define ADD_AND_DOT(width, i)                                                     \
  {                                                                               \
    const TYPEV(C, width) q =                                                     \
        ROUNDED(width, READ(width, direction, i) + along * READ(width, with, i)); \
    WRITE(width, direction, i, q);                                                \
    IN_LANES(width, product) += READ(width, onto, i) * q;                         \
  }

/// The newest pair's products: of both, and of the gradient's change with itself.
static ALWAYS_INLINE void measure_pair(private real* with_step, private real* with_itself,
                                       global const char* gradient, global const char* previous,
                                       global const char* last, real t, uint n,
                                       uint item SHARED_PARAMETER) {
  DECLARE_LANES(curvature);
  DECLARE_LANES(square);
  EACH_ELEMENT(MEASURE);
  FOLD(curvature, ADD);
  FOLD(square, ADD);
  *with_step = TOTAL(curvature);
  *with_itself = TOTAL(square);
}

/// The product of `onto` and the direction, to which `along` times `with` is added before, if it
/// `adds`.
static ALWAYS_INLINE real add_and_dot(global char* direction, global const char* onto,
                                      global const char* with, real along, bool adds, uint n,
                                      uint item SHARED_PARAMETER) {
  DECLARE_LANES(product);
  if (adds) {
    EACH_ELEMENT(ADD_AND_DOT);
  } else {
    EACH_ELEMENT(DOT);
  }
  FOLD(product, ADD);
  return TOTAL(product);
}

/// t: how far the last direction was followed.
kernel ITEM_BY_ITEM void lbfgs(global const char* gradient, ulong gradient_offset,
                               global char* previous, ulong previous_offset,
                               global const char* last, ulong last_offset,  // direction
                               global char* direction, ulong direction_offset, global char* steps,
                               ulong steps_offset, global char* changes, ulong changes_offset,
                               global char* inverses, ulong inverses_offset, global char* factors,
                               ulong factors_offset, global char* facts, ulong facts_offset,
                               const LbfgsArguments p, const real t) {
  const uint n = p.elements, item = get_local_id(0);
#if GROUP > 1
  local real shared[2 * GROUP];
#endif
  gradient += gradient_offset;
  direction += direction_offset;
  global real* const fact = (global real*)(facts + facts_offset);
  DECLARE_LANES(slope);
  DECLARE_LANES(largest);
#if RULE != 2
  previous += previous_offset;
#endif
#if RULE == 2
  EACH_ELEMENT(LOOK);
#elif RULE == 1
  DECLARE_LANES(size);
  EACH_ELEMENT(START);
  FOLD(size, ADD);
  const real size = TOTAL(size);
#else
  last += last_offset;
  steps += steps_offset;
  changes += changes_offset;
  global real* const inverse = (global real*)(inverses + inverses_offset);
  global real* const factor = (global real*)(factors + factors_offset);

  // The newest pair, of the storage's precision, as it is kept.
  real curvature, square;
  measure_pair(&curvature, &square, gradient, previous, last, t, n, item SHARED_PASSED);
  uint first = p.first, count = p.count;
  real scale = fact[3];
  const bool stored = curvature > (real)1e-10;
  if (stored) {
    const uint slot = (first + count) % p.rows;
    global char* const new_step = ROW(steps, slot);
    global char* const new_change = ROW(changes, slot);
    EACH_ELEMENT(KEEP);
    if (item == 0) inverse[slot] = 1 / curvature;
    scale = curvature / square;
    if (count == p.most) {
      first = (first + 1) % p.rows;
    } else {
      count++;
    }
  }
  EACH_ELEMENT(BEGIN);
  MEET();  // inverse[slot]

  // From the newest pair to the oldest, then back. Each pass adds what the one before has found and
  // sums for the next.
  global const char* with = changes;
  real along = 0;
  for (uint k = count; k-- > 0;) {
    const uint row = (first + k) % p.rows;
    const real found =
        add_and_dot(direction, ROW(steps, row), with, along, k + 1 < count, n, item SHARED_PASSED) *
        inverse[row];
    if (item == 0) factor[k] = found;
    along = -found;
    with = ROW(changes, row);
  }
  EACH_ELEMENT(TURN);
  MEET();  // factor[k]
  for (uint k = 0; k < count; k++) {
    const uint row = (first + k) % p.rows;
    along = factor[k] -
            add_and_dot(direction, ROW(changes, row), with, along, k > 0, n, item SHARED_PASSED) *
                inverse[row];
    with = ROW(steps, row);
  }
  EACH_ELEMENT(FINISH);
#endif
  FOLD(slope, ADD);
  FOLD(largest, LARGER);
  const real slope = TOTAL(slope);
  const real largest = LARGEST(largest_rest);
  if (item != 0) return;
  fact[0] = slope;
  fact[1] = largest;
#if RULE == 1
  fact[2] = size;
  fact[3] = 1;
#elif RULE == 0
  fact[2] = stored;
  fact[3] = scale;
#endif
}
