// Adaptive max pooling on CPUs where the input has the width innermost: the maxima of a window's
// columns first, a vector of columns at a time, then those of the columns. As max_pool.cl's: a NaN
// is a maximum; of several, the last in the order of rows is, of other equal values the first.
//
// Compile parameters: IN, ACC (the tags stored and compared), INDEX (a signed integer as large as
// ACC), LANES (columns at a time), LINE (the longest width of the input).
#ifndef ADAPTIVE
#define ADAPTIVE 1
#endif
#ifndef INDEX
#define INDEX i32
#endif
#ifndef LANES
#define LANES 16
#endif
#ifndef LINE
#define LINE 512
#endif
#include "include/item_by_item.clh"
#include "spatial/pool.clh"

#define LOWEST_VALUE CONVERT(ACC, IN, LOWEST(IN))
#define VALUES TYPEV(ACC, LANES)
#define INDICES TYPEV(INDEX, LANES)

kernel ITEM_BY_ITEM void max_pool_adaptive(global char* out, const ulong out_offset,
                                           global const char* in, const ulong in_offset,
                                           global char* indices, const ulong indices_offset,
                                           const Arguments args, const PoolArguments pool) {
  out += out_offset;
  in += in_offset;
  indices += indices_offset;
  TYPE(INDEX) numbers[LANES];
  for (uint k = 0; k < LANES; k++) numbers[k] = k;
  const INDICES lanes = PASTE2(vload, LANES)(0, numbers);
  FOR_ROWS(start) {
    const uint first = RUN_BEGIN, end = RUN_END;
    if (first >= end) continue;
    const Window wd = WINDOW_OF(0, start.d);
    const Window wh = WINDOW_OF(1, start.h);
    const uint plane = PLANE(1, start);
    const int left = WINDOW_OF(2, first).begin;
    const int right = WINDOW_OF(2, end - 1).end;
    TYPE(ACC) column_best[LINE];
    TYPE(INDEX) column_index[LINE];
    FOR_VECTORS(x, LANES, left, right) {
      VALUES best = (VALUES)(LOWEST_VALUE);
      INDICES index =
          (INDICES)((wd.begin * (int)args.other[1] + wh.begin) * (int)args.other[2] + x) + lanes;
      for (int d = wd.begin; d < wd.end; d++) {
        for (int h = wh.begin; h < wh.end; h++) {
          const VALUES v = LOADV_AS(ACC, IN, LANES, AT(IN, in, plane + POINT(1, d, h, x)), 0);
          const INDICES take = (INDICES)((v > best) | (v != v));
          best = select(best, v, take);
          index = select(index,
                         (INDICES)((d * (int)args.other[1] + h) * (int)args.other[2] + x) + lanes,
                         take);
        }
      }
      PASTE2(vstore, LANES)(best, 0, column_best + (x - left));
      PASTE2(vstore, LANES)(index, 0, column_index + (x - left));
    }
    FOR_TOO_FEW(x, LANES, left, right) {
      TYPE(ACC) best = LOWEST_VALUE;
      int index = (wd.begin * (int)args.other[1] + wh.begin) * (int)args.other[2] + x;
      for (int d = wd.begin; d < wd.end; d++) {
        for (int h = wh.begin; h < wh.end; h++) {
          const TYPE(ACC) v = LOAD_AS(ACC, IN, in, plane + POINT(1, d, h, x));
          const bool take = v > best || v != v;
          best = take ? v : best;
          index = take ? (d * (int)args.other[1] + h) * (int)args.other[2] + x : index;
        }
      }
      column_best[x - left] = best;
      column_index[x - left] = index;
    }
    for (uint x = first; x < end; x++) {
      const Window ww = WINDOW_OF(2, x);
      TYPE(ACC) best = column_best[ww.begin - left];
      TYPE(INDEX) index = column_index[ww.begin - left];
      for (int w = ww.begin + 1 - left; w < ww.end - left; w++) {
        const TYPE(ACC) v = column_best[w];
        const TYPE(INDEX) at = column_index[w];
        const bool later = at > index, is_nan = v != v;
        const bool take = v > best || (v == best && !later) || (is_nan && (best == best || later));
        best = take ? v : best;
        index = take ? at : index;
      }
      const Place p = PLACE(start, x);
      STORE_FROM(IN, ACC, out, ELEMENT(0, p), best);
      STORE_FROM(i64, INDEX, indices, ELEMENT(2, p), index);
    }
  }
}
