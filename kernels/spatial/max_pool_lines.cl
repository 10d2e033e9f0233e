// Max pooling on CPUs by windows of a fixed size where all operands have the width innermost: the
// lanes of a vector are outputs next to each other. As max_pool.cl's: a NaN is a maximum; of
// several, the last is.
//
// Compile parameters: IN, ACC (the tags stored and compared), INDEX (a signed integer as large as
// ACC), LINE (lanes, 8 or 16), STEP (the windows' distance if it is 1 or 2, else 0), POSITIONS (0:
// only the maxima).
#ifndef INDEX
#define INDEX i32
#endif
#ifndef LINE
#define LINE 8
#endif
#ifndef STEP
#define STEP 2
#endif
#ifndef POSITIONS
#define POSITIONS 1
#endif
#include "include/item_by_item.clh"
#include "spatial/pool.clh"

#define LOWEST_VALUE CONVERT(ACC, IN, LOWEST(IN))
#define LINE_VALUES TYPEV(ACC, LINE)
#define LINE_INDICES TYPEV(INDEX, LINE)
#if POSITIONS
#define INDICES_PARAMETER global char *indices, const ulong indices_offset,
#else
#define INDICES_PARAMETER
#endif

// Every `step`-th of a line's values.
static inline LINE_VALUES line_values(global const char* line, uint step) {
#if STEP == 1
  return LOADV_AS(ACC, IN, LINE, line, 0);
#elif STEP == 2
  // The second vector ends with the last value that is needed.
  LINE_VALUES values;
  values.lo = LOADV_AS(ACC, IN, LINE, line, 0).even;
  values.hi = LOADV_AS(ACC, IN, LINE, line + (LINE - 1) * STORAGE_SIZE(IN), 0).odd;
  return values;
#else
  TYPE(ACC) lanes[LINE];
  for (uint k = 0; k < LINE; k++) lanes[k] = LOAD_AS(ACC, IN, line, k * step);
  return PASTE2(vload, LINE)(0, lanes);
#endif
}

/// max_pool for lanes along the width, the innermost dimension of all operands.
kernel ITEM_BY_ITEM void max_pool_lines(global char* out, const ulong out_offset,
                                        global const char* in, const ulong in_offset,
                                        INDICES_PARAMETER const Arguments args,
                                        const PoolArguments pool) {
  out += out_offset;
  in += in_offset;
#if POSITIONS
  indices += indices_offset;
#endif
  const int stride = pool.stride[2], dilation = pool.dilation[2], taps = pool.kernel_size[2];
  TYPE(INDEX) numbers[LINE];
  for (uint k = 0; k < LINE; k++) numbers[k] = k;
  const LINE_INDICES lanes = PASTE2(vload, LINE)(0, numbers) * (TYPE(INDEX))stride;
  FOR_ROWS(start) {
    const Window wd = WINDOW_OF(0, start.d);
    const Window wh = WINDOW_OF(1, start.h);
    const uint plane = PLANE(1, start);
    const uint end = RUN_END;
    for (uint next = RUN_BEGIN; next < end; next += LINE) {
      // The last vector overlaps the one before rather than leaving a tail.
      const uint x = next + LINE > end && end >= LINE ? end - LINE : next;
      const int from = (int)x * stride - pool.pad[2];
      if (x + LINE <= end && from >= 0 &&
          from + (LINE - 1) * stride + (taps - 1) * dilation < (int)args.other[2]) {
        LINE_VALUES best = (LINE_VALUES)(LOWEST_VALUE);
        LINE_INDICES index =
            (LINE_INDICES)((wd.begin * (int)args.other[1] + wh.begin) * (int)args.other[2] + from) +
            lanes;
        for (int d = wd.begin; d < wd.end; d += pool.dilation[0]) {
          for (int h = wh.begin; h < wh.end; h += pool.dilation[1]) {
            const int line = (d * (int)args.other[1] + h) * (int)args.other[2];
            for (int tap = 0; tap < taps; tap++) {
              const int w = from + tap * dilation;
              const LINE_VALUES v = line_values(AT(IN, in, plane + POINT(1, d, h, w)), stride);
              const LINE_INDICES take = (LINE_INDICES)((v > best) | (v != v));
              best = select(best, v, take);
              index = select(index, (LINE_INDICES)(line + w) + lanes, take);
            }
          }
        }
        const Place p = PLACE(start, x);
        STOREV_FROM(IN, ACC, LINE, AT(IN, out, ELEMENT(0, p)), 0, best);
#if POSITIONS
        STOREV_FROM(i64, INDEX, LINE, AT(i64, indices, ELEMENT(2, p)), 0, index);
#endif
        continue;
      }
      for (uint each = x; each < min(x + LINE, end); each++) {
        const Place p = PLACE(start, each);
        const Window ww = WINDOW_OF(2, p.w);
        TYPE(ACC) best = LOWEST_VALUE;
        int index = (wd.begin * (int)args.other[1] + wh.begin) * (int)args.other[2] + ww.begin;
        for (int d = wd.begin; d < wd.end; d += pool.dilation[0]) {
          for (int h = wh.begin; h < wh.end; h += pool.dilation[1]) {
            const int line = (d * (int)args.other[1] + h) * (int)args.other[2];
            for (int w = ww.begin; w < ww.end; w += dilation) {
              const TYPE(ACC) v = LOAD_AS(ACC, IN, in, plane + POINT(1, d, h, w));
              const bool take = v > best || v != v;
              best = take ? v : best;
              index = take ? line + w : index;
            }
          }
        }
        STORE_FROM(IN, ACC, out, ELEMENT(0, p), best);
#if POSITIONS
        STORE_FROM(i64, i32, indices, ELEMENT(2, p), index);
#endif
      }
    }
  }
}
