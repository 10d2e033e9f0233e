// Householder reflections on CPUs: a work-item has a matrix, or a few of its columns, to itself,
// and vectors along the columns.
//
// Compile parameters: C and LANES (columns.clh).
#include "linalg/columns.clh"

#define SMALLEST_f32 (FLT_MIN / FLT_EPSILON)
#define SMALLEST_f64 (DBL_MIN / DBL_EPSILON)

#define IS_ZERO(number) (REAL_OF(number) == 0 && IMAG_OF(number) == 0)

/// 1 - tau v v^H to the column c; v, whose element `j` is a one that isn't stored, starts there.
static inline void reflect_one(global const T* v, const T tau, global T* c, uint j, uint rows) {
  if (IS_ZERO(tau)) return;
  DECLARE_SUMS(sums);
  FOR_CHUNKS(i, PARTS * (j + 1), PARTS * rows, {
    DECLARE_MULTIPLES(x, ONLY(GET(v, i)));
    const V y = ONLY(GET(c, i));
    ADD_PRODUCT(sums, x, y);
  });
  const T factor = MUL(-tau, c[j] + SUM_OF(sums));
  c[j] += factor;
  FOR_CHUNKS(i, PARTS * (j + 1), PARTS * rows, {
    DECLARE_MULTIPLES(x, GET(v, i));
    const V old = GET(c, i);
    PUT(SET(old, ADD_MULTIPLE(old, factor, x)), c, i);
  });
}

/// Applies it to four columns `stride` apart: v is loaded once, and the sums hide each other's
/// latency.
static inline void reflect_four(global const T* v, const T tau, global T* c, ulong stride, uint j,
                                uint rows) {
  if (IS_ZERO(tau)) return;
  global T* c0 = c;
  global T* c1 = c0 + stride;
  global T* c2 = c1 + stride;
  global T* c3 = c2 + stride;
  DECLARE_SUMS(sums0);
  DECLARE_SUMS(sums1);
  DECLARE_SUMS(sums2);
  DECLARE_SUMS(sums3);
  FOR_CHUNKS(i, PARTS * (j + 1), PARTS * rows, {
    DECLARE_MULTIPLES(x, ONLY(GET(v, i)));
    ADD_FOUR_PRODUCTS(sums, x, c, i);
  });
  const T factor0 = MUL(-tau, c0[j] + SUM_OF(sums0));
  const T factor1 = MUL(-tau, c1[j] + SUM_OF(sums1));
  const T factor2 = MUL(-tau, c2[j] + SUM_OF(sums2));
  const T factor3 = MUL(-tau, c3[j] + SUM_OF(sums3));
  c0[j] += factor0;
  c1[j] += factor1;
  c2[j] += factor2;
  c3[j] += factor3;
  FOR_CHUNKS(i, PARTS * (j + 1), PARTS * rows, {
    DECLARE_MULTIPLES(x, GET(v, i));
    const V old0 = GET(c0, i);
    const V old1 = GET(c1, i);
    const V old2 = GET(c2, i);
    const V old3 = GET(c3, i);
    PUT(SET(old0, ADD_MULTIPLE(old0, factor0, x)), c0, i);
    PUT(SET(old1, ADD_MULTIPLE(old1, factor1, x)), c1, i);
    PUT(SET(old2, ADD_MULTIPLE(old2, factor2, x)), c2, i);
    PUT(SET(old3, ADD_MULTIPLE(old3, factor3, x)), c3, i);
  });
}

static inline void reflect(global const T* v, const T tau, global T* c, ulong stride, uint columns,
                           uint j, uint rows) {
  if (columns == 4) {
    reflect_four(v, tau, c, stride, j, rows);
  } else {
    for (uint q = 0; q < columns; q++) reflect_one(v, tau, c + q * stride, j, rows);
  }
}

/// The reflection whose adjoint takes x[j .. rows) to (beta, 0, ..., 0): beta replaces x[j], v what
/// is below. Returns tau.
static inline T make_reflection(global T* x, uint j, uint rows) {
  // The norm of what is below, scaled so that no square overflows or vanishes. A NaN is in the sum
  // alone.
  V largest = (V)0;
  FOR_CHUNKS(i, PARTS * (j + 1), PARTS * rows, { largest = fmax(largest, ONLY(fabs(GET(x, i)))); });
  const R most = largest_of(largest);
  const T alpha = x[j];
  const R scale = fmax(fmax(most, SIZE1(alpha)), PASTE2(SMALLEST_, REAL_TAG));
  V squares = (V)0;
  FOR_CHUNKS(i, PARTS * (j + 1), PARTS * rows, {
    const V y = ONLY(GET(x, i) / scale);
    squares = fma(y, y, squares);
  });
  const R below = sum_of(squares);
  if (most == 0 && below == 0 && IMAG_OF(alpha) == 0) return FROM_REAL((R)0);
  const T scaled = alpha / scale;
  // The sign that adds up: alpha - beta must not cancel.
  const R beta = -copysign(sqrt(below + REAL_OF(MUL(scaled, CONJ(scaled)))), REAL_OF(scaled));
  DECLARE_DIVISOR(scaled - FROM_REAL(beta));
  FOR_CHUNKS(i, PARTS * (j + 1), PARTS * rows, {
    const V old = GET(x, i);
    PUT(SET(old, QUOTIENT(old / scale)), x, i);
  });
  x[j] = FROM_REAL(beta * scale);
  return (FROM_REAL(beta) - scaled) / beta;
}

/// householder_panel of householder.cl, for matrices whose row stride is 1 and of LANES rows or
/// more. Global size: batch.
kernel ITEM_BY_ITEM void householder_factor_columns(global char* a, ulong a_offset,
                                                    global char* tau, ulong tau_offset,
                                                    const Strides sa, uint rows, uint columns,
                                                    uint tau_stride) {
  const ulong z = get_global_id(0);
  global T* panel = MATRIX(a, a_offset, sa, z);
  global T* taus = (global T*)(tau + tau_offset) + z * tau_stride;
  const ulong stride = sa.column;
  const uint steps = min(rows, columns);
  for (uint c = 0; c < columns; c += 4) {
    const uint width = min(columns - c, 4u);
    global T* block = panel + c * stride;
    for (uint j = 0; j < min(c, steps); j++)
      reflect(panel + j * stride, CONJ(taus[j]), block, stride, width, j, rows);
    for (uint j = c; j < min(c + width, steps); j++) {
      global T* column = panel + j * stride;
      taus[j] = make_reflection(column, j, rows);
      reflect(column, CONJ(taus[j]), column + stride, stride, c + width - 1 - j, j, rows);
    }
  }
}

/// c: [batch, rows, columns] becomes H(1) ... H(count) c or, with `adjoint`, H(count) ... H(1) c.
/// v: [batch, rows, count], row strides 1. With `triangle` c is 0 below its diagonal, so that a
/// column's reflections past the diagonal find nothing (not for `adjoint`). Global size: batch *
/// (columns / 4, rounded up).
kernel ITEM_BY_ITEM void householder_apply_columns(global const char* v, ulong v_offset,
                                                   global const char* tau, ulong tau_offset,
                                                   global char* c, ulong c_offset, const Strides sv,
                                                   const Strides sc, uint rows, uint columns,
                                                   uint count, uint tau_stride, uint adjoint,
                                                   uint triangle) {
  const uint blocks = (columns + 3) / 4;
  const ulong z = get_global_id(0) / blocks;
  const uint first = get_global_id(0) % blocks * 4;
  const uint width = min(columns - first, 4u);
  global const T* vectors = (global const T*)(v + v_offset) + z * sv.batch;
  global const T* taus = (global const T*)(tau + tau_offset) + z * tau_stride;
  global T* block = MATRIX(c, c_offset, sc, z) + first * sc.column;
  const uint steps = triangle ? min(count, first + width) : count;
  for (uint k = 0; k < steps; k++) {
    const uint j = adjoint ? k : steps - 1 - k;
    const T tau_j = adjoint ? CONJ(taus[j]) : taus[j];
    reflect(vectors + j * sv.column, tau_j, block, sc.column, width, j, rows);
  }
}
