// Softmax along a contiguous dimension for GPUs, rows in registers: a work-group of GROUP shares a
// row, which is read once.
//
// ROW_VECTORS: of a row, at most, to a work-item. Rows are whole vectors.
#ifndef ROW_VECTORS
#define ROW_VECTORS 1
#define GROUP 32
#endif
#include "softmax/softmax.clh"

kernel void softmax_rows_registers(global const char* in, const ulong in_offset, global char* out,
                                   const ulong out_offset, const Arguments args) {
  DECLARE_SHARED;
  const uint item = get_local_id(0), vectors = args.length / WIDTH;
  const ulong first = (ulong)get_group_id(0) * args.length;
  in += in_offset + first * STORAGE_SIZE(IN);
  out += out_offset + first * STORAGE_SIZE(OUT);
  VECTOR row[ROW_VECTORS];
  FOR_ROW_VECTORS(j) row[j] = LOADV_OF(IN, in, item + j * GROUP);
  VECTOR m = (VECTOR)(LOWEST(ACC));
  FOR_ROW_VECTORS(j) m = LARGER(row[j], m);
  const SCALAR largest = group_max(max_lanes(m), item, SHARED);
  VECTOR total = (VECTOR)(0);
  FOR_ROW_VECTORS(j) {
    row[j] -= largest;
    const VECTOR e = exp(row[j]);
#if !LOG
    row[j] = e;
#endif
    total += e;
  }
  const SCALAR sum = group_sum(sum_lanes(total), item, SHARED);
#if LOG
  const SCALAR log_sum = log(sum);
  FOR_ROW_VECTORS(j) STOREV_FROM(OUT, ACC, WIDTH, out, item + j * GROUP, row[j] - log_sum);
#else
  const SCALAR scale = 1 / sum;
  FOR_ROW_VECTORS(j) STOREV_FROM(OUT, ACC, WIDTH, out, item + j * GROUP, row[j] * scale);
#endif
}

// grad: the gradient of the result; result: what softmax_rows_registers gave.
kernel void softmax_rows_registers_backward(global const char* grad, const ulong grad_offset,
                                            global const char* result, const ulong result_offset,
                                            global char* out, const ulong out_offset,
                                            const Arguments args) {
  DECLARE_SHARED;
  const uint item = get_local_id(0), vectors = args.length / WIDTH;
  const ulong first = (ulong)get_group_id(0) * args.length;
  grad += grad_offset + first * STORAGE_SIZE(GRAD);
  result += result_offset + first * STORAGE_SIZE(IN);
  out += out_offset + first * STORAGE_SIZE(OUT);
  VECTOR g[ROW_VECTORS], y[ROW_VECTORS], total = (VECTOR)(0);
  FOR_ROW_VECTORS(j) {
    g[j] = LOADV_OF(GRAD, grad, item + j * GROUP);
    y[j] = LOADV_OF(IN, result, item + j * GROUP);
  }
  FOR_ROW_VECTORS(j) total += TERM(g[j], y[j]);
  const SCALAR sum = group_sum(sum_lanes(total), item, SHARED);
  FOR_ROW_VECTORS(j) {
    STOREV_FROM(OUT, ACC, WIDTH, out, item + j * GROUP, GRAD_INPUT(SUFFIX(WIDTH), g[j], y[j]));
  }
}
