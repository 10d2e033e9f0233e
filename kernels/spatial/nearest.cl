// Nearest-neighbour resampling and its gradient.
//
// Compile parameters: E (forward: the tag of the elements' bits), IN and ACC (backward: the tags
// stored and summed in), POSITION (the tag positions are computed in), EXACT (an output is a
// pixel's centre, not its corner), LINE and SPAN (nearest_backward_lines: the longest row of
// outputs, and of inputs; 0: no such kernel).
#ifndef LINE
#define LINE 0
#endif
#ifndef SPAN
#define SPAN 0
#endif
#ifndef POSITION
#define POSITION f32
#endif
#ifndef EXACT
#define EXACT 0
#endif
#include "include/item_by_item.clh"
#include "spatial/spatial.clh"
#define SCALAR TYPE(POSITION)
#include "spatial/resample_arguments.clh"

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

kernel ITEM_BY_ITEM void nearest(global char* out, const ulong out_offset, global const char* in,
                                 const ulong in_offset, const Arguments args,
                                 const ResampleArguments nearest) {
  out += out_offset;
  in += in_offset;
  FOR_ROWS(start) {
#if CHANNELS_INNER || defined(OCL_DEVICE_GPU)
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const uint from = PLANE(1, p) + POINT(1, SOURCE(0, p.d), SOURCE(1, p.h), SOURCE(2, p.w));
      STORE_AT(E, E, out, ELEMENT(0, p), LOAD_AT(E, E, in, from));
    }
#else
    const Place p = start;
    const uint from = PLANE(1, p) + POINT(1, SOURCE(0, p.d), SOURCE(1, p.h), 0);
    const uint to = ELEMENT(0, p), end = RUN_END;
    uint x = RUN_BEGIN;
    // The row above shows the same inputs where it is the same work-item's.
    if (start.row > 0 && p.h > 0 && SOURCE(1, p.h) == SOURCE(1, p.h - 1)) {
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

// The outputs [x, y) that show input `i`. Rounding may move their ends by one: source() decides.
static inline uint2 shown(uint i, float scale, uint size, uint outputs) {
#ifdef OCL_DEVICE_GPU
  // Where nothing is rounded there is nothing to search, which takes longer than the sum.
  if (outputs < 1u << 23) {
    if (scale == 1.0f && outputs == size) return (uint2)(i, i + 1);
    if (scale == 0.5f && outputs == 2 * size) return (uint2)(2 * i, 2 * i + 2);
  }
#endif
  const float first = floor((float)i / scale) - (EXACT ? 2.0f : 1.0f);
  const float last = ceil((float)(i + 1) / scale) + 1.0f;
  uint begin = i == 0 || first < 0 ? 0u : min((uint)first, outputs);
  uint end = i == size - 1 || last >= (float)outputs ? outputs : (uint)last;
  while (begin < end && source(begin, scale, size) != i) begin++;
  while (begin < end && source(end - 1, scale, size) != i) end--;
  return (uint2)(begin, end);
}
#define SHOWN(axis, i) shown(i, nearest.scale[axis], args.size[axis], args.other[axis])

kernel ITEM_BY_ITEM void nearest_backward(global char* out, const ulong out_offset,
                                          global const char* grad, const ulong grad_offset,
                                          const Arguments args, const ResampleArguments nearest) {
  out += out_offset;
  grad += grad_offset;
  uint2 depths = (uint2)(0), heights = (uint2)(0);
  FOR_ROWS(start) {
#if CHANNELS_INNER
    const uint2 widths = SHOWN(2, start.w);
    if (start.row == 0 || start.w == 0) {
#else
    {
#endif
      depths = SHOWN(0, start.d);
      heights = SHOWN(1, start.h);
    }
#if WIDTH > 1
    // Twice the size in two dimensions.
    if (depths.y - depths.x == 1 && heights.y - heights.x == 2 && widths.y - widths.x == 2) {
      global const char* upper =
          AT(IN, grad, PLANE(1, start) + POINT(1, depths.x, heights.x, widths.x));
      global const char* lower = AT(IN, upper, args.stride[1][3]);
      global char* to = AT(IN, out, ELEMENT(0, start));
      FOR_RUN(x) {
        const uint left = CHANNEL(1, x), right = left + args.stride[1][4];
        const TYPEV(ACC, WIDTH) above =
            LOAD_AT(ACC, IN, upper, left) + LOAD_AT(ACC, IN, upper, right);
        const TYPEV(ACC, WIDTH) below =
            LOAD_AT(ACC, IN, lower, left) + LOAD_AT(ACC, IN, lower, right);
        STORE_AT(IN, ACC, to, CHANNEL(0, x), above + below);
      }
      continue;
    }
#endif
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const uint plane = PLANE(1, p);
#if !CHANNELS_INNER
      const uint2 widths = SHOWN(2, p.w);
#endif
      TYPEV(ACC, WIDTH) sum = (TYPEV(ACC, WIDTH))(0);
      for (uint d = depths.x; d < depths.y; d++) {
        for (uint h = heights.x; h < heights.y; h++) {
          uint i = plane + POINT(1, d, h, widths.x);
          for (uint w = widths.x; w < widths.y; w++, i += args.stride[1][4]) {
            sum += LOAD_AT(ACC, IN, grad, i);
          }
        }
      }
      STORE_AT(IN, ACC, out, ELEMENT(0, p), sum);
    }
  }
}

#if LINE > 0
#define SUMS TYPEV(ACC, LANES)

// The gradient for whole contiguous rows: columns are summed first, in vectors.
kernel ITEM_BY_ITEM void nearest_backward_lines(global char* out, const ulong out_offset,
                                                global const char* grad, const ulong grad_offset,
                                                const Arguments args,
                                                const ResampleArguments nearest) {
  out += out_offset;
  grad += grad_offset;
  TYPE(ACC) line[LINE];
  // Where each input's outputs begin; an input that none shows begins where the next one does.
  uint begins[SPAN + 1];
  bool twice = true;  // each input is shown by two outputs
  begins[0] = 0;
  for (uint i = 0; i < SPAN && i < args.inner; i++) {
    const uint2 own = SHOWN(2, i);
    begins[i + 1] = own.x < own.y ? own.y : begins[i];
    twice = twice && begins[i + 1] == 2 * (i + 1);
  }
  const int length = (int)begins[args.inner];
  FOR_ROWS(start) {
    const uint2 depths = SHOWN(0, start.d), heights = SHOWN(1, start.h);
    const uint plane = PLANE(1, start);
    FOR_VECTORS(x, LANES, 0, length) {
      SUMS sum = (SUMS)(0);
      for (uint d = depths.x; d < depths.y; d++) {
        for (uint h = heights.x; h < heights.y; h++) {
          sum += LOADV_AS(ACC, IN, LANES, AT(IN, grad, plane + POINT(1, d, h, 0) + (uint)x), 0);
        }
      }
      PASTE2(vstore, LANES)(sum, 0, line + x);
    }
    FOR_TOO_FEW(x, LANES, 0, length) {
      line[x] = (TYPE(ACC))(0);
      for (uint d = depths.x; d < depths.y; d++) {
        for (uint h = heights.x; h < heights.y; h++) {
          line[x] += LOAD_AS(ACC, IN, grad, plane + POINT(1, d, h, 0) + (uint)x);
        }
      }
    }
    const uint to = ELEMENT(0, start);
    uint i = 0;
    for (; twice && i + LANES <= args.inner; i += LANES) {
      const SUMS a = PASTE2(vload, LANES)(0, line + 2 * i);
      const SUMS b = PASTE2(vload, LANES)(0, line + 2 * i + LANES);
      STOREV_FROM(IN, ACC, LANES, AT(IN, out, to + i), 0, (SUMS)(a.even + a.odd, b.even + b.odd));
    }
    for (; i < args.inner; i++) {
      TYPE(ACC) sum = (TYPE(ACC))(0);
      for (uint k = begins[i]; k < begins[i + 1]; k++) sum += line[k];
      STORE_FROM(IN, ACC, out, to + i, sum);
    }
  }
}
#endif
