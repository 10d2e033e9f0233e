// Matrices reduced to two diagonals by Householder reflections from both sides: Hermitian ones to
// tridiagonal form, square ones to bidiagonal form. A work-group per matrix.
//
// Matrices lie in scratch memory with `ld` elements from one column (or row) to the next.
// Work-items take neighbouring elements of a vector in memory, so that nothing but norms is summed
// across them: the bidiagonal form keeps the matrix by columns and by rows for that.
//
// Compile parameters: C (matrix.clh), computed in; A, the dtype of a: C or its single precision; D,
// the real dtype of the diagonals; GROUP (the work-group's size).
#ifndef GROUP
#define GROUP 16
#endif
#ifndef A
#define A f32
#endif
#ifndef D
#define D f32
#endif
#include "linalg/reflection.clh"

/// Element (i, j) of the matrix `from`.
#define READ(i, j) CONVERT(C, A, AT(from, sa, i, j))

#define LARGEST_f32 FLT_MAX
#define LARGEST_f64 DBL_MAX
#define LARGEST_c64 FLT_MAX
#define LARGEST_c128 DBL_MAX

/// A power of two that brings `largest` near 1: squares of what is iterated on neither overflow nor
/// vanish.
static inline R scale_of(R largest) {
  return largest == 0 ? (R)1 : ldexp((R)1, -clamp(ilogb(largest), -120, 120));
}

/// Diagonals that nothing is left to do for, a factor and `count` reflections that make NaNs.
#define FILL_WITH_NANS(count)                                                  \
  do {                                                                         \
    barrier(CLK_GLOBAL_MEM_FENCE);                                             \
    for (uint i = lane; i < 2 * n; i += GROUP) d[i] = i + 1 < 2 * n ? 0 : NAN; \
    for (uint i = lane; i < (count); i += GROUP) taus[i] = FROM_REAL((R)NAN);  \
  } while (0)

/// a: [batch, n, n] Hermitian, one triangle read. diagonals: [batch, 2 n]: the diagonal, the n - 1
/// elements beside it, the factor by which all were multiplied. columns: [batch, n, ld]: the
/// reflection k in column k, from element k + 1 (which is 1, not stored) on; tau: [batch, n]. info:
/// [batch] ints, 1 where a matrix holds a NaN, and is left then, otherwise 0. One with infinities
/// alone is none: its values become NaNs, as LAPACK's do by scaling, and so do its vectors.
kernel void tridiagonalise(global const char* a, ulong a_offset, global char* columns,
                           ulong columns_offset, global char* tau, ulong tau_offset,
                           global char* diagonals, ulong diagonals_offset, global char* info,
                           ulong info_offset, const Strides sa, uint n, uint ld, uint upper,
                           local T* v, local T* w) {
  const ulong z = get_group_id(0);
  const uint lane = get_local_id(0);
  global const TYPE(A)* from = (global const TYPE(A)*)(a + a_offset) + z * sa.batch;
  global T* matrix = (global T*)(columns + columns_offset) + z * n * ld;
  global T* taus = (global T*)(tau + tau_offset) + z * n;
  global TYPE(D)*d = (global TYPE(D)*)(diagonals + diagonals_offset) + z * 2 * n, *e = d + n;
  local T sums[GROUP];
  local R sizes[GROUP];
  R largest = 0;
  for (uint j = 0; j < n; j++) {
    for (uint i = lane; i < n; i += GROUP) {
      const bool stored = upper ? i < j : i > j;
      T value = stored ? READ(i, j) : CONJ(READ(j, i));
      if (i == j) value = FROM_REAL(REAL_OF(value));
      largest = COMBINE_MAX(largest, SIZE1(value));
      matrix[j * ld + i] = value;
    }
  }
  WORK_GROUP_REDUCE(sizes, lane, GROUP, largest, COMBINE_MAX);
  const bool finite = largest <= PASTE2(LARGEST_, C);
  if (lane == 0) ((global int*)(info + info_offset))[z] = n > 1 && isnan(largest);
  const R scale = finite ? scale_of(largest) : (R)1;
  for (uint j = 0; j < n; j++) {
    for (uint i = lane; i < n; i += GROUP) matrix[j * ld + i] *= scale;
  }
  barrier(CLK_GLOBAL_MEM_FENCE);
  for (uint k = 0; finite && k + 1 < n; k++) {
    const uint count = n - k - 1;
    global T *column = matrix + k * ld + k + 1, *rest = matrix + (k + 1) * ld + k + 1;
    const Reflection reflection = make_reflection(column, 1, count, lane, sizes);
    if (lane == 0) {
      d[k] = REAL_OF(matrix[k * ld + k]);
      e[k] = reflection.beta;
      taus[k] = reflection.tau;
    }
    for (uint i = lane; i < count; i += GROUP) v[i] = i == 0 ? FROM_REAL((R)1) : column[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    // H^H A H = A - v w^H - w v^H with w = tau A v - (|tau|^2 v^H A v / 2) v.
    T sum = FROM_REAL((R)0);
    for (uint i = lane; i < count; i += GROUP) {
      T product = FROM_REAL((R)0);
      for (uint j = 0; j < count; j++) product = MAD(rest[j * ld + i], v[j], product);
      product = MUL(reflection.tau, product);
      w[i] = product;
      sum = MAD(CONJ(product), v[i], sum);
    }
    WORK_GROUP_REDUCE(sums, lane, GROUP, sum, COMBINE_SUM);
    const R half_square = REAL_OF(MUL(reflection.tau, sum)) / 2;
    for (uint i = lane; i < count; i += GROUP) w[i] -= half_square * v[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = lane; i < count; i += GROUP) {
      const T minus_v = -v[i], minus_w = -w[i];
      for (uint j = 0; j < count; j++) {
        const T updated = MAD(minus_v, CONJ(w[j]), rest[j * ld + i]);
        rest[j * ld + i] = MAD(minus_w, CONJ(v[j]), updated);
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0) {
    d[n - 1] = REAL_OF(matrix[(n - 1) * ld + n - 1]);
    e[n - 1] = scale;
    taus[n - 1] = FROM_REAL((R)0);
  }
  if (n > 1 && isinf(largest)) FILL_WITH_NANS(n);
}

/// a: [batch, n, n]. diagonals: as above, of the upper bidiagonal form. columns, rows: [batch, n,
/// ld]: the reflection k from the left in columns, from element k on, and from the right in rows,
/// from element k + 1 on (the first, 1, isn't stored). tau: [batch, 2, n], left and right. info: as
/// above, -4 (LAPACK's code) for a NaN.
kernel void bidiagonalise(global const char* a, ulong a_offset, global char* columns,
                          ulong columns_offset, global char* rows, ulong rows_offset,
                          global char* tau, ulong tau_offset, global char* diagonals,
                          ulong diagonals_offset, global char* info, ulong info_offset,
                          const Strides sa, uint n, uint ld, local T* v, local T* u, local T* g,
                          local T* w) {
  const ulong z = get_group_id(0);
  const uint lane = get_local_id(0);
  global const TYPE(A)* from = (global const TYPE(A)*)(a + a_offset) + z * sa.batch;
  global T* by_column = (global T*)(columns + columns_offset) + z * n * ld;
  global T* by_row = (global T*)(rows + rows_offset) + z * n * ld;
  global T* taus = (global T*)(tau + tau_offset) + z * 2 * n;
  global TYPE(D)*d = (global TYPE(D)*)(diagonals + diagonals_offset) + z * 2 * n, *e = d + n;
  local T sums[GROUP];
  local R sizes[GROUP];
  R largest = 0;
  for (uint j = 0; j < n; j++) {
    for (uint i = lane; i < n; i += GROUP) largest = COMBINE_MAX(largest, SIZE1(READ(i, j)));
  }
  WORK_GROUP_REDUCE(sizes, lane, GROUP, largest, COMBINE_MAX);
  const bool finite = largest <= PASTE2(LARGEST_, C);
  if (lane == 0) ((global int*)(info + info_offset))[z] = isnan(largest) ? -4 : 0;
  const R scale = finite ? scale_of(largest) : (R)1;
  for (uint j = 0; j < n; j++) {
    for (uint i = lane; i < n; i += GROUP) {
      by_column[j * ld + i] = READ(i, j) * scale;
      by_row[j * ld + i] = READ(j, i) * scale;
    }
  }
  barrier(CLK_GLOBAL_MEM_FENCE);
  for (uint k = 0; finite && k + 1 < n; k++) {
    const uint count = n - k, rest = count - 1;
    global T *column = by_column + k * ld + k, *row = by_row + k * ld + k + 1;
    const Reflection left = make_reflection(column, 1, count, lane, sizes);
    for (uint i = lane; i < count; i += GROUP) v[i] = i == 0 ? FROM_REAL((R)1) : column[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    // From the left: A - v g with g = conj(tau) v^H A. Row k, conjugated, makes the right
    // reflection.
    for (uint j = lane; j < rest; j += GROUP) {
      T product = FROM_REAL((R)0);
      for (uint i = 0; i < count; i++) product = MAD(CONJ(v[i]), row[i * ld + j], product);
      product = MUL(CONJ(left.tau), product);
      g[j] = product;
      row[j] = CONJ(row[j] - product);
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    const Reflection right = make_reflection(row, 1, rest, lane, sizes);
    if (lane == 0) {
      d[k] = left.beta;
      e[k] = right.beta;
      taus[k] = left.tau;
      taus[n + k] = right.tau;
    }
    T dot = FROM_REAL((R)0);
    for (uint j = lane; j < rest; j += GROUP) {
      u[j] = j == 0 ? FROM_REAL((R)1) : row[j];
      dot = MAD(g[j], u[j], dot);
    }
    WORK_GROUP_REDUCE(sums, lane, GROUP, dot, COMBINE_SUM);
    // Both sides: A - v g - w u^H with w = tau (A - v g) u.
    global T* below = column + ld + 1;
    for (uint i = lane; i < rest; i += GROUP) {
      T product = MUL(-v[i + 1], dot);
      for (uint j = 0; j < rest; j++) product = MAD(below[j * ld + i], u[j], product);
      w[i] = MUL(right.tau, product);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    global T* beside = row + ld;
    for (uint i = lane; i < rest; i += GROUP) {
      const T minus_v = -v[i + 1], minus_w = -w[i];
      for (uint j = 0; j < rest; j++) {
        const T updated = MAD(minus_v, g[j], below[j * ld + i]);
        below[j * ld + i] = MAD(minus_w, CONJ(u[j]), updated);
      }
    }
    for (uint j = lane; j < rest; j += GROUP) {
      const T minus_g = -g[j], minus_u = -CONJ(u[j]);
      for (uint i = 0; i < rest; i++) {
        const T updated = MAD(v[i + 1], minus_g, beside[i * ld + j]);
        beside[i * ld + j] = MAD(w[i], minus_u, updated);
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
  }
  // The last element, if complex, is turned too.
  const Reflection last = make_reflection(by_column + (n - 1) * ld + n - 1, 1, 1, lane, sizes);
  if (lane == 0) {
    d[n - 1] = last.beta;
    e[n - 1] = scale;
    taus[n - 1] = last.tau;
    taus[2 * n - 1] = FROM_REAL((R)0);
  }
  if (isinf(largest)) FILL_WITH_NANS(2 * n);
}
