// Tables of roots of unity, computed in double precision where the device has it, from exact
// fractions of a turn.
//
// Compile parameters: R (f32 or f64), the real type of the table.
#include "include/dtype.clh"

#ifndef R
#define R f32
#endif
#ifdef OCL_HAS_FP64
#define FINE double
#else
#define FINE float
#endif
#define REAL TYPE(R)

/// (cos, -sin) of numerator / denominator turns; numerator < denominator < 2^61. Both are
/// computed for at most an eighth of a turn, where they are most accurate; the rest is symmetry.
static inline void store_root(ulong numerator, ulong denominator, bool conjugate,
                              global REAL* out) {
  const ulong quarter = 4 * numerator / denominator;
  ulong rest = 4 * numerator - quarter * denominator;
  const bool mirrored = 2 * rest > denominator;
  if (mirrored) rest = denominator - rest;
  const FINE turn = (FINE)rest / (FINE)denominator * (FINE)0.5f;  // in units of pi
  const FINE cosine = mirrored ? sinpi(turn) : cospi(turn);
  const FINE sine = mirrored ? cospi(turn) : sinpi(turn);
  const FINE x = quarter == 0 ? cosine : quarter == 1 ? -sine : quarter == 2 ? -cosine : sine;
  const FINE y = quarter == 0 ? sine : quarter == 1 ? cosine : quarter == 2 ? -sine : -cosine;
  out[0] = (REAL)x;
  out[1] = (REAL)(conjugate ? y : -y);
}

/// Element (row, column) = exp(-2 pi i (first_row + row) row_step (first_column + column) /
/// denominator); no product may pass 2^63. Global size: rows * columns or more.
kernel void fft_roots(global char* base, ulong offset, ulong first_row, ulong row_step, ulong rows,
                      ulong first_column, ulong columns, ulong denominator) {
  const ulong i = get_global_id(0);
  if (i >= rows * columns) return;
  const ulong row = i / columns, column = i - row * columns;
  const ulong power = (first_row + row) * row_step * (first_column + column);
  store_root(power % denominator, denominator, false, (global REAL*)(base + offset) + 2 * i);
}

/// The chirp exp(-pi i j^2 / n) for j < n; with m > 0 its conjugate at j and m - j, of m elements
/// that are 0 in between. Global size: n or m, or more.
kernel void fft_chirp(global char* base, ulong offset, ulong n, ulong m) {
  const ulong i = get_global_id(0);
  if (i >= (m > 0 ? m : n)) return;
  global REAL* out = (global REAL*)(base + offset) + 2 * i;
  const ulong j = i < n ? i : m - i;
  if (j < n) {
    store_root(j * j % (2 * n), 2 * n, m > 0, out);
  } else {
    out[0] = out[1] = 0;
  }
}
