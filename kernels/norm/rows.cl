// Layer norm, RMS norm and group norm, forward: a work-item, or a work-group of GROUP, per row.
//
// RUNS: group norm, a weight per run of elements; else a weight per element.
#include "include/item_by_item.clh"
#include "norm/rows.clh"
#ifndef RUNS
#define RUNS 0
#endif

kernel ITEM_BY_ITEM void norm_rows(global const char* x_base, global char* y_base,
                                   global char* mean_base, global char* rstd_base,
                                   global const char* weight_base, global const char* bias_base,
                                   const SCALAR eps, const RowArgs args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  global const char* weight = weight_base + args.offset[4];
  global const char* bias = bias_base + args.offset[5];
  const uint end_row = min((group + 1) * args.rows_per_item, args.rows);
  for (uint row = group * args.rows_per_item; row < end_row; row++) {
    global const char* x = ROW_START(x_base, 0, IN, row);
    global char* y = ROW_START(y_base, 1, IN, row);
    const Moments moments = row_moments(x, args.length, item, SHARED);
    const SCALAR mean = moments.mean;
    const SCALAR rstd = 1 / sqrt(moments.m2 / args.length + eps);
    if (item == 0) {
#if !RMS
      STORE_TO(STAT, mean_base + args.offset[2], row, mean);
#endif
      STORE_TO(STAT, rstd_base + args.offset[3], row, rstd);
    }
#if !RUNS
#if WEIGHT
#define SCALED(x, load) (((x) - mean) * rstd * load(PARAM, weight, i))
#else
#define SCALED(x, load) (((x) - mean) * rstd)
#endif
#if BIAS
#define RESULT(load) (SCALED(load(IN, x, i), load) + load(PARAM, bias, i))
#else
#define RESULT(load) SCALED(load(IN, x, i), load)
#endif
    FOR_VECTORS(i, args.length) {
      PREFETCH_NEXT(x, i, args.length);
      STOREV_TO(IN, y, i, RESULT(LOADV_OF));
    }
    FOR_TAIL(i, args.length) STORE_TO(IN, y, i, RESULT(LOAD_OF));
#else
    const uint channel = row % args.groups * args.runs;
#if GROUP > 1
    // A run may be shorter than the group: neighbours read neighbours, whatever run they are in.
    for (uint i = item; i < args.length; i += GROUP) {
      const uint c = channel + i / args.run;
      const SCALAR scale = rstd * WEIGHT_AT(weight, c), shift = BIAS_AT(bias, c);
      STORE_TO(IN, y, i, NORMALIZED(LOAD_OF(IN, x, i)));
    }
#else
    for (uint r = 0; r < args.runs; r++) {
      const ulong start = (ulong)r * args.run * STORAGE_SIZE(IN);
      stretch_normalize(x + start, y + start, args.run, item, mean,
                        rstd * WEIGHT_AT(weight, channel + r), BIAS_AT(bias, channel + r));
    }
#endif
#endif
  }
}
