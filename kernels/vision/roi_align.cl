// RoIAlign and its gradient: the mean of samples of each bin of a box. With POSITION_SENSITIVE each
// channel of the input is for one bin.
//
// Compile parameters: those of boxes.clh; POSITION_SENSITIVE (or absent); CHANNELS (that a
// work-item of roi_align takes, a divisor of all of them); SCATTER defined for roi_align_scatter.
// Gradients are summed in ACC.
#include "include/item_by_item.clh"
#include "vision/samples.clh"
#ifdef SCATTER
#include "include/atomics.clh"
#define ADD(p, i, v) ATOMIC(add, ACC)((p) + (ulong)(i) * STORAGE_SIZE(ACC), v)
#else
#define ADD(p, i, v) ((global SCALAR*)(p))[i] += (v)
#endif

#ifndef CHANNELS
#define CHANNELS 1
#endif

/// Global size: boxes * pooled_channels / CHANNELS * pooled_height * pooled_width, or more.
/// `mapping` gets each result's channel of the input, if POSITION_SENSITIVE.
kernel ITEM_BY_ITEM void roi_align(global char* out, const ulong out_offset, global const char* in,
                                   const ulong in_offset, global const char* boxes,
                                   const ulong boxes_offset, global char* mapping,
                                   const ulong mapping_offset, const BoxArguments args,
                                   const SCALAR scale, global int* asserts, const uint site) {
  out += out_offset;
  in += in_offset;
  boxes += boxes_offset;
  const uint bins = args.pooled_height * args.pooled_width;
  const Bin bin = bin_of(get_global_id(0), args.pooled_channels / CHANNELS, args.pooled_height,
                         args.pooled_width);
  if (bin.n >= args.boxes) return;
  const uint place = bin.ph * args.pooled_width + bin.pw;
  const uint to = (bin.n * args.pooled_channels + bin.c * CHANNELS) * bins + place;
#ifdef POSITION_SENSITIVE
  const uint channel = bin.c * bins + place;
  ((global int*)(mapping + mapping_offset))[to] = (int)channel;
#else
  const uint channel = bin.c * CHANNELS;
#endif
  const Box box = load_box(boxes, bin.n);
  const int image = image_of(box.image, args.batch, asserts, site);
  SCALAR sum[CHANNELS];
  for (int c = 0; c < CHANNELS; c++) sum[c] = 0;
  const Grid grid = GRID_OF(box, args, scale);
  const uint pixels = args.height * args.width;
  const uint plane = ((uint)max(image, 0) * args.channels + channel) * pixels;
  const Samples along_y = samples_of(grid.y, bin.ph, args.height);
  const Samples along_x = samples_of(grid.x, bin.pw, args.width);
  for (int iy = along_y.first; iy < along_y.end; iy++) {
    const Pixels y = pixels_at(SAMPLE(along_y, iy, grid.y), args.height);
    if (!y.inside || image < 0) continue;
    const uint low = plane + y.low * args.width, high = plane + y.high * args.width;
    for (int ix = along_x.first; ix < along_x.end; ix++) {
      const Pixels x = pixels_at(SAMPLE(along_x, ix, grid.x), args.width);
      if (!x.inside) continue;
      const SCALAR hy = 1 - y.part, hx = 1 - x.part;
      const SCALAR w1 = hy * hx, w2 = hy * x.part, w3 = y.part * hx, w4 = y.part * x.part;
      for (int c = 0; c < CHANNELS; c++) {
        const uint at = c * pixels;
        sum[c] += w1 * LOAD_AS(ACC, IN, in, low + x.low + at) +
                  w2 * LOAD_AS(ACC, IN, in, low + x.high + at) +
                  w3 * LOAD_AS(ACC, IN, in, high + x.low + at) +
                  w4 * LOAD_AS(ACC, IN, in, high + x.high + at);
      }
    }
  }
  for (int c = 0; c < CHANNELS; c++) STORE_FROM(IN, ACC, out, to + c * bins, sum[c] / grid.count);
}

/// Adds a bin's gradient to a plane.
static inline void add_bin(global char* sums, uint plane, uint height, uint width, Grid grid,
                           uint ph, uint pw, SCALAR grad) {
  const Samples along_y = samples_of(grid.y, ph, height);
  const Samples along_x = samples_of(grid.x, pw, width);
  for (int iy = along_y.first; iy < along_y.end; iy++) {
    const Pixels y = pixels_at(SAMPLE(along_y, iy, grid.y), height);
    if (!y.inside) continue;
    const uint low = plane + y.low * width, high = plane + y.high * width;
    for (int ix = along_x.first; ix < along_x.end; ix++) {
      const Pixels x = pixels_at(SAMPLE(along_x, ix, grid.x), width);
      if (!x.inside) continue;
      const SCALAR hy = 1 - y.part, hx = 1 - x.part;
      ADD(sums, low + x.low, grad * (hy * hx) / grid.count);
      ADD(sums, low + x.high, grad * (hy * x.part) / grid.count);
      ADD(sums, high + x.low, grad * (y.part * hx) / grid.count);
      ADD(sums, high + x.high, grad * (y.part * x.part) / grid.count);
    }
  }
}

#ifdef SCATTER
/// A work-item for each element of `grad`. The sums' last bits vary.
kernel void roi_align_scatter(global char* sums, const ulong sums_offset, global const char* grad,
                              const ulong grad_offset, global const char* boxes,
                              const ulong boxes_offset, const BoxArguments args, const SCALAR scale,
                              global int* asserts, const uint site) {
  const uint i = get_global_id(0);
  const Bin bin = bin_of(i, args.pooled_channels, args.pooled_height, args.pooled_width);
  if (bin.n >= args.boxes) return;
  const Box box = load_box(boxes + boxes_offset, bin.n);
  const int image = image_of(box.image, args.batch, asserts, site);
  if (image < 0) return;
#ifdef POSITION_SENSITIVE
  const uint channel = (bin.c * args.pooled_height + bin.ph) * args.pooled_width + bin.pw;
#else
  const uint channel = bin.c;
#endif
  add_bin(sums + sums_offset, ((uint)image * args.channels + channel) * args.height * args.width,
          args.height, args.width, GRID_OF(box, args, scale), bin.ph, bin.pw,
          LOAD_AS(ACC, IN, grad + grad_offset, i));
}
#endif

/// A work-item for each plane of the input goes through the boxes in their order, as the CPU does.
/// Global size: batch * channels, or more.
kernel ITEM_BY_ITEM void roi_align_planes(global char* sums, const ulong sums_offset,
                                          global const char* grad, const ulong grad_offset,
                                          global const char* boxes, const ulong boxes_offset,
                                          const BoxArguments args, const SCALAR scale,
                                          global int* asserts, const uint site) {
  sums += sums_offset;
  grad += grad_offset;
  boxes += boxes_offset;
  const uint i = get_global_id(0);
  const uint channel = i % args.channels, own = i / args.channels;
  if (own >= args.batch) return;
  const uint bins = args.pooled_height * args.pooled_width;
  const uint plane = i * args.height * args.width;
  for (uint n = 0; n < args.boxes; n++) {
    const Box box = load_box(boxes, n);
    if (image_of(box.image, args.batch, asserts, site) != (int)own) continue;
    const Grid grid = GRID_OF(box, args, scale);
#ifdef POSITION_SENSITIVE
    const uint place = channel % bins;
    add_bin(sums, plane, args.height, args.width, grid, place / args.pooled_width,
            place % args.pooled_width,
            LOAD_AS(ACC, IN, grad, n * args.pooled_channels * bins + channel));
#else
    for (uint place = 0; place < bins; place++) {
      add_bin(sums, plane, args.height, args.width, grid, place / args.pooled_width,
              place % args.pooled_width,
              LOAD_AS(ACC, IN, grad, (n * args.channels + channel) * bins + place));
    }
#endif
  }
}
