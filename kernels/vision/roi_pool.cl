// RoIPool: the largest value in each bin of a box, and where it is. The gradient goes there.
//
// Compile parameters: those of boxes.clh; CHANNELS (that a work-item of roi_pool takes, a divisor
// of all of them); SCATTER defined for roi_pool_scatter. Gradients are summed in ACC.
#include "include/item_by_item.clh"
#include "vision/windows.clh"
#ifdef SCATTER
#include "include/atomics.clh"
#endif

#ifndef CHANNELS
#define CHANNELS 1
#endif

/// Global size: boxes * channels / CHANNELS * pooled_height * pooled_width, or more. `argmax`
/// counts in a plane; it is -1 for an empty bin. A NaN is never the largest.
kernel ITEM_BY_ITEM void roi_pool(global char* out, const ulong out_offset, global const char* in,
                                  const ulong in_offset, global const char* boxes,
                                  const ulong boxes_offset, global char* argmax,
                                  const ulong argmax_offset, const BoxArguments args,
                                  const SCALAR scale, global int* asserts, const uint site) {
  in += in_offset;
  out += out_offset;
  argmax += argmax_offset;
  const uint pooled = args.pooled_height * args.pooled_width;
  const Bin bin =
      bin_of(get_global_id(0), args.channels / CHANNELS, args.pooled_height, args.pooled_width);
  if (bin.n >= args.boxes) return;
  const Box box = load_box(boxes + boxes_offset, bin.n);
  const int image = image_of(box.image, args.batch, asserts, site);
  const Window y =
      window_of(box.y1, box.y2, scale, 1, bin.ph, args.pooled_height, (int)args.height);
  const Window x = window_of(box.x1, box.x2, scale, 1, bin.pw, args.pooled_width, (int)args.width);
  const bool empty = image < 0 || y.end <= y.begin || x.end <= x.begin;
  const uint pixels = args.height * args.width;
  uint plane = empty ? 0 : ((uint)image * args.channels + bin.c * CHANNELS) * pixels;
  uint to =
      (bin.n * args.channels + bin.c * CHANNELS) * pooled + bin.ph * args.pooled_width + bin.pw;
  for (int c = 0; c < CHANNELS; c++, plane += pixels, to += pooled) {
    SCALAR best = empty ? (SCALAR)(0) : (SCALAR)(-FLT_MAX);
    int where = -1;
    for (int h = y.begin; h < y.end && !empty; h++) {
      const int line = h * (int)args.width;
      for (int w = x.begin; w < x.end; w++) {
        const SCALAR value = LOAD_AS(ACC, IN, in, plane + (uint)(line + w));
        const bool larger = value > best;
        best = larger ? value : best;
        where = larger ? line + w : where;
      }
    }
    STORE_FROM(IN, ACC, out, to, best);
    ((global int*)argmax)[to] = where;
  }
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
