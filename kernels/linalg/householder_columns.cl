// Householder reflections on CPUs: a work-item has a matrix, or a few of its columns, to itself, and vectors
// along the columns.
//
// Compile parameters: C and LANES (columns.clh).
#include "linalg/columns.clh"

#define SMALLEST_f32 (FLT_MIN / FLT_EPSILON)
#define SMALLEST_f64 (DBL_MIN / DBL_EPSILON)

/// 1 - tau v v^T to the column c; v, whose element `j` is a one that isn't stored, starts there.
static inline void reflect_one(global const T *v, const T tau, global T *c, uint j, uint rows) {
  if (tau == 0) return;
  V sum = (V)0;
  FOR_CHUNKS(i, j + 1, rows, { sum = fma(ONLY(GET(v, i)), ONLY(GET(c, i)), sum); });
  const T factor = -tau * (c[j] + sum_of(sum));
  c[j] += factor;
  FOR_CHUNKS(i, j + 1, rows, {
    const V old = GET(c, i);
    PUT(SET(old, fma((V)factor, GET(v, i), old)), c, i);
  });
}

/// The same to four columns `stride` apart: v is loaded once, and the sums hide each other's latency.
static inline void reflect_four(global const T *v, const T tau, global T *c, ulong stride, uint j,
                                uint rows) {
  if (tau == 0) return;
  global T *c0 = c;
  global T *c1 = c0 + stride;
  global T *c2 = c1 + stride;
  global T *c3 = c2 + stride;
  V sum0 = (V)0;
  V sum1 = (V)0;
  V sum2 = (V)0;
  V sum3 = (V)0;
  FOR_CHUNKS(i, j + 1, rows, {
    const V x = ONLY(GET(v, i));
    sum0 = fma(x, ONLY(GET(c0, i)), sum0);
    sum1 = fma(x, ONLY(GET(c1, i)), sum1);
    sum2 = fma(x, ONLY(GET(c2, i)), sum2);
    sum3 = fma(x, ONLY(GET(c3, i)), sum3);
  });
  const T factor0 = -tau * (c0[j] + sum_of(sum0));
  const T factor1 = -tau * (c1[j] + sum_of(sum1));
  const T factor2 = -tau * (c2[j] + sum_of(sum2));
  const T factor3 = -tau * (c3[j] + sum_of(sum3));
  c0[j] += factor0;
  c1[j] += factor1;
  c2[j] += factor2;
  c3[j] += factor3;
  FOR_CHUNKS(i, j + 1, rows, {
    const V x = GET(v, i);
    const V old0 = GET(c0, i);
    const V old1 = GET(c1, i);
    const V old2 = GET(c2, i);
    const V old3 = GET(c3, i);
    PUT(SET(old0, fma((V)factor0, x, old0)), c0, i);
    PUT(SET(old1, fma((V)factor1, x, old1)), c1, i);
    PUT(SET(old2, fma((V)factor2, x, old2)), c2, i);
    PUT(SET(old3, fma((V)factor3, x, old3)), c3, i);
  });
}

static inline void reflect(global const T *v, const T tau, global T *c, ulong stride, uint columns,
                           uint j, uint rows) {
  if (columns == 4) {
    reflect_four(v, tau, c, stride, j, rows);
  } else {
    for (uint q = 0; q < columns; q++) reflect_one(v, tau, c + q * stride, j, rows);
  }
}

/// The reflection that takes x[j .. rows) to (beta, 0, ..., 0): beta replaces x[j], v what is below. Returns
/// tau.
static inline T make_reflection(global T *x, uint j, uint rows) {
  // The norm of what is below, scaled so that no square overflows or vanishes. A NaN is in the sum alone.
  V largest = (V)0;
  FOR_CHUNKS(i, j + 1, rows, { largest = fmax(largest, ONLY(fabs(GET(x, i)))); });
  const T most = largest_of(largest), alpha = x[j];
  const T scale = fmax(fmax(most, fabs(alpha)), PASTE2(SMALLEST_, C));
  V squares = (V)0;
  FOR_CHUNKS(i, j + 1, rows, {
    const V y = ONLY(GET(x, i) / scale);
    squares = fma(y, y, squares);
  });
  const T below = sum_of(squares);
  if (most == 0 && below == 0) return 0;
  const T scaled = alpha / scale;
  // The sign that adds up: alpha - beta must not cancel.
  const T beta = -copysign(sqrt(below + scaled * scaled), scaled);
  const T divisor = scaled - beta;
  FOR_CHUNKS(i, j + 1, rows, {
    const V old = GET(x, i);
    PUT(SET(old, old / scale / divisor), x, i);
  });
  x[j] = beta * scale;
  return (beta - scaled) / beta;
}

/// householder_panel of householder.cl, for matrices whose row stride is 1 and of LANES rows or more. Global
/// size: batch.
kernel ITEM_BY_ITEM void householder_factor_columns(global char *a, ulong a_offset,
                                                    global char *tau, ulong tau_offset,
                                                    const Strides sa, uint rows, uint columns,
                                                    uint tau_stride) {
  const ulong z = get_global_id(0);
  global T *panel = MATRIX(a, a_offset, sa, z);
  global T *taus = (global T *)(tau + tau_offset) + z * tau_stride;
  const ulong stride = sa.column;
  const uint steps = min(rows, columns);
  for (uint c = 0; c < columns; c += 4) {
    const uint width = min(columns - c, 4u);
    global T *block = panel + c * stride;
    for (uint j = 0; j < min(c, steps); j++)
      reflect(panel + j * stride, taus[j], block, stride, width, j, rows);
    for (uint j = c; j < min(c + width, steps); j++) {
      global T *column = panel + j * stride;
      taus[j] = make_reflection(column, j, rows);
      reflect(column, taus[j], column + stride, stride, c + width - 1 - j, j, rows);
    }
  }
}

/// c: [batch, rows, columns] becomes H(1) ... H(count) c or, with `adjoint`, H(count) ... H(1) c. v: [batch,
/// rows, count], row strides 1. With `triangle` c is 0 below its diagonal, so that a column's reflections past
/// the diagonal find nothing (not for `adjoint`). Global size: batch * (columns / 4, rounded up).
kernel ITEM_BY_ITEM void householder_apply_columns(global const char *v, ulong v_offset,
                                                   global const char *tau, ulong tau_offset,
                                                   global char *c, ulong c_offset,
                                                   const Strides sv, const Strides sc, uint rows,
                                                   uint columns, uint count, uint tau_stride,
                                                   uint adjoint, uint triangle) {
  const uint blocks = (columns + 3) / 4;
  const ulong z = get_global_id(0) / blocks;
  const uint first = get_global_id(0) % blocks * 4;
  const uint width = min(columns - first, 4u);
  global const T *vectors = (global const T *)(v + v_offset) + z * sv.batch;
  global const T *taus = (global const T *)(tau + tau_offset) + z * tau_stride;
  global T *block = MATRIX(c, c_offset, sc, z) + first * sc.column;
  const uint steps = triangle ? min(count, first + width) : count;
  for (uint k = 0; k < steps; k++) {
    const uint j = adjoint ? k : steps - 1 - k;
    reflect(vectors + j * sv.column, taus[j], block, sc.column, width, j, rows);
  }
}
