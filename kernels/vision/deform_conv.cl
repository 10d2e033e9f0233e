// Deformable convolutions: columns of samples at shifted places, and the gradients of the input,
// the shifts and the mask from those of the columns.
//
// Compile parameters: IN (tag of the tensors), ACC (that of the type computed in), MASKED (there is
// a mask), SCATTER defined for deform_scatter. The input's gradients are summed in ACC.
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "vision/arguments.clh"
#ifdef SCATTER
#include "include/atomics.clh"
#endif

#ifndef IN
#define IN f32
#endif
#ifndef ACC
#define ACC f32
#endif
#ifndef MASKED
#define MASKED 0
#endif

#define SCALAR TYPE(ACC)

/// A tap of the kernel at one position of the output, for the channels of one group of shifts.
typedef struct {
  uint b, group, tap, position;
} Tap;

static inline Tap tap_of(uint i, uint positions, uint taps, uint groups) {
  Tap t;
  t.position = i % positions;
  i /= positions;
  t.tap = i % taps;
  i /= taps;
  t.group = i % groups;
  t.b = i / groups;
  return t;
}

/// Where it reads: the pixel above and to the left of the place, and how far the place is from it.
/// A place that is no number lies outside.
typedef struct {
  int y, x;
  SCALAR dy, dx;
  bool near;    // some pixel around it is in the image
  bool inside;  // and its sample is not 0 by definition
  SCALAR mask;
} Place;

static inline Place place_of(Tap t, global const char* shifts, global const char* mask, uint taps,
                             uint positions, uint out_width, uint kernel_width, int stride_y,
                             int stride_x, int pad_y, int pad_x, int dilation_y, int dilation_x,
                             uint groups, uint height, uint width) {
  const uint index = ((t.b * groups + t.group) * taps + t.tap) * positions + t.position;
  const uint shift = ((t.b * groups + t.group) * taps + t.tap) * 2 * positions + t.position;
  const int oy = (int)(t.position / out_width), ox = (int)(t.position % out_width);
  const int ky = (int)(t.tap / kernel_width), kx = (int)(t.tap % kernel_width);
  const SCALAR y =
      (SCALAR)(oy * stride_y - pad_y + ky * dilation_y) + LOAD_AS(ACC, IN, shifts, shift);
  const SCALAR x = (SCALAR)(ox * stride_x - pad_x + kx * dilation_x) +
                   LOAD_AS(ACC, IN, shifts, shift + positions);
  Place p;
  p.near = y >= -1 && y < (SCALAR)height && x >= -1 && x < (SCALAR)width;
  p.inside = p.near && y > -1 && x > -1;
  p.y = p.near ? (int)floor(y) : 0;
  p.x = p.near ? (int)floor(x) : 0;
  p.dy = p.near ? y - (SCALAR)p.y : 0;
  p.dx = p.near ? x - (SCALAR)p.x : 0;
  p.mask = MASKED ? LOAD_AS(ACC, IN, mask, index) : (SCALAR)(1);
  return p;
}
#define PLACE_OF(t, shifts, mask, args)                                                          \
  place_of(t, shifts, mask, (args).kernel_height*(args).kernel_width,                            \
           (args).out_height*(args).out_width, (args).out_width, (args).kernel_width,            \
           (args).stride[0], (args).stride[1], (args).pad[0], (args).pad[1], (args).dilation[0], \
           (args).dilation[1], (args).offset_groups, (args).height, (args).width)

/// Which of the four pixels are in the image: bits 0 to 3, row by row.
static inline uint corners_of(Place p, uint height, uint width) {
  const bool top = p.y >= 0, bottom = p.y + 1 < (int)height;
  const bool left = p.x >= 0, right = p.x + 1 < (int)width;
  return (top && left ? 1u : 0) | (top && right ? 2u : 0) | (bottom && left ? 4u : 0) |
         (bottom && right ? 8u : 0);
}

/// The offset of the place's first pixel in a plane. It may be negative.
#define FIRST_PIXEL(p, width) ((p).y * (int)(width) + (p).x)

/// The four pixels' values, 0 outside of the image.
#define LOAD_CORNERS(in, plane, p, corners, width)                                             \
  const int first_ = FIRST_PIXEL(p, width) + (int)(plane);                                     \
  const SCALAR v1 = (corners) & 1 ? LOAD_AS(ACC, IN, in, first_) : (SCALAR)(0);                \
  const SCALAR v2 = (corners) & 2 ? LOAD_AS(ACC, IN, in, first_ + 1) : (SCALAR)(0);            \
  const SCALAR v3 = (corners) & 4 ? LOAD_AS(ACC, IN, in, first_ + (int)(width)) : (SCALAR)(0); \
  const SCALAR v4 = (corners) & 8 ? LOAD_AS(ACC, IN, in, first_ + (int)(width) + 1) : (SCALAR)(0)

/// Global size: batch * groups * taps * positions by the spans of a group's channels, or more.
kernel void deform_im2col(global char* columns, const ulong columns_offset, global const char* in,
                          const ulong in_offset, global const char* shifts,
                          const ulong shifts_offset, global const char* mask,
                          const ulong mask_offset, const DeformArguments args) {
  columns += columns_offset;
  in += in_offset;
  const uint positions = args.out_height * args.out_width;
  const uint taps = args.kernel_height * args.kernel_width;
  const Tap t = tap_of(get_global_id(0), positions, taps, args.offset_groups);
  if (t.b >= args.batch) return;
  const uint channels = args.channels / args.offset_groups;
  const uint begin = (uint)get_global_id(1) * args.span, end = min(begin + args.span, channels);
  const Place p = PLACE_OF(t, shifts + shifts_offset, mask + mask_offset, args);
  const uint corners = p.inside ? corners_of(p, args.height, args.width) : 0;
  const SCALAR hy = 1 - p.dy, hx = 1 - p.dx;
  const SCALAR w1 = hy * hx, w2 = hy * p.dx, w3 = p.dy * hx, w4 = p.dy * p.dx;
  for (uint c = begin; c < end; c++) {
    const uint channel = t.b * args.channels + t.group * channels + c;
    LOAD_CORNERS(in, channel * args.height * args.width, p, corners, args.width);
    const SCALAR value = w1 * v1 + w2 * v2 + w3 * v3 + w4 * v4;
    STORE_FROM(IN, ACC, columns, (channel * taps + t.tap) * positions + t.position, p.mask * value);
  }
}

/// The gradients of the shifts, and of the mask if there is one. `columns` has the columns'
/// gradients. Global size: batch * groups * taps * positions, or more.
kernel void deform_shifts(global char* grad_shifts, const ulong grad_shifts_offset,
                          global char* grad_mask, const ulong grad_mask_offset,
                          global const char* columns, const ulong columns_offset,
                          global const char* in, const ulong in_offset, global const char* shifts,
                          const ulong shifts_offset, global const char* mask,
                          const ulong mask_offset, const DeformArguments args) {
  columns += columns_offset;
  in += in_offset;
  const uint positions = args.out_height * args.out_width;
  const uint taps = args.kernel_height * args.kernel_width;
  const uint i = get_global_id(0);
  const Tap t = tap_of(i, positions, taps, args.offset_groups);
  if (t.b >= args.batch) return;
  const uint channels = args.channels / args.offset_groups;
  const Place p = PLACE_OF(t, shifts + shifts_offset, mask + mask_offset, args);
  const uint corners = p.near ? corners_of(p, args.height, args.width) : 0;
  const SCALAR hy = 1 - p.dy, hx = 1 - p.dx;
  SCALAR by_y = 0, by_x = 0, by_mask = 0;
  for (uint c = 0; c < channels && corners != 0; c++) {
    const uint channel = t.b * args.channels + t.group * channels + c;
    const SCALAR grad =
        LOAD_AS(ACC, IN, columns, (channel * taps + t.tap) * positions + t.position);
    LOAD_CORNERS(in, channel * args.height * args.width, p, corners, args.width);
    by_y += p.mask * (p.dx * (v4 - v2) + hx * (v3 - v1)) * grad;
    by_x += p.mask * (p.dy * (v4 - v3) + hy * (v2 - v1)) * grad;
    by_mask += grad * (hy * hx * v1 + hy * p.dx * v2 + p.dy * hx * v3 + p.dy * p.dx * v4);
  }
  const uint shift = ((t.b * args.offset_groups + t.group) * taps + t.tap) * 2 * positions;
  STORE_FROM(IN, ACC, grad_shifts + grad_shifts_offset, shift + t.position, by_y);
  STORE_FROM(IN, ACC, grad_shifts + grad_shifts_offset, shift + positions + t.position, by_x);
#if MASKED
  STORE_FROM(IN, ACC, grad_mask + grad_mask_offset, i, p.inside ? by_mask : (SCALAR)(0));
#endif
}

#ifdef SCATTER
#define ADD(p, i, v) ATOMIC(add, ACC)((p) + (ulong)(i) * STORAGE_SIZE(ACC), v)
#else
#define ADD(p, i, v) ((global SCALAR*)(p))[i] += (v)
#endif

/// Adds a column's gradient to the four pixels of a plane.
static inline void add_corners(global char* sums, uint plane, Place p, uint corners, uint width,
                               SCALAR grad) {
  const int first = FIRST_PIXEL(p, width) + (int)plane;
  const SCALAR hy = 1 - p.dy, hx = 1 - p.dx;
  if (corners & 1) ADD(sums, first, grad * hy * hx);
  if (corners & 2) ADD(sums, first + 1, grad * hy * p.dx);
  if (corners & 4) ADD(sums, first + (int)width, grad * p.dy * hx);
  if (corners & 8) ADD(sums, first + (int)width + 1, grad * p.dy * p.dx);
}

#ifdef SCATTER
/// The gradient of the input. The sums' last bits vary. Global size: that of deform_im2col.
kernel void deform_scatter(global char* sums, const ulong sums_offset, global const char* columns,
                           const ulong columns_offset, global const char* shifts,
                           const ulong shifts_offset, global const char* mask,
                           const ulong mask_offset, const DeformArguments args) {
  columns += columns_offset;
  const uint positions = args.out_height * args.out_width;
  const uint taps = args.kernel_height * args.kernel_width;
  const Tap t = tap_of(get_global_id(0), positions, taps, args.offset_groups);
  if (t.b >= args.batch) return;
  const uint channels = args.channels / args.offset_groups;
  const uint begin = (uint)get_global_id(1) * args.span, end = min(begin + args.span, channels);
  const Place p = PLACE_OF(t, shifts + shifts_offset, mask + mask_offset, args);
  if (!p.inside) return;
  const uint corners = corners_of(p, args.height, args.width);
  for (uint c = begin; c < end; c++) {
    const uint channel = t.b * args.channels + t.group * channels + c;
    const SCALAR grad =
        LOAD_AS(ACC, IN, columns, (channel * taps + t.tap) * positions + t.position);
    add_corners(sums + sums_offset, channel * args.height * args.width, p, corners, args.width,
                p.mask * grad);
  }
}
#endif

/// The gradient where a work-item for each plane of the input adds in a fixed order. Global size:
/// batch * channels, or more.
kernel ITEM_BY_ITEM void deform_planes(global char* sums, const ulong sums_offset,
                                       global const char* columns, const ulong columns_offset,
                                       global const char* shifts, const ulong shifts_offset,
                                       global const char* mask, const ulong mask_offset,
                                       const DeformArguments args) {
  columns += columns_offset;
  const uint positions = args.out_height * args.out_width;
  const uint taps = args.kernel_height * args.kernel_width;
  const uint channel = get_global_id(0);
  if (channel >= args.batch * args.channels) return;
  Tap t;
  t.b = channel / args.channels;
  t.group = channel % args.channels / (args.channels / args.offset_groups);
  for (t.tap = 0; t.tap < taps; t.tap++) {
    for (t.position = 0; t.position < positions; t.position++) {
      const Place p = PLACE_OF(t, shifts + shifts_offset, mask + mask_offset, args);
      if (!p.inside) continue;
      const SCALAR grad =
          LOAD_AS(ACC, IN, columns, (channel * taps + t.tap) * positions + t.position);
      add_corners(sums + sums_offset, channel * args.height * args.width, p,
                  corners_of(p, args.height, args.width), args.width, p.mask * grad);
    }
  }
}
