// Layer norm, RMS norm and group norm, forward: a work-item, or a work-group of GROUP, per row.
//
// RUNS: group norm, a weight per run of elements; else a weight per element. KEPT: vectors of a row that each
// work-item keeps in registers, where that is all of the row; 0: rows are read again.
#include "include/item_by_item.clh"
#include "norm/rows.clh"
#ifndef RUNS
#define RUNS 0
#endif
#if !defined(KEPT) || WIDTH == 1  // single elements aren't worth it
#undef KEPT
#define KEPT 0
#endif

#if KEPT
// A whole row, read once. Weight and bias are on their way while the row is summed.
static inline void kept_row(global const char* x, global char* y, global const char* weight,
                            global const char* bias, uint length, uint item, SCALAR eps,
                            SCALAR* mean_of, SCALAR* rstd_of, local SCALAR* shared) {
  const uint vectors = length / WIDTH;
  VECTOR row[KEPT], scale[KEPT], shift[KEPT];
  FOR_KEPT(j) row[j] = LOADV_OF(IN, x, item + j * GROUP);
#if WEIGHT
  FOR_KEPT(j) scale[j] = LOADV_OF(PARAM, weight, item + j * GROUP);
#endif
#if BIAS
  FOR_KEPT(j) shift[j] = LOADV_OF(PARAM, bias, item + j * GROUP);
#endif
  VECTOR sum = ZERO, squares = ZERO;
#if RMS
  const SCALAR mean = 0;
#else
  FOR_KEPT(j) sum += row[j];
  const SCALAR mean = group_sum(sum_lanes(sum), item, shared) / length;
#endif
  FOR_KEPT(j) {
    row[j] -= mean;
    squares += row[j] * row[j];
  }
  const SCALAR m2 = group_sum(sum_lanes(squares), item, shared);
  const SCALAR rstd = 1 / sqrt(m2 / length + eps);
  FOR_KEPT(j) {
    VECTOR result = row[j] * rstd;
#if WEIGHT
    result *= scale[j];
#endif
#if BIAS
    result += shift[j];
#endif
    STOREV_TO(IN, y, item + j * GROUP, result);
  }
  *mean_of = mean;
  *rstd_of = rstd;
}
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
#if KEPT
    SCALAR mean, rstd;
    kept_row(x, y, weight, bias, args.length, item, eps, &mean, &rstd, SHARED);
#else
    const Moments moments = row_moments(x, args.length, item, SHARED);
    const SCALAR mean = moments.mean;
    const SCALAR rstd = 1 / sqrt(moments.m2 / args.length + eps);
#endif
    if (item == 0) {
#if !RMS
      STORE_TO(STAT, mean_base + args.offset[2], row, mean);
#endif
      STORE_TO(STAT, rstd_base + args.offset[3], row, rstd);
    }
#if KEPT
    // The results are stored.
#elif !RUNS
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
