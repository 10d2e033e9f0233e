// The product of two sparse matrices row by row (Gustavson): a work-item sums a row's products in a
// workspace of its own that has all columns, and a bit for each that says whether it has a sum.
//
// On CPUs: workspaces of as many work-items as GPUs have would be too large. First counted() says
// how many entries rows have, then summed() writes them. A row's products are added in the order of
// the first matrix's entries.
//
// Compile parameters: E (tag of the values), C (computed with), I (tag of indices).
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#ifndef I
#define I i64
#endif
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "sparse/arguments.clh"
#include "sparse/arithmetic.clh"

#define INDEX(p, i) LOAD_AS(i64, I, p##_base + p##_offset, i)
#define OPERAND(name) global const char *name##_base, const ulong name##_offset
// Both matrices' offsets of rows and columns of entries, and a bit for each column and work-item,
// all of which are 0 before and after.
#define MATRICES                                                            \
  OPERAND(a_rows), OPERAND(a_columns), OPERAND(b_rows), OPERAND(b_columns), \
      global char *seen_base, const ulong seen_offset
#define FIND_ROWS                                                                                \
  const ulong first = get_global_id(0) * args.span, last = min(first + args.span, args.rows);    \
  global ulong* seen = (global ulong*)(seen_base + seen_offset) + get_global_id(0) * args.words; \
  if (first >= args.rows) return;

/// counts[row] = entries of the row. A work-item for `span` rows.
kernel ITEM_BY_ITEM void counted(MATRICES, global char* counts_base, const ulong counts_offset,
                                 const RowsByRowsArguments args) {
  FIND_ROWS;
  for (ulong row = first; row < last; row++) {
    ulong low = args.words, high = 0;
    for (long e = INDEX(a_rows, row); e < INDEX(a_rows, row + 1); e++) {
      const long inner = INDEX(a_columns, e);
      for (long f = INDEX(b_rows, inner); f < INDEX(b_rows, inner + 1); f++) {
        const ulong column = INDEX(b_columns, f);
        seen[column / 64] |= 1ul << column % 64;
        low = min(low, column / 64);
        high = max(high, column / 64 + 1);
      }
    }
    long count = 0;
    for (ulong w = low; w < high; w++) {
      count += popcount(seen[w]);
      seen[w] = 0;
    }
    ((global long*)(counts_base + counts_offset))[row] = count;
  }
}

/// The row and column of each entry, into indices [2, entries], and its value, from the offsets of
/// the result's rows. A work-item for `span` rows.
kernel ITEM_BY_ITEM void summed(MATRICES, OPERAND(a_values), OPERAND(b_values),
                                global char* sums_base, const ulong sums_offset, OPERAND(ends),
                                global char* indices_base, const ulong indices_offset,
                                global char* values_base, const ulong values_offset,
                                const RowsByRowsArguments args) {
  FIND_ROWS;
  global TYPE(C)* sums =
      (global TYPE(C)*)(sums_base + sums_offset) + get_global_id(0) * args.columns;
  global const long* ends = (global const long*)(ends_base + ends_offset);
  global long* rows = (global long*)(indices_base + indices_offset);
  global long* columns = rows + ends[args.rows - 1];
  for (ulong row = first; row < last; row++) {
    ulong low = args.words, high = 0;
    for (long e = INDEX(a_rows, row); e < INDEX(a_rows, row + 1); e++) {
      const TYPE(C) factor = LOAD_AS(C, E, a_values_base + a_values_offset, e);
      const long inner = INDEX(a_columns, e);
      for (long f = INDEX(b_rows, inner); f < INDEX(b_rows, inner + 1); f++) {
        const ulong column = INDEX(b_columns, f), bit = 1ul << column % 64;
        const TYPE(C) value = LOAD_AS(C, E, b_values_base + b_values_offset, f);
        const TYPE(C) before = seen[column / 64] & bit ? sums[column] : (TYPE(C))(0);
        sums[column] = MUL_ADD(1, value, factor, before);
        seen[column / 64] |= bit;
        low = min(low, column / 64);
        high = max(high, column / 64 + 1);
      }
    }
    long entry = row == 0 ? 0 : ends[row - 1];
    for (ulong w = low; w < high; w++) {
      for (ulong bits = seen[w]; bits != 0; bits &= bits - 1, entry++) {
        const ulong column = w * 64 + popcount((bits & -bits) - 1);
        rows[entry] = row;
        columns[entry] = column;
        STORE_FROM(E, C, values_base + values_offset, entry, sums[column]);
      }
      seen[w] = 0;
    }
  }
}
