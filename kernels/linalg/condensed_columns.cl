// The reductions of condensed.cl on CPUs: a work-item has a matrix to itself, and vectors along its
// columns.
//
// Columns begin `ld` elements apart, and are processed as whole vectors: rows past the n-th are 0,
// those above the part that is still to be reduced hold what nobody reads. An update waits for the
// pass over the matrix that the next reflection needs anyway.
//
// Compile parameters: C and LANES (columns.clh), computed in; A, the dtype of a: C or its single
// precision; D, the real dtype of the diagonals.
#ifndef A
#define A f32
#endif
#ifndef D
#define D f32
#endif
#include "include/always_inline.clh"
#include "include/reduce.clh"
#include "linalg/columns.clh"

#define LARGEST_f32 FLT_MAX
#define LARGEST_f64 DBL_MAX
// Smaller numbers have squares that lose digits, and are multiplied by RAISE.
#define SMALL_f32 0x1p-40f
#define SMALL_f64 0x1p-400
#define RAISE_f32 0x1p100f
#define RAISE_f64 0x1p600

/// Vectors of a column, of which there are `chunks`.
#define CHUNK(column, i) PASTE2(vload, LANES)(i, (column))
#define SET_CHUNK(v, column, i) PASTE2(vstore, LANES)(v, i, (column))
#define REALS(column) ((global R*)(column))
#define LOCAL_REALS(vector) ((local R*)(vector))
#define READ(i, j) CONVERT(C, A, AT(from, sa, i, j))

/// A power of two that brings `largest` near 1.
static inline R scale_of(R largest) {
  return largest == 0 ? (R)1 : ldexp((R)1, -clamp(ilogb(largest), -120, 120));
}

/// 1 - tau v v^H with v[0] = 1.
typedef struct {
  T tau;
  R beta;
} Reflection;

/// The reflection whose adjoint takes x[k .. n) to (beta, 0, ..., 0). v replaces x: 0 before
/// element k, 1 there.
static inline Reflection make_reflection(local T* x, uint k, uint chunks) {
  const uint begin = PARTS * k / LANES;
  const T alpha = x[k];
  for (uint i = begin * LANES / PARTS; i <= k; i++) x[i] = FROM_REAL((R)0);
  V largest = (V)0;
  for (uint i = begin; i < chunks; i++) largest = fmax(largest, fabs(CHUNK(LOCAL_REALS(x), i)));
  const R most = largest_of(largest);
  Reflection result;
  result.tau = FROM_REAL((R)0);
  result.beta = REAL_OF(alpha);
  if (most != 0 || IMAG_OF(alpha) != 0) {
    const R factor =
        fmax(most, SIZE1(alpha)) < PASTE2(SMALL_, REAL_TAG) ? PASTE2(RAISE_, REAL_TAG) : (R)1;
    V squares = (V)0;
    for (uint i = begin; i < chunks; i++) {
      const V y = CHUNK(LOCAL_REALS(x), i) * factor;
      squares = fma(y, y, squares);
    }
    const T scaled = alpha * factor;
    // The sign that adds up: alpha - beta must not cancel.
    const R beta =
        -copysign(sqrt(sum_of(squares) + REAL_OF(MUL(scaled, CONJ(scaled)))), REAL_OF(scaled));
    result.tau = (FROM_REAL(beta) - scaled) / beta;
    result.beta = beta / factor;
    DECLARE_DIVISOR(scaled - FROM_REAL(beta));
    for (uint i = begin; i < chunks; i++)
      SET_CHUNK(QUOTIENT(CHUNK(LOCAL_REALS(x), i) * factor), LOCAL_REALS(x), i);
  }
  x[k] = FROM_REAL((R)1);
  return result;
}

static inline void scale_matrix(global T* matrix, uint n, uint ld, uint chunks, R scale) {
  for (uint j = 0; j < n; j++) {
    for (uint i = 0; i < chunks; i++) {
      const V scaled = CHUNK(REALS(matrix + j * ld), i) * scale;
      SET_CHUNK(scaled, REALS(matrix + j * ld), i);
    }
  }
}

/// A column's vector and multiples of v and w.
#define UPDATED(old, by, v, with, w) ADD_MULTIPLE(ADD_MULTIPLE(old, by, v), with, w)

#define SWAP_VECTORS(a, b)   \
  do {                       \
    local T* swapped_ = (a); \
    (a) = (b);               \
    (b) = swapped_;          \
  } while (0)

#define FILL_WITH_NANS(count)                                        \
  do {                                                               \
    for (uint i = 0; i < 2 * n; i++) d[i] = i + 1 < 2 * n ? 0 : NAN; \
    for (uint i = 0; i < (count); i++) taus[i] = FROM_REAL((R)NAN);  \
  } while (0)

/// p += A x, columns from `first` on, A brought up to date: less v w^H and w v^H.
static ALWAYS_INLINE void update_and_multiply(global T* matrix, uint ld, uint n, uint first,
                                              uint begin, uint chunks, local const T* v,
                                              local const T* w, local const T* x, local T* p) {
  uint j = first;
  for (; j + 4 <= n; j += 4) {
    global R* c0 = REALS(matrix + j * ld);
    global R* c1 = REALS(matrix + (j + 1) * ld);
    global R* c2 = REALS(matrix + (j + 2) * ld);
    global R* c3 = REALS(matrix + (j + 3) * ld);
    const T v0 = -CONJ(v[j]), v1 = -CONJ(v[j + 1]), v2 = -CONJ(v[j + 2]), v3 = -CONJ(v[j + 3]);
    const T w0 = -CONJ(w[j]), w1 = -CONJ(w[j + 1]), w2 = -CONJ(w[j + 2]), w3 = -CONJ(w[j + 3]);
    const T x0 = x[j], x1 = x[j + 1], x2 = x[j + 2], x3 = x[j + 3];
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(v_, CHUNK(LOCAL_REALS(v), i));
      DECLARE_MULTIPLES(w_, CHUNK(LOCAL_REALS(w), i));
      V sum = CHUNK(LOCAL_REALS(p), i);
      DECLARE_MULTIPLES(a0, UPDATED(CHUNK(c0, i), w0, v_, v0, w_));
      DECLARE_MULTIPLES(a1, UPDATED(CHUNK(c1, i), w1, v_, v1, w_));
      DECLARE_MULTIPLES(a2, UPDATED(CHUNK(c2, i), w2, v_, v2, w_));
      DECLARE_MULTIPLES(a3, UPDATED(CHUNK(c3, i), w3, v_, v3, w_));
      SET_CHUNK(a0[0], c0, i);
      SET_CHUNK(a1[0], c1, i);
      SET_CHUNK(a2[0], c2, i);
      SET_CHUNK(a3[0], c3, i);
      sum = ADD_MULTIPLE(sum, x0, a0);
      sum = ADD_MULTIPLE(sum, x1, a1);
      sum = ADD_MULTIPLE(sum, x2, a2);
      sum = ADD_MULTIPLE(sum, x3, a3);
      SET_CHUNK(sum, LOCAL_REALS(p), i);
    }
  }
  for (; j < n; j++) {
    global R* c0 = REALS(matrix + j * ld);
    const T v0 = -CONJ(v[j]), w0 = -CONJ(w[j]), x0 = x[j];
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(v_, CHUNK(LOCAL_REALS(v), i));
      DECLARE_MULTIPLES(w_, CHUNK(LOCAL_REALS(w), i));
      DECLARE_MULTIPLES(a0, UPDATED(CHUNK(c0, i), w0, v_, v0, w_));
      SET_CHUNK(a0[0], c0, i);
      SET_CHUNK(ADD_MULTIPLE(CHUNK(LOCAL_REALS(p), i), x0, a0), LOCAL_REALS(p), i);
    }
  }
}

/// As in condensed.cl. vectors: 4 of `padded` elements, n rounded up to whole vectors. Global size:
/// batch.
kernel ITEM_BY_ITEM void tridiagonalise_columns(global const char* a, ulong a_offset,
                                                global char* columns, ulong columns_offset,
                                                global char* tau, ulong tau_offset,
                                                global char* diagonals, ulong diagonals_offset,
                                                global char* info, ulong info_offset,
                                                const Strides sa, uint n, uint ld, uint padded,
                                                uint upper, local T* vectors) {
  const ulong z = get_global_id(0);
  global const TYPE(A)* from = (global const TYPE(A)*)(a + a_offset) + z * sa.batch;
  global T* matrix = (global T*)(columns + columns_offset) + z * n * ld;
  global T* taus = (global T*)(tau + tau_offset) + z * n;
  global TYPE(D)* d = (global TYPE(D)*)(diagonals + diagonals_offset) + z * 2 * n;
  global TYPE(D)* e = d + n;
  const uint chunks = PARTS * padded / LANES;
  // The update that waits is -v w^H - w v^H; the next are made of x and p.
  local T *v = vectors, *w = v + padded, *x = w + padded, *p = x + padded;
  for (uint i = 0; i < 4 * padded; i++) vectors[i] = FROM_REAL((R)0);
  R largest = 0;
  for (uint j = 0; j < n; j++) {
    for (uint i = j; i < n; i++) {
      // The triangle that is read, as the lower one.
      T value = upper ? CONJ(READ(j, i)) : READ(i, j);
      if (i == j) value = FROM_REAL(REAL_OF(value));
      largest = COMBINE_MAX(largest, SIZE1(value));
      matrix[j * ld + i] = value;
      matrix[i * ld + j] = CONJ(value);
    }
    for (uint i = n; i < padded; i++) matrix[j * ld + i] = FROM_REAL((R)0);
  }
  const bool finite = largest <= PASTE2(LARGEST_, REAL_TAG);
  ((global int*)(info + info_offset))[z] = n > 1 && isnan(largest);
  const R scale = finite ? scale_of(largest) : (R)1;
  if (scale != 1) scale_matrix(matrix, n, ld, chunks, scale);
  for (uint k = 0; finite && k + 1 < n; k++) {
    global R* column = REALS(matrix + k * ld);
    const T minus_v = -CONJ(v[k]), minus_w = -CONJ(w[k]);
    uint begin = PARTS * k / LANES;
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(v_, CHUNK(LOCAL_REALS(v), i));
      DECLARE_MULTIPLES(w_, CHUNK(LOCAL_REALS(w), i));
      SET_CHUNK(UPDATED(CHUNK(column, i), minus_w, v_, minus_v, w_), LOCAL_REALS(x), i);
      SET_CHUNK((V)0, LOCAL_REALS(p), i);
    }
    d[k] = REAL_OF(x[k]);
    begin = PARTS * (k + 1) / LANES;
    const Reflection reflection = make_reflection(x, k + 1, chunks);
    e[k] = reflection.beta;
    taus[k] = reflection.tau;
    for (uint i = begin; i < chunks; i++) SET_CHUNK(CHUNK(LOCAL_REALS(x), i), column, i);
    update_and_multiply(matrix, ld, n, k + 1, begin, chunks, v, w, x, p);
    // H^H A H = A - x w^H - w x^H with w = tau p - (|tau|^2 x^H p / 2) x.
    DECLARE_SUMS(sums);
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(x_, CHUNK(LOCAL_REALS(x), i));
      const V product = CHUNK(LOCAL_REALS(p), i);
      ADD_PRODUCT(sums, x_, product);
    }
    const R size = REAL_OF(MUL(reflection.tau, CONJ(reflection.tau))) * REAL_OF(SUM_OF(sums)) / 2;
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(p_, CHUNK(LOCAL_REALS(p), i));
      const V part = CHUNK(LOCAL_REALS(x), i) * -size;
      SET_CHUNK(ADD_MULTIPLE(part, reflection.tau, p_), LOCAL_REALS(p), i);
    }
    SWAP_VECTORS(v, x);
    SWAP_VECTORS(w, p);
  }
  const T last = matrix[(n - 1) * ld + n - 1];
  d[n - 1] = REAL_OF(last) - 2 * REAL_OF(MUL(v[n - 1], CONJ(w[n - 1])));
  e[n - 1] = scale;
  taus[n - 1] = FROM_REAL((R)0);
  if (n > 1 && isinf(largest)) FILL_WITH_NANS(n);
}

/// h = factor x^H A, columns from `first` on, A brought up to date: less v g and w u^H.
static ALWAYS_INLINE void update_and_project(global T* matrix, uint ld, uint n, uint first,
                                             uint begin, uint chunks, local const T* v,
                                             local const T* g, local const T* w, local const T* u,
                                             local const T* x, local T* h, const T factor) {
  uint j = first;
  for (; j + 4 <= n; j += 4) {
    global R* c0 = REALS(matrix + j * ld);
    global R* c1 = REALS(matrix + (j + 1) * ld);
    global R* c2 = REALS(matrix + (j + 2) * ld);
    global R* c3 = REALS(matrix + (j + 3) * ld);
    const T g0 = -g[j], g1 = -g[j + 1], g2 = -g[j + 2], g3 = -g[j + 3];
    const T u0 = -CONJ(u[j]), u1 = -CONJ(u[j + 1]), u2 = -CONJ(u[j + 2]), u3 = -CONJ(u[j + 3]);
    DECLARE_SUMS(sums0);
    DECLARE_SUMS(sums1);
    DECLARE_SUMS(sums2);
    DECLARE_SUMS(sums3);
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(v_, CHUNK(LOCAL_REALS(v), i));
      DECLARE_MULTIPLES(w_, CHUNK(LOCAL_REALS(w), i));
      DECLARE_MULTIPLES(x_, CHUNK(LOCAL_REALS(x), i));
      const V a0 = UPDATED(CHUNK(c0, i), g0, v_, u0, w_);
      const V a1 = UPDATED(CHUNK(c1, i), g1, v_, u1, w_);
      const V a2 = UPDATED(CHUNK(c2, i), g2, v_, u2, w_);
      const V a3 = UPDATED(CHUNK(c3, i), g3, v_, u3, w_);
      SET_CHUNK(a0, c0, i);
      SET_CHUNK(a1, c1, i);
      SET_CHUNK(a2, c2, i);
      SET_CHUNK(a3, c3, i);
      ADD_PRODUCT(sums0, x_, a0);
      ADD_PRODUCT(sums1, x_, a1);
      ADD_PRODUCT(sums2, x_, a2);
      ADD_PRODUCT(sums3, x_, a3);
    }
    h[j] = MUL(factor, SUM_OF(sums0));
    h[j + 1] = MUL(factor, SUM_OF(sums1));
    h[j + 2] = MUL(factor, SUM_OF(sums2));
    h[j + 3] = MUL(factor, SUM_OF(sums3));
  }
  for (; j < n; j++) {
    global R* c0 = REALS(matrix + j * ld);
    const T g0 = -g[j], u0 = -CONJ(u[j]);
    DECLARE_SUMS(sums0);
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(v_, CHUNK(LOCAL_REALS(v), i));
      DECLARE_MULTIPLES(w_, CHUNK(LOCAL_REALS(w), i));
      DECLARE_MULTIPLES(x_, CHUNK(LOCAL_REALS(x), i));
      const V a0 = UPDATED(CHUNK(c0, i), g0, v_, u0, w_);
      SET_CHUNK(a0, c0, i);
      ADD_PRODUCT(sums0, x_, a0);
    }
    h[j] = MUL(factor, SUM_OF(sums0));
  }
}

/// p += A y, columns from `first` on.
static ALWAYS_INLINE void multiply_columns(global const T* matrix, uint ld, uint n, uint first,
                                           uint begin, uint chunks, local const T* y, local T* p) {
  uint j = first;
  for (; j + 4 <= n; j += 4) {
    global const R* c0 = REALS(matrix + j * ld);
    global const R* c1 = REALS(matrix + (j + 1) * ld);
    global const R* c2 = REALS(matrix + (j + 2) * ld);
    global const R* c3 = REALS(matrix + (j + 3) * ld);
    const T y0 = y[j], y1 = y[j + 1], y2 = y[j + 2], y3 = y[j + 3];
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(a0, CHUNK(c0, i));
      DECLARE_MULTIPLES(a1, CHUNK(c1, i));
      DECLARE_MULTIPLES(a2, CHUNK(c2, i));
      DECLARE_MULTIPLES(a3, CHUNK(c3, i));
      V sum = CHUNK(LOCAL_REALS(p), i);
      sum = ADD_MULTIPLE(sum, y0, a0);
      sum = ADD_MULTIPLE(sum, y1, a1);
      sum = ADD_MULTIPLE(sum, y2, a2);
      sum = ADD_MULTIPLE(sum, y3, a3);
      SET_CHUNK(sum, LOCAL_REALS(p), i);
    }
  }
  for (; j < n; j++) {
    global const R* c0 = REALS(matrix + j * ld);
    const T y0 = y[j];
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(a0, CHUNK(c0, i));
      SET_CHUNK(ADD_MULTIPLE(CHUNK(LOCAL_REALS(p), i), y0, a0), LOCAL_REALS(p), i);
    }
  }
}

/// As in condensed.cl. vectors: 8 of `padded` elements. Global size: batch.
kernel ITEM_BY_ITEM void bidiagonalise_columns(
    global const char* a, ulong a_offset, global char* columns, ulong columns_offset,
    global char* rows, ulong rows_offset, global char* tau, ulong tau_offset,
    global char* diagonals, ulong diagonals_offset, global char* info, ulong info_offset,
    const Strides sa, uint n, uint ld, uint padded, local T* vectors) {
  const ulong z = get_global_id(0);
  global const TYPE(A)* from = (global const TYPE(A)*)(a + a_offset) + z * sa.batch;
  global T* matrix = (global T*)(columns + columns_offset) + z * n * ld;
  global T* by_row = (global T*)(rows + rows_offset) + z * n * ld;
  global T* taus = (global T*)(tau + tau_offset) + z * 2 * n;
  global TYPE(D)* d = (global TYPE(D)*)(diagonals + diagonals_offset) + z * 2 * n;
  global TYPE(D)* e = d + n;
  const uint chunks = PARTS * padded / LANES;
  // The update that waits is -v g - w u^H; the next is made of x and h, p and y.
  local T *v = vectors, *g = v + padded, *w = g + padded, *u = w + padded;
  local T *x = u + padded, *y = x + padded, *h = y + padded, *p = h + padded;
  for (uint i = 0; i < 8 * padded; i++) vectors[i] = FROM_REAL((R)0);
  R largest = 0;
  for (uint j = 0; j < n; j++) {
    for (uint i = 0; i < n; i++) {
      const T value = READ(i, j);
      largest = COMBINE_MAX(largest, SIZE1(value));
      matrix[j * ld + i] = value;
    }
    for (uint i = n; i < padded; i++) matrix[j * ld + i] = FROM_REAL((R)0);
  }
  const bool finite = largest <= PASTE2(LARGEST_, REAL_TAG);
  ((global int*)(info + info_offset))[z] = isnan(largest) ? -4 : 0;
  const R scale = finite ? scale_of(largest) : (R)1;
  if (scale != 1) scale_matrix(matrix, n, ld, chunks, scale);
  for (uint k = 0; finite && k < n; k++) {
    global R* column = REALS(matrix + k * ld);
    const T minus_g = -g[k], minus_u = -CONJ(u[k]);
    const uint begin = PARTS * k / LANES;
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(v_, CHUNK(LOCAL_REALS(v), i));
      DECLARE_MULTIPLES(w_, CHUNK(LOCAL_REALS(w), i));
      SET_CHUNK(UPDATED(CHUNK(column, i), minus_g, v_, minus_u, w_), LOCAL_REALS(x), i);
      SET_CHUNK((V)0, LOCAL_REALS(y), i);
      SET_CHUNK((V)0, LOCAL_REALS(p), i);
    }
    const Reflection left = make_reflection(x, k, chunks);
    d[k] = left.beta;
    taus[k] = left.tau;
    for (uint i = begin; i < chunks; i++) SET_CHUNK(CHUNK(LOCAL_REALS(x), i), column, i);
    // h = conj(tau) x^H A, A brought up to date; what that leaves of row k, conjugated, makes the
    // right reflection.
    const T factor = CONJ(left.tau);
    update_and_project(matrix, ld, n, k + 1, begin, chunks, v, g, w, u, x, h, factor);
    taus[n + k] = FROM_REAL((R)0);
    if (k + 1 == n) break;
    for (uint j = k + 1; j < n; j++) y[j] = CONJ(matrix[j * ld + k] - h[j]);
    const Reflection right = make_reflection(y, k + 1, chunks);
    e[k] = right.beta;
    taus[n + k] = right.tau;
    T dot = FROM_REAL((R)0);
    for (uint j = k + 1; j < n; j++) dot = MAD(h[j], y[j], dot);
    for (uint i = begin; i < chunks; i++)
      SET_CHUNK(CHUNK(LOCAL_REALS(y), i), REALS(by_row + k * ld), i);
    // Both sides: A - x h - w y^H with w = tau (A - x h) y.
    multiply_columns(matrix, ld, n, k + 1, begin, chunks, y, p);
    for (uint i = begin; i < chunks; i++) {
      DECLARE_MULTIPLES(x_, CHUNK(LOCAL_REALS(x), i));
      DECLARE_MULTIPLES(p_, ADD_MULTIPLE(CHUNK(LOCAL_REALS(p), i), -dot, x_));
      SET_CHUNK(ADD_MULTIPLE((V)0, right.tau, p_), LOCAL_REALS(p), i);
    }
    SWAP_VECTORS(v, x);
    SWAP_VECTORS(g, h);
    SWAP_VECTORS(w, p);
    SWAP_VECTORS(u, y);
  }
  e[n - 1] = scale;
  if (isinf(largest)) FILL_WITH_NANS(2 * n);
}
