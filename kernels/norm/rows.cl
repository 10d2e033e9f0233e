// Layer norm, RMS norm and group norm, forward: a work-item, or a work-group of GROUP, per row.
//
// RUNS: group norm, a weight per run of elements; else a weight per element.
#include "include/item_by_item.clh"
#include "norm/rows.clh"
#ifndef RUNS
#define RUNS 0
#endif
#define PIPELINED_BYTES 16384  // of a row, at most

kernel ITEM_BY_ITEM void norm_rows(global const char* x, const ulong x_offset, global char* y,
                                   const ulong y_offset, global char* means,
                                   const ulong means_offset, global char* rstds,
                                   const ulong rstds_offset, global const char* weight,
                                   const ulong weight_offset, global const char* bias,
                                   const ulong bias_offset, const SCALAR eps,
                                   const RowArguments args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  x += x_offset;
  y += y_offset;
  means += means_offset;
  rstds += rstds_offset;
  weight += weight_offset;
  bias += bias_offset;
  const uint first_row = group * args.rows_per_item;
  const uint end_row = first_row + min(args.rows_per_item, args.rows - min(first_row, args.rows));
  if (first_row >= end_row) return;
  // Software pipelining: the next row's statistics come before this row's results, which need not
  // wait then for the sums across lanes, the root and the quotient at their end. Long rows would be
  // read from memory twice.
  const bool pipelined = GROUP == 1 && args.length * STORAGE_SIZE(IN) <= PIPELINED_BYTES;
  Moments next = {0, 0};
  if (pipelined) next = row_moments(ROW_START(x, IN, first_row), args.length, item, SHARED);
  for (uint row = first_row; row < end_row; row++) {
    global const char* x_row = ROW_START(x, IN, row);
    global char* y_row = ROW_START(y, IN, row);
    Moments moments = next;
    if (!pipelined) {
      moments = row_moments(x_row, args.length, item, SHARED);
    } else if (row + 1 < end_row) {
      next = row_moments(ROW_START(x, IN, row + 1), args.length, item, SHARED);
    }
    const SCALAR mean = quiet(moments.mean);
    const SCALAR rstd = quiet(1 / sqrt(moments.m2 / args.length + eps));
    if (item == 0) {
#if !RMS
      STORE_TO(STAT, means, row, mean);
#endif
      STORE_TO(STAT, rstds, row, rstd);
    }
#if !RUNS
#define NORMAL(x) (((x) - mean) * rstd)
#if WEIGHT && BIAS
#define RESULT(x, weight, bias) fma(NORMAL(x), weight, bias)
#elif WEIGHT
#define RESULT(x, weight, bias) (NORMAL(x) * (weight))
#elif BIAS
#define RESULT(x, weight, bias) (NORMAL(x) + (bias))
#else
#define RESULT(x, weight, bias) NORMAL(x)
#endif
    const uint fetched = pipelined ? 2 * args.length : args.length;
#if PAIRS
    for (uint v = 0; v < args.length / WIDTH; v += 2) {
      PREFETCH_NEXT(x_row, v, fetched);
      VECTOR x0, x1, w0 = ZERO, w1 = ZERO, b0 = ZERO, b1 = ZERO;
      LOAD_TWO(IN, x_row, v, x0, x1);
      if (WEIGHT) LOAD_TWO(PARAM, weight, v, w0, w1);
      if (BIAS) LOAD_TWO(PARAM, bias, v, b0, b1);
      x0 = RESULT(x0, w0, b0);
      x1 = RESULT(x1, w1, b1);
      STORE_TWO(IN, y_row, v, x0, x1);
    }
#else
#define RESULT_AT(load, i) RESULT(load(IN, x_row, i), load(PARAM, weight, i), load(PARAM, bias, i))
    FOR_VECTORS(v, args.length) {
      PREFETCH_NEXT(x_row, v, fetched);
      STOREV_TO(IN, y_row, v, RESULT_AT(LOADV_OF, v));
    }
    FOR_TAIL(i, args.length) STORE_TO(IN, y_row, i, RESULT_AT(LOAD_OF, i));
#endif
#else
    const uint channel = row % args.groups * args.runs;
#if GROUP > 1
    // A run may be shorter than the group: neighbours read neighbours, whatever run they are in.
    for (uint i = item; i < args.length; i += GROUP) {
      const uint c = channel + i / args.run;
      const SCALAR scale = rstd * WEIGHT_AT(weight, c), shift = BIAS_AT(bias, c);
      STORE_TO(IN, y_row, i, NORMALIZED(LOAD_OF(IN, x_row, i)));
    }
#else
    for (uint r = 0; r < args.runs; r++) {
      const ulong start = (ulong)r * args.run * STORAGE_SIZE(IN);
      stretch_normalize(x_row + start, y_row + start, args.run, item, mean,
                        rstd * WEIGHT_AT(weight, channel + r), BIAS_AT(bias, channel + r));
    }
#endif
#endif
  }
}
