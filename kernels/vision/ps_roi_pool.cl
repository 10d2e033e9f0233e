// Position-sensitive RoIPool: the mean of each bin of a box, in the channel that is for the bin.
//
// Compile parameters: those of boxes.clh; SCATTER defined for ps_roi_pool_scatter. Gradients are
// summed in ACC.
#include "include/item_by_item.clh"
#include "vision/windows.clh"
#ifdef SCATTER
#include "include/atomics.clh"
#define ADD(p, i, v) ATOMIC(add, ACC)((p) + (ulong)(i) * STORAGE_SIZE(ACC), v)
#else
#define ADD(p, i, v) ((global SCALAR*)(p))[i] += (v)
#endif

/// Both windows of a bin. Upstream's results leave out the last row and column of an image, and its
/// gradients don't: `limit` is 1 or 0.
#define WINDOWS(box, ph, pw, args, limit)                                            \
  const Window y = window_of((box).y1, (box).y2, scale, 0, ph, (args).pooled_height, \
                             (int)(args).height - (limit));                          \
  const Window x = window_of((box).x1, (box).x2, scale, 0, pw, (args).pooled_width,  \
                             (int)(args).width - (limit));                           \
  const bool empty = y.end <= y.begin || x.end <= x.begin;                           \
  const SCALAR area = (SCALAR)((y.end - y.begin) * (x.end - x.begin))

/// Global size: boxes * pooled_channels * pooled_height * pooled_width, or more. `mapping` gets
/// each result's channel of the input.
kernel ITEM_BY_ITEM void ps_roi_pool(global char* out, const ulong out_offset,
                                     global const char* in, const ulong in_offset,
                                     global const char* boxes, const ulong boxes_offset,
                                     global char* mapping, const ulong mapping_offset,
                                     const BoxArguments args, const SCALAR scale,
                                     global int* asserts, const uint site) {
  in += in_offset;
  const uint i = get_global_id(0);
  const Bin bin = bin_of(i, args.pooled_channels, args.pooled_height, args.pooled_width);
  if (bin.n >= args.boxes) return;
  const Box box = load_box(boxes + boxes_offset, bin.n);
  const int image = image_of(box.image, args.batch, asserts, site);
  const uint channel = (bin.c * args.pooled_height + bin.ph) * args.pooled_width + bin.pw;
  WINDOWS(box, bin.ph, bin.pw, args, 1);
  SCALAR sum = 0;
  if (image >= 0 && !empty) {
    const uint plane = ((uint)image * args.channels + channel) * args.height * args.width;
    for (int h = y.begin; h < y.end; h++) {
      for (int w = x.begin; w < x.end; w++) {
        sum += LOAD_AS(ACC, IN, in, plane + (uint)(h * (int)args.width + w));
      }
    }
  }
  STORE_FROM(IN, ACC, out + out_offset, i, empty ? (SCALAR)(0) : sum / area);
  ((global int*)(mapping + mapping_offset))[i] = (int)channel;
}

/// Adds a bin's gradient to a plane.
static inline void add_bin(global char* sums, uint plane, uint width, Window y, Window x,
                           SCALAR each) {
  for (int h = y.begin; h < y.end; h++) {
    for (int w = x.begin; w < x.end; w++) ADD(sums, plane + (uint)h * width + (uint)w, each);
  }
}

#ifdef SCATTER
/// A work-item for each element of `grad`. The sums' last bits vary.
kernel void ps_roi_pool_scatter(global char* sums, const ulong sums_offset, global const char* grad,
                                const ulong grad_offset, global const char* boxes,
                                const ulong boxes_offset, const BoxArguments args,
                                const SCALAR scale, global int* asserts, const uint site) {
  const uint i = get_global_id(0);
  const Bin bin = bin_of(i, args.pooled_channels, args.pooled_height, args.pooled_width);
  if (bin.n >= args.boxes) return;
  const Box box = load_box(boxes + boxes_offset, bin.n);
  const int image = image_of(box.image, args.batch, asserts, site);
  const uint channel = (bin.c * args.pooled_height + bin.ph) * args.pooled_width + bin.pw;
  WINDOWS(box, bin.ph, bin.pw, args, 0);
  if (image < 0 || empty) return;
  add_bin(sums + sums_offset, ((uint)image * args.channels + channel) * args.height * args.width,
          args.width, y, x, LOAD_AS(ACC, IN, grad + grad_offset, i) / area);
}
#endif

/// A work-item for each plane of the input goes through the boxes in their order, as the CPU does.
/// Global size: batch * channels, or more.
kernel ITEM_BY_ITEM void ps_roi_pool_planes(global char* sums, const ulong sums_offset,
                                            global const char* grad, const ulong grad_offset,
                                            global const char* boxes, const ulong boxes_offset,
                                            const BoxArguments args, const SCALAR scale,
                                            global int* asserts, const uint site) {
  const uint i = get_global_id(0);
  const uint channel = i % args.channels, own = i / args.channels;
  if (own >= args.batch) return;
  const uint bins = args.pooled_height * args.pooled_width, place = channel % bins;
  for (uint n = 0; n < args.boxes; n++) {
    const Box box = load_box(boxes + boxes_offset, n);
    if (image_of(box.image, args.batch, asserts, site) != (int)own) continue;
    WINDOWS(box, place / args.pooled_width, place % args.pooled_width, args, 0);
    if (empty) continue;
    add_bin(sums + sums_offset, i * args.height * args.width, args.width, y, x,
            LOAD_AS(ACC, IN, grad + grad_offset, n * args.pooled_channels * bins + channel) / area);
  }
}
