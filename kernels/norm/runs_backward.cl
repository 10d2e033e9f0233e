// Gradients of group norm: a work-item, or a work-group of GROUP, per sample and group of channels.
//
// DX: the gradient of the input is wanted. partial is [sample][bias, weight][channel].
#include "include/item_by_item.clh"
#include "norm/rows.clh"
#ifndef DX
#define DX 1
#endif

kernel ITEM_BY_ITEM void norm_runs_backward(global const char* grad, const ulong grad_offset,
                                            global const char* x, const ulong x_offset,
                                            global const char* means, const ulong means_offset,
                                            global const char* rstds, const ulong rstds_offset,
                                            global const char* weight, const ulong weight_offset,
                                            global char* out, const ulong out_offset,
                                            global char* partial, const ulong partial_offset,
                                            const RowArguments args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint row = get_global_id(0) / GROUP;
  if (row >= args.rows) return;  // the whole group
  const uint channels = args.groups * args.runs;
  const uint channel = row % args.groups * args.runs;
  weight += weight_offset;
  grad = ROW_START(grad + grad_offset, IN, row);
  x = ROW_START(x + x_offset, IN, row);
  out = ROW_START(out + out_offset, IN, row);
  partial += partial_offset + (ulong)(row / args.groups) * 2 * channels * STORAGE_SIZE(ACC);
  const SCALAR mean = LOAD_OF(STAT, means + means_offset, row);
  const SCALAR rstd = LOAD_OF(STAT, rstds + rstds_offset, row);

  SCALAR constant_ = 0, slope = 0;
  for (uint r = 0; r < args.runs; r++) {
    const ulong start = (ulong)r * args.run * STORAGE_SIZE(IN);
    SCALAR sum = 0, product = 0;
    stretch_products(grad + start, x + start, args.run, item, mean, &sum, &product);
    sum = group_sum(sum, item, SHARED);
    product = group_sum(product, item, SHARED) * rstd;
    if (item == 0) {
      STORE(ACC, partial, channel + r, sum);
      STORE(ACC, partial, channels + channel + r, product);
    }
    constant_ += WEIGHT_AT(weight, channel + r) * sum;
    slope += WEIGHT_AT(weight, channel + r) * product;
  }
#if DX
  constant_ *= rstd / args.length;
  slope *= rstd * rstd / args.length;
  for (uint r = 0; r < args.runs; r++) {
    const ulong start = (ulong)r * args.run * STORAGE_SIZE(IN);
    stretch_gradient(grad + start, x + start, out + start, args.run, item, mean,
                     rstd * WEIGHT_AT(weight, channel + r), constant_, slope);
  }
#endif
}
