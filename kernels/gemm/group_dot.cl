// Few columns, on devices where neighbouring work-items should read neighbouring elements: a
// work-group has ROWS rows, so that what it reads of the columns serves them all. Compile
// parameters besides skinny.clh's: LOCAL (the group's size, a power of 2), IN_FLIGHT (steps of
// columns that are under way for each row). With WIDTH above 1 both operands are contiguous along k
// and aligned to that many elements. Rows of 4 bits begin at multiples of 16 bytes; WIDTH is 8
// then, and k a multiple of BLOCK.
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
#ifndef IN_FLIGHT
#define IN_FLIGHT 2
#endif

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

#define FOR_ROWS(r) _Pragma("unroll") for (uint r = 0; r < ROWS; r++)
#define FOR_COLUMNS(q) _Pragma("unroll") for (uint q = 0; q < NQ; q++)
// A column's sums of a group: of its rows, and of its squares. Work-items add them up in two steps:
// SUM_ITEMS of them have a part of one sum each.
#define SUMS (ROWS + IS_NORMED)
#define SUM_ITEMS (LOCAL / 8)

/// Adds the products of two vectors. A sum for each lane would take most registers.
#if WIDTH > 1
static inline T dot_of_lanes(V u, V w) {
  T lanes_u[WIDTH], lanes_w[WIDTH];
  PASTE2(vstore, WIDTH)(u, 0, lanes_u);
  PASTE2(vstore, WIDTH)(w, 0, lanes_w);
  T dot = lanes_u[0] * lanes_w[0];
#pragma unroll
  for (uint i = 1; i < WIDTH; i++) dot = MAD(lanes_u[i], lanes_w[i], dot);
  return dot;
}
#define ADD_DOT(u, w, sum) sum += dot_of_lanes(u, w)
#else
#define ADD_DOT(u, w, sum) sum = MAD(u, w, sum)
#endif

/// Elements kk... of all rows and columns: their products are added, and squares.
#define ADD_PRODUCTS(u, kk)                        \
  do {                                             \
    const V factor = NORM_FACTOR(WIDTH, kk);       \
    FOR_COLUMNS(q) {                               \
      V w = B_VECTOR(kk, (ulong)min(q, p.n - 1));  \
      NORMALISE(w, squares[q], factor);            \
      FOR_ROWS(r) ADD_DOT((u)[r], w, total[r][q]); \
    }                                              \
  } while (0)

static inline T sum_of_parts(local const T* of_sum) {
  T sum = of_sum[0];
  for (uint i = 1; i < SUM_ITEMS; i++) sum += of_sum[i];
  return sum;
}

/// Any strides but for WIDTH. Global size: LOCAL * ceil(m / ROWS), splits, batch.
kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void gemm_group_dot(
    OPERANDS PIECE_PARAMETERS) {
  local T parts[SUMS * LOCAL], part_sums[SUMS * SUM_ITEMS];
#if IS_NORMED
  // The sums of the columns' squares: each row needs them all, and reads the columns anyway.
  V squares[NQ];
  FOR_COLUMNS(q) squares[q] = (V)(0);
#endif
  const ulong row = get_group_id(0) * ROWS, split = get_global_id(1), z = get_global_id(2);
  const uint item = get_local_id(0);
  const ulong start = split * p.split_k, end = min(start + p.split_k, (ulong)p.k);
  ADVANCE_OPERANDS(z);
  // The last group may have fewer rows, and reads one of them several times.
  global const char* x[ROWS];
  FOR_ROWS(r) x[r] = ROW_OF_A(min(row + r, (ulong)p.m - 1));
  T total[ROWS][NQ];
  FOR_ROWS(r) FOR_COLUMNS(q) total[r][q] = (T)(0);
#if HAS_BLOCKS
  ScalesOfRow scales[ROWS];
  FOR_ROWS(r) scales[r] = SCALES_OF_ROW(min((uint)row + r, p.m - 1));
  // A work-item has a block, and neighbours have the next ones: what they read of a column together
  // is far apart. The group brings it in order into local memory, so that it is side by side there.
  local float4 columns[NQ][2 * PARTS][LOCAL];
  for (ulong first = start; first < end; first += LOCAL * BLOCK) {
    const ulong kk = min(first + item * BLOCK, (ulong)(p.k - BLOCK));
    Stored stored[ROWS];
    FOR_ROWS(r) stored[r] = stored_block(x[r], scales[r], kk);
    if (first > start) barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = item; i < LOCAL * PARTS; i += LOCAL) {
      const ulong at = first + i * WIDTH;
      if (at >= end) break;
      const V factor = NORM_FACTOR(WIDTH, at);
      FOR_COLUMNS(q) {
        V w = B_VECTOR(at, (ulong)min(q, p.n - 1));
        NORMALISE(w, squares[q], factor);
        columns[q][i % PARTS * 2][i / PARTS] = w.lo;
        columns[q][i % PARTS * 2 + 1][i / PARTS] = w.hi;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (first + item * BLOCK >= end) continue;
    _Pragma("unroll") for (uint part = 0; part < PARTS; part++) {
      V u[ROWS];
      FOR_ROWS(r) u[r] = values_of_block(stored[r], part);
      FOR_COLUMNS(q) {
        const V w = (V)(columns[q][2 * part][item], columns[q][2 * part + 1][item]);
        FOR_ROWS(r) ADD_DOT(u[r], w, total[r][q]);
      }
    }
  }
#else
  const ulong step = LOCAL * WIDTH;
  ulong kk = start + item * WIDTH;
  for (; kk + (IN_FLIGHT - 1) * step + WIDTH <= end; kk += IN_FLIGHT * step) {
    V ahead[IN_FLIGHT][ROWS];
#pragma unroll
    for (uint i = 0; i < IN_FLIGHT; i++) FOR_ROWS(r) ahead[i][r] = A_VECTOR(x[r], kk + i * step);
#pragma unroll
    for (uint i = 0; i < IN_FLIGHT; i++) ADD_PRODUCTS(ahead[i], kk + i * step);
  }
  for (; kk + WIDTH <= end; kk += step) {
    V u[ROWS];
    FOR_ROWS(r) u[r] = A_VECTOR(x[r], kk);
    ADD_PRODUCTS(u, kk);
  }
#endif
  FOR_COLUMNS(q) {
    T sum[ROWS];
    FOR_ROWS(r) sum[r] = total[r][q];
#if IS_NORMED
    T square = HSUM(WIDTH, squares[q]);
#endif
#if !HAS_BLOCKS
    // At most one work-item is at the elements past the last vector.
    for (ulong rest = kk; rest < min(kk + WIDTH, end); rest++) {
      T w = B_AT(rest, (ulong)min(q, p.n - 1));
      NORMALISE(w, square, NORM_FACTOR(1, rest));
      FOR_ROWS(r) sum[r] = MAD(A_IN(x[r], rest), w, sum[r]);
    }
#endif
    FOR_ROWS(r) parts[r * LOCAL + item] = sum[r];
#if IS_NORMED
    parts[ROWS * LOCAL + item] = square;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = item; i < SUMS * SUM_ITEMS; i += LOCAL) {
      local const T* of_sum = parts + i / SUM_ITEMS * LOCAL + i % SUM_ITEMS;
      T part = of_sum[0];
      for (uint j = SUM_ITEMS; j < LOCAL; j += SUM_ITEMS) part += of_sum[j];
      part_sums[i] = part;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < ROWS && q < p.n && row + item < p.m) {
      T whole = sum_of_parts(part_sums + item * SUM_ITEMS);
#if IS_NORMED
      whole *= rsqrt(sum_of_parts(part_sums + ROWS * SUM_ITEMS) / (T)p.k + (T)norm.epsilon);
#endif
      SCALED_SUM((uint)row + item, whole);
      EPILOGUE_OR_SPLIT(z, split, row + item, (ulong)q, whole);
    }
  }
}
