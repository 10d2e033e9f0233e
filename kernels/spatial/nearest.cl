// Nearest-neighbour resampling and its gradient.
//
// Compile parameters: E (forward: the tag of the elements' bits), IN and ACC (backward: the tags stored and
// summed in), POSITION (the tag positions are computed in), EXACT (an output is a pixel's centre, not its
// corner).
#ifndef POSITION
#define POSITION f32
#endif
#ifndef EXACT
#define EXACT 0
#endif
#include "include/item_by_item.clh"
#include "spatial/spatial.clh"

typedef struct {
  TYPE(POSITION) scale[3];
  TYPE(POSITION) unused;
  uint size[3];  // of the input's planes, for nearest_planes
  uint unused_too;
} NearestArgs;

// The input's position for output `o`. CPU torch rounds to float before it takes the floor.
static inline uint source(uint o, TYPE(POSITION) scale, uint size) {
  const TYPE(POSITION) place = EXACT ? (TYPE(POSITION))o + (TYPE(POSITION))0.5f : (TYPE(POSITION))o;
  return min((uint)floor((float)(place * scale)), size - 1);
}
#define SOURCE(axis, o) source(o, nearest.scale[axis], args.other[axis])

#define LANES 16
typedef union {
  TYPEV(E, LANES) vector;
  TYPE(E) element[LANES];
} Bits;

kernel ITEM_BY_ITEM void nearest(global char* out_base, global const char* in_base,
                                 const SpatialArgs args, const NearestArgs nearest) {
  global char* out = out_base + args.offset[0];
  global const char* in = in_base + args.offset[1];
  FOR_ROWS(row) {
#if CHANNELS_INNER
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const uint from = PLANE(1, p) + POINT(1, SOURCE(0, p.d), SOURCE(1, p.h), SOURCE(2, p.w));
      STORE_AT(E, E, out, ELEMENT(0, p), LOAD_AT(E, E, in, from));
    }
#else
    const Place p = PLACE(row, 0);
    const uint from = PLANE(1, p) + POINT(1, SOURCE(0, p.d), SOURCE(1, p.h), 0);
    const uint to = ELEMENT(0, p), end = RUN_END;
    uint x = RUN_BEGIN;
    // The row above shows the same inputs where it is the same work-item's.
    if (row % args.rows_per_item != 0 && p.h > 0 && SOURCE(1, p.h) == SOURCE(1, p.h - 1)) {
      const uint above = to - args.stride[0][3];
      for (; args.stride[0][4] == 1 && x + LANES <= end; x += LANES) {
        STOREV(E, LANES, AT(E, out, to + x), 0, LOADV(E, LANES, AT(E, out, above + x), 0));
      }
    }
    // Positions first: they come in vectors, which the loads of single elements don't.
    for (; args.stride[0][4] == 1 && x + LANES <= end; x += LANES) {
      uint at[LANES];
      Bits bits;
      for (uint i = 0; i < LANES; i++) at[i] = from + SOURCE(2, x + i) * args.stride[1][4];
      for (uint i = 0; i < LANES; i++) bits.element[i] = LOAD(E, in, at[i]);
      STOREV(E, LANES, AT(E, out, to + x), 0, bits.vector);
    }
    for (; x < end; x++) {
      const uint at = from + SOURCE(2, x) * args.stride[1][4];
      STORE(E, out, to + x * args.stride[0][4], LOAD(E, in, at));
    }
#endif
  }
}

// The outputs that show input `i`, one more on either side, for rounding: source() decides.
static inline uint2 shown(uint i, float scale, uint size, uint outputs) {
  const float begin = floor((float)i / scale) - (EXACT ? 2.0f : 1.0f);
  const float end = ceil((float)(i + 1) / scale) + 1.0f;
  return (uint2)(i == 0 || begin < 0 ? 0u : min((uint)begin, outputs),
                 i == size - 1 || end >= (float)outputs ? outputs : (uint)end);
}
#define SHOWN(axis, i) shown(i, nearest.scale[axis], args.size[axis], args.other[axis])
#define SHOWS(axis, o, i) (source(o, nearest.scale[axis], args.size[axis]) == (i))

kernel ITEM_BY_ITEM void nearest_backward(global char* out_base, global const char* grad_base,
                                          const SpatialArgs args, const NearestArgs nearest) {
  global char* out = out_base + args.offset[0];
  global const char* grad = grad_base + args.offset[1];
  FOR_ROWS(row) {
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const uint plane = PLANE(1, p);
      const uint2 depths = SHOWN(0, p.d), heights = SHOWN(1, p.h), widths = SHOWN(2, p.w);
      TYPEV(ACC, WIDTH) sum = (TYPEV(ACC, WIDTH))(0);
      for (uint d = depths.x; d < depths.y; d++) {
        if (!SHOWS(0, d, p.d)) continue;
        for (uint h = heights.x; h < heights.y; h++) {
          if (!SHOWS(1, h, p.h)) continue;
          for (uint w = widths.x; w < widths.y; w++) {
            if (SHOWS(2, w, p.w)) sum += LOAD_AT(ACC, IN, grad, plane + POINT(1, d, h, w));
          }
        }
      }
      STORE_AT(IN, ACC, out, ELEMENT(0, p), sum);
    }
  }
}

typedef union {
  TYPEV(ACC, LANES) vector;
  TYPE(ACC) element[LANES];
} Lanes;

// The same where a work-item takes whole planes, contiguous ones: every output adds to its input. IN is ACC.
kernel ITEM_BY_ITEM void nearest_planes(global char* out_base, global const char* grad_base,
                                        const SpatialArgs args, const NearestArgs nearest) {
  global char* out = out_base + args.offset[0];
  global const char* grad = grad_base + args.offset[1];
  FOR_ROWS(row) {
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const uint plane = PLANE(0, p), from = PLANE(1, p);
      CLEAR_PLANE(IN, out, plane, nearest.size[0] * nearest.size[1] * nearest.size[2]);
      for (uint d = 0; d < args.other[0]; d++) {
        const uint to_d = source(d, nearest.scale[0], nearest.size[0]) * nearest.size[1];
        for (uint h = 0, next; h < args.other[1]; h = next) {
          const uint to_h = source(h, nearest.scale[1], nearest.size[1]);
          // The rows that show one input row are summed in vectors before they are added to it.
          for (next = h + 1; next < args.other[1]; next++) {
            if (source(next, nearest.scale[1], nearest.size[1]) != to_h) break;
          }
          global TYPE(ACC)* line =
              (global TYPE(ACC)*)AT(IN, out, plane) + (to_d + to_h) * nearest.size[2];
          uint w = 0;
          for (; args.stride[1][4] == 1 && w + LANES <= args.other[2]; w += LANES) {
            Lanes sum = {.vector = (TYPEV(ACC, LANES))(0)};
            for (uint k = h; k < next; k++) {
              sum.vector += LOADV(IN, LANES, AT(IN, grad, from + POINT(1, d, k, w)), 0);
            }
            uint to[LANES];
            for (uint i = 0; i < LANES; i++) to[i] = source(w + i, nearest.scale[2], nearest.size[2]);
            for (uint i = 0; i < LANES; i++) line[to[i]] += sum.element[i];
          }
          for (; w < args.other[2]; w++) {
            const uint to = source(w, nearest.scale[2], nearest.size[2]);
            for (uint k = h; k < next; k++) line[to] += LOAD(IN, grad, from + POINT(1, d, k, w));
          }
        }
      }
    }
  }
}
