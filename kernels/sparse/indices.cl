// Row numbers of a sparse matrix's entries as offsets of its rows and the reverse, and the check of
// compressed indices.
//
// Compile parameters: I (tag of the indices read), OUT (tag of those written).
#ifndef I
#define I i64
#endif
#ifndef OUT
#define OUT i64
#endif
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "sparse/arguments.clh"
#include "sparse/rows.clh"

/// offsets[r] = entries of rows before r, from the entries' rows in ascending order, of which there
/// is at least one. A work-item for `span` of entries + 1 gaps between rows.
kernel ITEM_BY_ITEM void rows_compress(global const char* rows, const ulong rows_offset,
                                       global char* offsets, const ulong offsets_offset,
                                       const IndexArguments args) {
  rows += rows_offset;
  offsets += offsets_offset;
  const ulong first = get_global_id(0) * args.span;
  if (first > args.entries) return;
  const ulong last = min(first + args.span, args.entries + 1);
  const long start = first == 0 ? -1 : LOAD_AS(i64, I, rows, first - 1);
  long row = last > args.entries ? (long)args.rows : LOAD_AS(i64, I, rows, last - 1);
  // From the end on, so that all of a row's entries are stored and its first one stays: whether a
  // row begins would be a branch that can't be foreseen. Bad rows stay within the offsets.
  for (ulong p = last; p-- > first;) {
    const long before = p == first ? start : LOAD_AS(i64, I, rows, p - 1);
    if (row > start && (ulong)row <= args.rows) STORE_FROM(OUT, i64, offsets, row, (long)p);
    // Rows without entries.
    for (long r = max(before, -1l) + 1; r < min(row, (long)args.rows + 1); r++) {
      STORE_FROM(OUT, i64, offsets, r, (long)p);
    }
    row = before;
  }
}

/// rows[p] = the row of entry p. A work-item for `span` entries. The matrices of a batch have
/// offsets one after the other, and as many entries each.
kernel ITEM_BY_ITEM void rows_expand(global const char* offsets, const ulong offsets_offset,
                                     global char* rows, const ulong rows_offset,
                                     const IndexArguments args) {
  rows += rows_offset;
  ulong p = get_global_id(0) * args.span;
  if (p >= args.entries) return;
  const ulong last = min(p + args.span, args.entries);
  while (p < last) {
    const ulong matrix = p / args.per_matrix;
    const ulong start = matrix * args.per_matrix;
    const ulong end = min(last, start + args.per_matrix);
    global const char* own = offsets + offsets_offset + matrix * (args.rows + 1) * STORAGE_SIZE(I);
    ulong row = ROW_OF(own, args.rows, p - start);
    for (; p < end; p++) {
      while (row + 1 < args.rows && LOAD_AS(i64, I, own, row + 1) <= (long)(p - start)) row++;
      STORE_FROM(OUT, i64, rows, p, (long)row);
    }
  }
}

/// failed |= a bit for each rule that the indices of a row break: 1 offsets start at 0; 2 they end
/// with the number of entries; 4 a row has between none and `columns`; 8 columns are within bounds;
/// 16 a row's columns ascend. One work-item per row of all matrices.
kernel void indices_check(global const char* offsets, const ulong offsets_offset,
                          global const char* columns, const ulong columns_offset,
                          global char* failed, const ulong failed_offset,
                          const CheckArguments args) {
  const ulong item = get_global_id(0);
  const ulong lines = max(args.rows, 1ul);
  if (item >= args.matrices * lines) return;
  const ulong matrix = item / lines, row = item - matrix * lines;
  offsets += offsets_offset + matrix * (args.rows + 1) * STORAGE_SIZE(I);
  columns += columns_offset + matrix * args.per_matrix * STORAGE_SIZE(I);
  const long entries = (long)args.per_matrix;
  int broken = 0;
  if (row == 0) {
    if (LOAD_AS(i64, I, offsets, 0) != 0) broken |= 1;
    if (LOAD_AS(i64, I, offsets, args.rows) != entries) broken |= 2;
  }
  if (args.rows != 0) {
    const long begin = LOAD_AS(i64, I, offsets, row), end = LOAD_AS(i64, I, offsets, row + 1);
    if (end < begin || end - begin > (long)args.columns) broken |= 4;
    for (long p = clamp(begin, 0l, entries); p < clamp(end, 0l, entries); p++) {
      const long column = LOAD_AS(i64, I, columns, p);
      if (column < 0 || column >= (long)args.columns) broken |= 8;
      if (p > begin && LOAD_AS(i64, I, columns, p - 1) >= column) broken |= 16;
    }
  }
  if (broken != 0) atomic_or((volatile global int*)(failed + failed_offset), broken);
}
