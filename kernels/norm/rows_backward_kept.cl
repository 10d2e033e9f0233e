// Gradients of layer norm and RMS norm for GPUs, where a work-group of GROUP keeps whole rows in
// registers: each row is read once, and the gradients of weight and bias are summed in registers
// over the group's rows.
//
// ROW_VECTORS: vectors of a row per work-item. DX, DPARAM: as in rows_backward.cl; partial is
// [share][bias, weight][length] too.
#ifndef GROUP
#define GROUP 64
#endif
#include "norm/rows.clh"
#ifndef DX
#define DX 1
#define DPARAM 1
#endif
#ifndef ROW_VECTORS
#define ROW_VECTORS 1
#endif
#define SCRATCH (2 * GROUP + 2 * SIDE)

// The weight, which every row needs, is in local memory if that is little: registers bound how many
// groups run at a time, and with them the bytes under way.
#define LOCAL_SCALE (GROUP * ROW_VECTORS * WIDTH * STORAGE_SIZE(ACC) <= 16384)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void norm_rows_backward_kept(
    global const char* grad_base, global const char* x_base, global const char* mean_base,
    global const char* rstd_base, global const char* weight_base, global char* out_base,
    global char* partial_base, const RowArgs args) {
  local SCALAR shared[SCRATCH];
  const uint item = get_local_id(0), vectors = args.length / WIDTH;
  const uint share = get_group_id(0);
  const uint first_row = share * args.rows_per_item;
  const uint end_row = first_row + min(args.rows_per_item, args.rows - min(first_row, args.rows));
  VECTOR bias_sum[ROW_VECTORS], weight_sum[ROW_VECTORS];
  _Pragma("unroll") for (uint j = 0; j < ROW_VECTORS; j++) bias_sum[j] = weight_sum[j] = ZERO;
#if WEIGHT
#if LOCAL_SCALE
  local VECTOR scales[GROUP * ROW_VECTORS];
#define SCALE(j) scales[item + (j) * GROUP]
#else
  VECTOR scales[ROW_VECTORS];
#define SCALE(j) scales[j]
#endif
  FOR_ROW_VECTORS(j) SCALE(j) = LOADV_OF(PARAM, weight_base + args.offset[4], item + j * GROUP);
#else
#define SCALE(j) (SCALAR)1
#endif
  for (uint row = first_row; row < end_row; row++) {
    global const char* grad = ROW_START(grad_base, 0, IN, row);
    global const char* x = ROW_START(x_base, 1, IN, row);
    VECTOR g[ROW_VECTORS], normal[ROW_VECTORS];
    _Pragma("unroll") for (uint j = 0; j < ROW_VECTORS; j++) g[j] = normal[j] = ZERO;
    FOR_ROW_VECTORS(j) {
      g[j] = LOADV_OF(IN, grad, item + j * GROUP);
      normal[j] = LOADV_OF(IN, x, item + j * GROUP);
    }
    const SCALAR rstd = LOAD_OF(STAT, rstd_base + args.offset[3], row);
#if RMS
    const SCALAR mean = 0;
#else
    const SCALAR mean = LOAD_OF(STAT, mean_base + args.offset[2], row);
#endif
    VECTOR sums = ZERO, products = ZERO;
    FOR_ROW_VECTORS(j) {
      normal[j] = (normal[j] - mean) * rstd;
#if DPARAM
      bias_sum[j] += g[j];
      weight_sum[j] += g[j] * normal[j];
#endif
      g[j] *= SCALE(j);
      sums += g[j];
      products += g[j] * normal[j];
    }
#if DX
    SCALAR constant_ = sum_lanes(sums), slope = sum_lanes(products);
    group_sums(&constant_, &slope, item, shared);
    constant_ = RMS ? 0 : constant_ / args.length;
    slope /= args.length;
    global char* out = ROW_START(out_base, 5, IN, row);
    FOR_ROW_VECTORS(j) {
      STOREV_TO(IN, out, item + j * GROUP, (g[j] - constant_ - normal[j] * slope) * rstd);
    }
#endif
  }
#if DPARAM
  global char* partial =
      partial_base + args.offset[6] + (ulong)share * 2 * args.length * STORAGE_SIZE(ACC);
  FOR_ROW_VECTORS(j) {
#if !RMS
    STOREV_TO(ACC, partial, item + j * GROUP, bias_sum[j]);
#endif
    STOREV_TO(ACC, partial + (ulong)args.length * STORAGE_SIZE(ACC), item + j * GROUP,
              weight_sum[j]);
  }
#endif
}
