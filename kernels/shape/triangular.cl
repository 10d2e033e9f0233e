// Triangles of matrices: tril, triu and the coordinates of their elements.
//
// Compile parameters: E (an unsigned tag of the element's size, u128 for 16 bytes) for the copies,
// OUT (tag of the coordinates); UPPER (1: above the diagonal, 0: below); for rows WIDTH (elements
// of a vector), COPY (0: the triangle is in its place), CONTIGUOUS (1: the rows are, in both).
#include "include/dtype.clh"
#include "include/indexing.clh"
#include "include/item_by_item.clh"
#include "shape/arguments.clh"

#ifndef E
#define E u32
#endif
#ifndef OUT
#define OUT i64
#endif
#ifndef UPPER
#define UPPER 0
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef COPY
#define COPY 1
#endif
#ifndef CONTIGUOUS
#define CONTIGUOUS 1
#endif

/// Copies the triangle, zeroes the rest. in may be out. Global size: n or more.
kernel void triangle_copy(global char* out, const ulong out_offset, global const char* in,
                          const ulong in_offset, const TriangleArguments layout) {
  out += out_offset;
  in += in_offset;
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
  if (keep) value = LOAD(E, in + at[1], 0);
  STORE(E, out + at[0], 0, value);
}

#define VECTOR TYPEV(E, WIDTH)
#define OUT_STEP (CONTIGUOUS ? STORAGE_SIZE(E) : layout.stride[0][0])
#define IN_STEP (CONTIGUOUS ? STORAGE_SIZE(E) : layout.stride[1][0])

/// Triangles on CPUs: `run` rows to a work-item. Global size: ceil(rows / run), or more.
kernel ITEM_BY_ITEM void triangle_rows(global char* out, const ulong out_offset,
                                       global const char* in, const ulong in_offset,
                                       const TriangleArguments layout, const uint run) {
  out += out_offset;
  in += in_offset;
  const uint columns = layout.size[0], rows = layout.n / columns;
  const uint first_row = get_global_id(0) * run, end_row = min(first_row + run, rows);
#if CONTIGUOUS && WIDTH > 1
  TYPE(E) numbers[WIDTH];
  for (uint k = 0; k < WIDTH; k++) numbers[k] = k;
  const VECTOR lanes = PASTE2(vload, WIDTH)(0, numbers);
#endif
  for (uint row = first_row; row < end_row; row++) {
    uint at[2] = {0};
    uint rest = row;
    FOR_DIMENSIONS(d, 1, layout.dims, layout.size) {
      const uint quotient = rest / layout.size[d], coordinate = rest - quotient * layout.size[d];
      rest = quotient;
      for (uint k = 0; k < 2; k++) at[k] += coordinate * layout.stride[k][d];
    }
    global char* const to = out + at[0];
    global const char* const from = in + at[1];
    const long place = row % layout.size[1];
#if UPPER
    const uint kept = clamp(place + layout.diagonal, 0l, (long)columns), kept_end = columns;
    const uint empty = 0, empty_end = kept;
#else
    const uint kept = 0, kept_end = clamp(place + layout.diagonal + 1, 0l, (long)columns);
    const uint empty = kept_end, empty_end = columns;
#endif
    uint x = 0;
#if CONTIGUOUS && WIDTH > 1
    // The last vector overlaps the one before rather than leaving a tail.
    for (uint next = COPY ? 0 : empty, last = COPY ? columns : empty_end;
         next < last && columns >= WIDTH; next += WIDTH) {
      x = min(next, columns - WIDTH);
      global char* const p = to + x * STORAGE_SIZE(E);
      if (x >= empty && x + WIDTH <= empty_end) {
        STOREV(E, WIDTH, p, 0, (VECTOR)(0));
        continue;
      }
      const VECTOR v = LOADV(E, WIDTH, from + x * STORAGE_SIZE(E), 0);
      if (x >= kept && x + WIDTH <= kept_end) {
        STOREV(E, WIDTH, p, 0, v);
      } else {
        const VECTOR edge = (VECTOR)((TYPE(E))((UPPER ? kept : kept_end) - x));
#if UPPER
        STOREV(E, WIDTH, p, 0, select((VECTOR)(0), v, lanes >= edge));
#else
        STOREV(E, WIDTH, p, 0, select((VECTOR)(0), v, lanes < edge));
#endif
      }
    }
    if (columns >= WIDTH) continue;
#endif
    for (x = empty; x < empty_end; x++) STORE(E, to + x * OUT_STEP, 0, (TYPE(E))(0));
#if COPY
    for (x = kept; x < kept_end; x++)
      STORE(E, to + x * OUT_STEP, 0, LOAD(E, from + x * IN_STEP, 0));
#endif
  }
}

/// Elements of the triangle in the rows before `row`.
static inline long before(long row, long columns, long diagonal) {
#if UPPER
  // Row r has columns - clamp(r + diagonal, 0, columns).
  const long full = clamp(-diagonal, 0l, row);                // rows that are whole
  const long partial = clamp(columns - diagonal, full, row);  // rows before the first empty one
  const long first = columns - max(full + diagonal, 0l);      // length of row `full`
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
kernel void triangle_indices(global char* out, ulong out_offset, long rows, long columns,
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
