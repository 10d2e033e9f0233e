// RoIPool: the largest value in each bin of a box, and where it is. The gradient goes there.
//
// Compile parameters: those of boxes.clh; SCATTER defined for roi_pool_scatter. Gradients are
// summed in ACC.
#include "include/item_by_item.clh"
#include "vision/windows.clh"
#ifdef SCATTER
#include "include/atomics.clh"
#endif

/// Global size: boxes * channels * pooled_height * pooled_width, or more. `argmax` counts in a
/// plane; it is -1 for an empty bin. A NaN is never the largest.
kernel void roi_pool(global char* out, const ulong out_offset, global const char* in,
                     const ulong in_offset, global const char* boxes, const ulong boxes_offset,
                     global char* argmax, const ulong argmax_offset, const BoxArguments args,
                     const SCALAR scale, global int* asserts, const uint site) {
  in += in_offset;
  const uint i = get_global_id(0);
  const Bin bin = bin_of(i, args.channels, args.pooled_height, args.pooled_width);
  if (bin.n >= args.boxes) return;
  const Box box = load_box(boxes + boxes_offset, bin.n);
  const int image = image_of(box.image, args.batch, asserts, site);
  const Window y =
      window_of(box.y1, box.y2, scale, 1, bin.ph, args.pooled_height, (int)args.height);
  const Window x = window_of(box.x1, box.x2, scale, 1, bin.pw, args.pooled_width, (int)args.width);
  const bool empty = image < 0 || y.end <= y.begin || x.end <= x.begin;
  const uint plane = empty ? 0 : ((uint)image * args.channels + bin.c) * args.height * args.width;
  SCALAR best = empty ? (SCALAR)(0) : (SCALAR)(-FLT_MAX);
  int where = -1;
  for (int h = y.begin; h < y.end && !empty; h++) {
    for (int w = x.begin; w < x.end; w++) {
      const int at = h * (int)args.width + w;
      const SCALAR value = LOAD_AS(ACC, IN, in, plane + (uint)at);
      if (value > best) {
        best = value;
        where = at;
      }
    }
  }
  STORE_FROM(IN, ACC, out + out_offset, i, best);
  ((global int*)(argmax + argmax_offset))[i] = where;
}

#ifdef SCATTER
/// A work-item for each element of `grad`. The sums' last bits vary.
kernel void roi_pool_scatter(global char* sums, const ulong sums_offset, global const char* grad,
                             const ulong grad_offset, global const char* boxes,
                             const ulong boxes_offset, global const char* argmax,
                             const ulong argmax_offset, const BoxArguments args,
                             global int* asserts, const uint site) {
  const uint i = get_global_id(0);
  const Bin bin = bin_of(i, args.channels, args.pooled_height, args.pooled_width);
  if (bin.n >= args.boxes) return;
  const Box box = load_box(boxes + boxes_offset, bin.n);
  const int image = image_of(box.image, args.batch, asserts, site);
  const int where = ((global const int*)(argmax + argmax_offset))[i];
  const uint pixels = args.height * args.width;
  if (image < 0 || (uint)where >= pixels) return;
  const uint to = ((uint)image * args.channels + bin.c) * pixels + (uint)where;
  ATOMIC(add, ACC)
  (sums + sums_offset + (ulong)to * STORAGE_SIZE(ACC), LOAD_AS(ACC, IN, grad + grad_offset, i));
}
#endif

/// A work-item for each plane of the input goes through the boxes in their order, as the CPU does.
/// Global size: batch * channels, or more.
kernel ITEM_BY_ITEM void roi_pool_planes(global char* sums, const ulong sums_offset,
                                         global const char* grad, const ulong grad_offset,
                                         global const char* boxes, const ulong boxes_offset,
                                         global const char* argmax, const ulong argmax_offset,
                                         const BoxArguments args, global int* asserts,
                                         const uint site) {
  grad += grad_offset;
  boxes += boxes_offset;
  const uint i = get_global_id(0);
  const uint channel = i % args.channels, own = i / args.channels;
  if (own >= args.batch) return;
  const uint bins = args.pooled_height * args.pooled_width, pixels = args.height * args.width;
  global SCALAR* plane = (global SCALAR*)(sums + sums_offset) + (ulong)i * pixels;
  for (uint n = 0; n < args.boxes; n++) {
    const SCALAR number = LOAD_AS(ACC, IN, boxes, n * 5);
    if (image_of(number, args.batch, asserts, site) != (int)own) continue;
    const uint first = (n * args.channels + channel) * bins;
    for (uint place = first; place < first + bins; place++) {
      const uint where = (uint)((global const int*)(argmax + argmax_offset))[place];
      if (where < pixels) plane[where] += LOAD_AS(ACC, IN, grad, place);
    }
  }
}
