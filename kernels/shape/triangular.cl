// Triangles of matrices: tril, triu and the coordinates of their elements.
//
// Compile parameters: E (an unsigned tag of the element's size, u128 for 16 bytes) for the copies,
// OUT (tag of the coordinates); UPPER (1: above the diagonal, 0: below).
#include "include/dtype.clh"
#include "include/indexing.clh"

#ifndef E
#define E u32
#endif
#ifndef OUT
#define OUT i64
#endif
#ifndef UPPER
#define UPPER 0
#endif

typedef struct {
  ulong offset[2];  // bytes: out, in
  long diagonal;
  uint n;
  uint dims;  // at least 2; columns first, then rows, then batches
  uint size[16];
  uint stride[2][16];  // bytes
} TriangleLayout;

/// Copies the triangle, zeroes the rest. in may be out. Global size: n or more.
kernel void triangle_copy(global char *out, global const char *in, const TriangleLayout layout) {
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  const uint column = (uint)i % layout.size[0];
  const uint row = (uint)i / layout.size[0] % layout.size[1];
  uint at[2] = {0};
  DECODE_OFFSETS(at, 2, (uint)i, layout.dims, layout.size, layout.stride);
  const long above = (long)column - row;
#if UPPER
  const bool keep = above >= layout.diagonal;
#else
  const bool keep = above <= layout.diagonal;
#endif
  TYPE(E) value = (TYPE(E))(0);
  if (keep) value = LOAD(E, in + layout.offset[1] + at[1], 0);
  STORE(E, out + layout.offset[0] + at[0], 0, value);
}

/// Elements of the triangle in the rows before `row`.
static inline long before(long row, long columns, long diagonal) {
#if UPPER
  // Row r has columns - clamp(r + diagonal, 0, columns).
  const long full = clamp(-diagonal, 0l, row);             // rows that are whole
  const long partial = clamp(columns - diagonal, full, row);  // rows before the first empty one
  const long first = columns - max(full + diagonal, 0l);   // length of row `full`
  const long count = partial - full;
  return full * columns + count * first - count * (count - 1) / 2;
#else
  // Row r has clamp(r + diagonal + 1, 0, columns).
  const long empty = clamp(-diagonal, 0l, row);
  const long partial = clamp(columns - diagonal, empty, row);
  const long first = empty + diagonal + 1;
  const long count = partial - empty;
  return count * first + count * (count - 1) / 2 + (row - partial) * columns;
#endif
}

/// out[0][k], out[1][k]: row and column of element k of `total`. One work-item per row.
kernel void triangle_indices(global char *out, ulong out_offset, long rows, long columns,
                             long diagonal, long total) {
  const long row = get_global_id(0);
  if (row >= rows) return;
#if UPPER
  const long first = clamp(row + diagonal, 0l, columns), end = columns;
#else
  const long first = 0, end = clamp(row + diagonal + 1, 0l, columns);
#endif
  long k = before(row, columns, diagonal);
  for (long column = first; column < end; column++, k++) {
    STORE_FROM(OUT, i64, out + out_offset, k, row);
    STORE_FROM(OUT, i64, out + out_offset, total + k, column);
  }
}
