// Gradients of layer norm and RMS norm for GPUs, rows in registers: a work-group of GROUP reads
// each row once, and sums the gradients of weight and bias in registers over its rows.
//
// ROW_VECTORS: of a row, at most, to a work-item. DX, DPARAM: as in rows_backward.cl; partial is
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
#define SHARED_SIZE (2 * GROUP + 2 * SIDE)

// The weight, which every row needs, is in local memory if that is little: registers bound how many
// groups run at a time, and with them the bytes under way.
#define LOCAL_SCALE (GROUP * ROW_VECTORS * WIDTH * STORAGE_SIZE(ACC) <= 16384)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void norm_rows_registers_backward(
    global const char* grad, const ulong grad_offset, global const char* x, const ulong x_offset,
    global const char* means, const ulong means_offset, global const char* rstds,
    const ulong rstds_offset, global const char* weight, const ulong weight_offset,
    global char* out, const ulong out_offset, global char* partial, const ulong partial_offset,
    const RowArguments args) {
  local SCALAR shared[SHARED_SIZE];
  grad += grad_offset;
  x += x_offset;
  means += means_offset;
  rstds += rstds_offset;
  weight += weight_offset;
  out += out_offset;
  partial += partial_offset;
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
  FOR_ROW_VECTORS(j) SCALE(j) = LOADV_OF(PARAM, weight, item + j * GROUP);
#else
#define SCALE(j) (SCALAR)1
#endif
  for (uint row = first_row; row < end_row; row++) {
    global const char* grad_row = ROW_START(grad, IN, row);
    global const char* x_row = ROW_START(x, IN, row);
    VECTOR g[ROW_VECTORS], normal[ROW_VECTORS];
    _Pragma("unroll") for (uint j = 0; j < ROW_VECTORS; j++) g[j] = normal[j] = ZERO;
    FOR_ROW_VECTORS(j) {
      g[j] = LOADV_OF(IN, grad_row, item + j * GROUP);
      normal[j] = LOADV_OF(IN, x_row, item + j * GROUP);
    }
    const SCALAR rstd = LOAD_OF(STAT, rstds, row);
#if RMS
    const SCALAR mean = 0;
#else
    const SCALAR mean = LOAD_OF(STAT, means, row);
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
    global char* out_row = ROW_START(out, IN, row);
    FOR_ROW_VECTORS(j) {
      STOREV_TO(IN, out_row, item + j * GROUP, (g[j] - constant_ - normal[j] * slope) * rstd);
    }
#endif
  }
#if DPARAM
  partial += (ulong)share * 2 * args.length * STORAGE_SIZE(ACC);
  FOR_ROW_VECTORS(j) {
#if !RMS
    STOREV_TO(ACC, partial, item + j * GROUP, bias_sum[j]);
#endif
    STOREV_TO(ACC, partial + (ulong)args.length * STORAGE_SIZE(ACC), item + j * GROUP,
              weight_sum[j]);
  }
#endif
}
