// Few columns, on devices where neighbouring work-items should read neighbouring elements: a
// work-group per row. Compile parameters besides skinny.clh's: LOCAL (its size, a power of 2). With
// WIDTH above 1 both operands are contiguous along k and aligned to that many elements.
#include "gemm/skinny.clh"

#ifndef LOCAL
#define LOCAL 64
#endif
#ifdef NORM
#define IS_NORMED 1
/// Elements kk, kk + 1... of a column are multiplied by it.
#define NORM_FACTOR(width, kk)                                                          \
  (LOADV_AS(C, NORM, width, norm_weight + norm_offset + (kk) * STORAGE_SIZE(NORM), 0) + \
   (TYPEV(C, width))((T)norm.shift))
/// Adds an element's square, and scales it.
#define NORMALISE(w, squares, factor) \
  do {                                \
    squares = MAD(w, w, squares);     \
    w *= factor;                      \
  } while (0)
#else
#define IS_NORMED 0
#define NORM_FACTOR(width, kk) (TYPEV(C, width))(1)
#define NORMALISE(w, squares, factor)
#endif
// Loads of a under way per work-item.
#define IN_FLIGHT (NQ > 2 ? 2 : 4)

/// Element kk of the row that begins there.
#define A_IN(row_, kk) CONJUGATE(LOAD_AS(C, IN0, row_, (kk) * p.a.column), p.flags& kConjugateA)
/// WIDTH elements from element kk of a row, or column, on.
#if WIDTH > 1
#define A_VECTOR(row_, kk) LOADV_AS(C, IN0, WIDTH, (row_) + (kk) * STORAGE_SIZE(IN0), 0)
#define B_VECTOR(kk, column_) \
  LOADV_AS(C, IN1, WIDTH, b + ((column_) * p.b.column + (kk)) * STORAGE_SIZE(IN1), 0)
#else
#define A_VECTOR(row, kk) A_IN(row, kk)
#define B_VECTOR(kk, column) B_AT(kk, column)
#endif

/// Any strides but for WIDTH. Global size: LOCAL * m, splits, batch.
kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void gemm_group_dot(
    OPERANDS PIECE_PARAMETERS) {
  local T parts[LOCAL];
#if IS_NORMED
  local T square_parts[LOCAL];
  // The sums of the columns' squares: each row needs them all, and reads the columns anyway.
  V squares[NQ];
#pragma unroll
  for (uint q = 0; q < NQ; q++) squares[q] = (V)(0);
#endif
  const ulong row = get_group_id(0), split = get_global_id(1), z = get_global_id(2);
  const uint item = get_local_id(0);
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  global const char* x = ROW_OF_A(row);
  V total[NQ];
#pragma unroll
  for (uint q = 0; q < NQ; q++) total[q] = (V)(0);
  const ulong step = LOCAL * WIDTH;
  ulong kk = start + item * WIDTH;
  for (; kk + (IN_FLIGHT - 1) * step + WIDTH <= end; kk += IN_FLIGHT * step) {
    V u[IN_FLIGHT];
#pragma unroll
    for (uint i = 0; i < IN_FLIGHT; i++) u[i] = A_VECTOR(x, kk + i * step);
#pragma unroll
    for (uint i = 0; i < IN_FLIGHT; i++) {
      const V factor = NORM_FACTOR(WIDTH, kk + i * step);
#pragma unroll
      for (uint q = 0; q < NQ; q++) {
        V w = B_VECTOR(kk + i * step, (ulong)min(q, p.n - 1));
        NORMALISE(w, squares[q], factor);
        total[q] = MAD(u[i], w, total[q]);
      }
    }
  }
  for (; kk + WIDTH <= end; kk += step) {
    const V u = A_VECTOR(x, kk), factor = NORM_FACTOR(WIDTH, kk);
#pragma unroll
    for (uint q = 0; q < NQ; q++) {
      V w = B_VECTOR(kk, (ulong)min(q, p.n - 1));
      NORMALISE(w, squares[q], factor);
      total[q] = MAD(u, w, total[q]);
    }
  }
  // At most one work-item is at the elements past the last vector.
#pragma unroll
  for (uint q = 0; q < NQ; q++) {
    T sum = HSUM(WIDTH, total[q]);
#if IS_NORMED
    T square = HSUM(WIDTH, squares[q]);
#endif
    for (ulong rest = kk; rest < min(kk + WIDTH, end); rest++) {
      const T u = A_IN(x, rest);
      T w = B_AT(rest, (ulong)min(q, p.n - 1));
      NORMALISE(w, square, NORM_FACTOR(1, rest));
      sum = MAD(u, w, sum);
    }
    parts[item] = sum;
#if IS_NORMED
    square_parts[item] = square;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = LOCAL / 2; half_size > 0; half_size /= 2) {
      if (item < half_size) {
        parts[item] += parts[item + half_size];
#if IS_NORMED
        square_parts[item] += square_parts[item + half_size];
#endif
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    T whole = parts[0];
#if IS_NORMED
    whole *= rsqrt(square_parts[0] / (T)p.k + (T)norm.epsilon);
#endif
    if (item == 0 && q < p.n) EPILOGUE_OR_SPLIT(z, split, row, (ulong)q, whole);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
