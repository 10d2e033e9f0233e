// Triangular systems on CPUs whose right-hand sides lie by columns: a work-item has four of these
// to itself, and vectors along them.
//
// Compile parameters: C and LANES (columns.clh).
#include "linalg/columns.clh"

#define CONJUGATE_IF_real(condition, v) (v)
#define CONJUGATE_IF_complex(condition, v) ((condition) ? CONJUGATED(v) : (v))
#define CONJUGATE_IF(condition, v) OF_KIND(CONJUGATE_IF_)(condition, v)

/// Element (i, i) divides those of the columns in row i.
#define DIVIDE_ROW(i)                                                   \
  if (!(flags & kUnit)) {                                               \
    const T stored = AT(from, sa, i, i);                                \
    const T diagonal = conjugate ? CONJ(stored) : stored;               \
    for (uint q = 0; q < width; q++)                                    \
      to[q * sb.column + (i)] = DIV(to[q * sb.column + (i)], diagonal); \
  }

#define DECLARE_OPERANDS                                                             \
  const uint blocks = (columns + 3) / 4;                                             \
  const ulong z = get_global_id(0) / blocks;                                         \
  const uint first = get_global_id(0) % blocks * 4;                                  \
  const uint width = min(columns - first, 4u);                                       \
  global const T* from = (global const T*)(a + a_offset) + z * sa.batch;             \
  global T* to = MATRIX(b, b_offset, sb, z) + first * sb.column;                     \
  const bool upper = flags & kUpper, conjugate = flags & kConjugate;                 \
  /* Columns past the last one are the first once more, whose sums are of no use. */ \
  global T* b0 = to;                                                                 \
  global T* b1 = width > 1 ? b0 + sb.column : b0;                                    \
  global T* b2 = width > 2 ? b1 + sb.column : b0;                                    \
  global T* b3 = width > 3 ? b2 + sb.column : b0

/// triangular_solve of triangular.cl for any n of LANES or more: what is known of a row's element
/// is subtracted from the rows that need it. Row strides are 1. Global size: batch * (columns / 4,
/// rounded up).
kernel ITEM_BY_ITEM void triangular_columns(global const char* a, ulong a_offset, global char* b,
                                            ulong b_offset, const Strides sa, const Strides sb,
                                            uint n, uint columns, uint flags) {
  DECLARE_OPERANDS;
  for (uint k = 0; k < n; k++) {
    const uint j = upper ? n - 1 - k : k;
    DIVIDE_ROW(j)
    global const T* column = from + j * sa.column;
    const T known0 = -b0[j];
    const T known1 = -b1[j];
    const T known2 = -b2[j];
    const T known3 = -b3[j];
    FOR_CHUNKS(i, upper ? 0 : PARTS * (j + 1), PARTS * (upper ? j : n), {
      const V known = GET(column, i);
      DECLARE_MULTIPLES(x, CONJUGATE_IF(conjugate, known));
      const V old0 = GET(b0, i);
      PUT(SET(old0, ADD_MULTIPLE(old0, known0, x)), b0, i);
      if (width > 1) {
        const V old1 = GET(b1, i);
        PUT(SET(old1, ADD_MULTIPLE(old1, known1, x)), b1, i);
      }
      if (width > 2) {
        const V old2 = GET(b2, i);
        PUT(SET(old2, ADD_MULTIPLE(old2, known2, x)), b2, i);
      }
      if (width > 3) {
        const V old3 = GET(b3, i);
        PUT(SET(old3, ADD_MULTIPLE(old3, known3, x)), b3, i);
      }
    });
  }
}

/// Solves a system where a's columns lie side by side, sa.column is 1: an element is what its row's
/// dot product leaves.
kernel ITEM_BY_ITEM void triangular_rows(global const char* a, ulong a_offset, global char* b,
                                         ulong b_offset, const Strides sa, const Strides sb, uint n,
                                         uint columns, uint flags) {
  DECLARE_OPERANDS;
  for (uint k = 0; k < n; k++) {
    const uint j = upper ? n - 1 - k : k;
    global const T* row = from + j * sa.row;
    DECLARE_SUMS(sums0);
    DECLARE_SUMS(sums1);
    DECLARE_SUMS(sums2);
    DECLARE_SUMS(sums3);
    FOR_CHUNKS(i, upper ? PARTS * (j + 1) : 0, PARTS * (upper ? n : j), {
      const V known = ONLY(GET(row, i));
      // ADD_PRODUCT conjugates.
      DECLARE_MULTIPLES(x, CONJUGATE_IF(!conjugate, known));
      ADD_FOUR_PRODUCTS(sums, x, b, i);
    });
    b0[j] -= SUM_OF(sums0);
    if (width > 1) b1[j] -= SUM_OF(sums1);
    if (width > 2) b2[j] -= SUM_OF(sums2);
    if (width > 3) b3[j] -= SUM_OF(sums3);
    DIVIDE_ROW(j)
  }
}
