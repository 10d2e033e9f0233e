// Pointwise functions over lists of tensors: operand 0 = EACH(operands 1 ..., scalar).
//
// Compile parameters, besides tensors.clh's: EACH (a macro below, without its prefix), INPUTS (0 to
// 3), SCALAR (0: none; 1: a number per tensor, whose bits stand in its place, the last operand; 2:
// the last operand is a tensor of one element).
#include "include/item_by_item.clh"
#include "multi_tensor/tensors.clh"

#ifndef EACH
#define EACH add_scalar
#define SCALAR 1
#endif
#ifndef INPUTS
#define INPUTS 1
#endif
#ifndef SCALAR
#define SCALAR 0
#endif

// Not "sqrt", nor "abs": some compilers have macros of those names.
#define each_root(a) sqrt(a)
#define each_fill(s) (s)
#define each_copy(a) (a)
#define each_neg(a) (-(a))
#define each_magnitude(a) fabs(a)
#define each_reciprocal(a) ((real)1 / (a))
#define each_add_scalar(a, s) ((a) + (s))
#define each_mul_scalar(a, s) ((a) * (s))
#define each_div_scalar(a, s) ((a) / (s))
#define each_add(a, b, s) ((a) + (s) * (b))
#define each_sub(a, b, s) ((a) - (s) * (b))
#define each_mul(a, b) ((a) * (b))
#define each_div(a, b) ((a) / (b))
#define each_maximum(a, b) (((a) != (a)) | ((a) > (b)) ? (a) : (b))  // NaN if one is
// The form that is exact at the nearer end.
#define each_lerp(a, b, s) \
  ((s) < (real)0.5f ? (a) + (s) * ((b) - (a)) : (b) - ((b) - (a)) * ((real)1 - (s)))
#define each_addcmul(a, b, c, s) ((a) + (s) * (b) * (c))
#define each_addcdiv(a, b, c, s) ((a) + (s) * (b) / (c))

typedef TYPE(C) real;
#define BITS_f32(place) as_float((uint)(place))
#define BITS_f64(place) as_double(place)
#if SCALAR == 1
#define DECLARE_SCALAR() const real s = PASTE2(BITS_, C)(LIST_PLACE(OPERANDS - 1))
#elif SCALAR == 2
#define DECLARE_SCALAR() const real s = LOAD_AS(C, E, PLACE(OPERANDS - 1), 0)
#else
#define DECLARE_SCALAR()
#endif

#define LOAD_IN(width, k, i) const TYPEV(C, width) a##k = LOADV_AS(C, E, width, in##k, i)
#if INPUTS == 0
#define DECLARE_IN()
#define LOAD_ALL(width, i)
#elif INPUTS == 1
#define DECLARE_IN() global const char* in0 = PLACE(1)
#define LOAD_ALL(width, i) LOAD_IN(width, 0, i)
#define VALUES a0
#elif INPUTS == 2
#define DECLARE_IN() global const char *in0 = PLACE(1), *in1 = PLACE(2)
#define LOAD_ALL(width, i) \
  LOAD_IN(width, 0, i);    \
  LOAD_IN(width, 1, i)
#define VALUES a0, a1
#else
#define DECLARE_IN() global const char *in0 = PLACE(1), *in1 = PLACE(2), *in2 = PLACE(3)
#define LOAD_ALL(width, i) \
  LOAD_IN(width, 0, i);    \
  LOAD_IN(width, 1, i);    \
  LOAD_IN(width, 2, i)
#define VALUES a0, a1, a2
#endif
#define CALL(function, arguments) function arguments
#if INPUTS == 0
#define RESULT CALL(PASTE2(each_, EACH), (s))
#elif SCALAR
#define RESULT CALL(PASTE2(each_, EACH), (VALUES, s))
#else
#define RESULT CALL(PASTE2(each_, EACH), (VALUES))
#endif

#define STEP(width, i)                   \
  LOAD_ALL(width, i);                    \
  const TYPEV(C, width) result = RESULT; \
  STOREV_FROM(E, C, width, out, i, result)

kernel ITEM_BY_ITEM void each_tensors(TENSORS_PARAMETERS) {
  FIND_CHUNK();
  DECLARE_SCALAR();
  global char* out = PLACE(0);
  DECLARE_IN();
  FOR_EACH_VECTOR(STEP);
}
