// Linear and cubic interpolation in one to three dimensions.
//
// Compile parameters: IN, ACC (the tags stored and computed in), AXES (the last of which are
// interpolated), TAPS (2: linear, 4: cubic), SPAN (the longest chunk of a row; 1 on a GPU).
#ifndef AXES
#define AXES 2
#endif
#ifndef TAPS
#define TAPS 2
#endif
#ifndef SPAN
#define SPAN 1
#endif
#include "include/item_by_item.clh"
#include "spatial/filters.clh"
#include "spatial/resample_arguments.clh"
#include "spatial/spatial.clh"

#define VALUES TYPEV(ACC, WIDTH)
// The place of a column's taps: known where there is one, so that registers hold it.
#define COLUMN(x) (SPAN == 1 ? 0 : (x) - first)

typedef struct {
  uint index[TAPS];
  SCALAR weight[TAPS];
} Taps;

static inline Taps taps_of(uint o, SCALAR scale, uint align, uint size, uint outputs) {
  Taps taps;
#if TAPS == 2
  // As CPU torch: of equal sizes, one is a copy of the other, whatever the scale.
  const Split at = split(position_of(o, scale, align, 1), size);
  const bool copy = size == outputs;
  taps.index[0] = copy ? o : (uint)at.index;
  taps.index[1] = copy ? o : min((uint)at.index + 1, size - 1);
  taps.weight[1] = copy ? (SCALAR)0 : at.rest;
  taps.weight[0] = (SCALAR)1 - taps.weight[1];
#else
  const Split at = split(position_of(o, scale, align, 0), size);
  const SCALAR a = (SCALAR)-0.75f, back = (SCALAR)1 - at.rest;
  taps.weight[0] = cubic_far(at.rest + 1, a);
  taps.weight[1] = cubic_near(at.rest, a);
  taps.weight[2] = cubic_near(back, a);
  taps.weight[3] = cubic_far(back + 1, a);
  for (int k = 0; k < 4; k++) taps.index[k] = (uint)clamp(at.index - 1 + k, 0, (int)size - 1);
#endif
  return taps;
}
#define TAPS_OF(axis, o) \
  taps_of(o, resample.scale[axis], resample.align, args.other[axis], args.size[axis])

// A sum over the taps of one axis; axes that are not interpolated have a single one, of weight 1.
#if TAPS == 2
#define SUM_OF(taps, term) \
  (taps.weight[0] * term(taps.index[0]) + taps.weight[1] * term(taps.index[1]))
#else
#define SUM_OF(taps, term)                                                       \
  (taps.weight[0] * term(taps.index[0]) + taps.weight[1] * term(taps.index[1]) + \
   taps.weight[2] * term(taps.index[2]) + taps.weight[3] * term(taps.index[3]))
#endif

static inline VALUES line_sum(global const char* in, uint line, uint step, Taps w) {
#define AT_WIDTH(i) LOAD_AT(ACC, IN, in, line + (i) * step)
  return SUM_OF(w, AT_WIDTH);
}

kernel ITEM_BY_ITEM void resample(global char* out, const ulong out_offset, global const char* in,
                                  const ulong in_offset, const Arguments args,
                                  const ResampleArguments resample) {
  out += out_offset;
  in += in_offset;
#if !CHANNELS_INNER
  // Rows share the taps of their columns.
  Taps columns[SPAN];
  const uint first = RUN_BEGIN;
  FOR_RUN(x) columns[COLUMN(x)] = TAPS_OF(2, x);
#endif
  FOR_ROWS(start) {
#if AXES > 1
    const Taps h = TAPS_OF(1, start.h);
#endif
#if AXES > 2
    const Taps d = TAPS_OF(0, start.d);
#endif
#if CHANNELS_INNER
    const Taps w = TAPS_OF(2, start.w);
#endif
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
#if !CHANNELS_INNER
      const Taps w = columns[COLUMN(x)];
#endif
      const uint plane = PLANE(1, p);
      const uint step = args.stride[1][4];
#if AXES == 1
      const VALUES value = line_sum(in, plane, step, w);
#elif AXES == 2
#define AT_HEIGHT(i) line_sum(in, plane + (i) * args.stride[1][3], step, w)
      const VALUES value = SUM_OF(h, AT_HEIGHT);
#else
#define AT_HEIGHT(i) line_sum(in, plane_d + (i) * args.stride[1][3], step, w)
      VALUES value = (VALUES)(0);
      for (int k = 0; k < TAPS; k++) {
        const uint plane_d = plane + d.index[k] * args.stride[1][2];
        value += d.weight[k] * SUM_OF(h, AT_HEIGHT);
      }
#endif
      STORE_AT(IN, ACC, out, ELEMENT(0, p), value);
    }
  }
}
