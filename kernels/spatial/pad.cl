// Reflection and replication padding, and their gradients.
//
// Compile parameters: E (forward: the tag of the elements' bits), REPLICATE, COPY (lanes of the part of a row
// that is copied; 1: none); IN and ACC (backward: the tags stored and summed in).
#ifndef REPLICATE
#define REPLICATE 0
#endif
#ifndef COPY
#define COPY 1
#endif
#include "include/item_by_item.clh"
#include "spatial/spatial.clh"

typedef struct {
  int before[3];  // front, top, left; negative ones crop
  int unused;
} PadArgs;

// The input's position behind position `o` of the output.
static inline int source(uint o, int before, uint size) {
  const int last = (int)size - 1;
  const int i = (int)o - before;
#if REPLICATE
  return clamp(i, 0, last);
#else
  return i < 0 ? -i : i > last ? 2 * last - i : i;
#endif
}
#define SOURCE(axis, o) source(o, pads.before[axis], args.other[axis])

kernel ITEM_BY_ITEM void pad(global char* out_base, global const char* in_base,
                             const SpatialArgs args, const PadArgs pads) {
  global char* out = out_base + args.offset[0];
  global const char* in = in_base + args.offset[1];
  FOR_ROWS(row) {
#if COPY > 1
    // Both widths are contiguous: the middle of the row is a copy.
    const Place start = PLACE(row, 0);
    const uint to = ELEMENT(0, start);
    const uint from = PLANE(1, start) + POINT(1, SOURCE(0, start.d), SOURCE(1, start.h), 0);
    const int left = pads.before[2];
    const uint end = RUN_END;
    const uint middle_end = (uint)max(min((int)end, left + (int)args.other[2]), 0);
    uint x = RUN_BEGIN;
    for (; x < end && (int)x < left; x++) {
      STORE(E, out, to + x, LOAD(E, in, from + SOURCE(2, x)));
    }
    for (; x + COPY <= middle_end; x += COPY) {
      STOREV(E, COPY, AT(E, out, to + x), 0, LOADV(E, COPY, AT(E, in, from + (uint)((int)x - left)), 0));
    }
    for (; x < end; x++) STORE(E, out, to + x, LOAD(E, in, from + SOURCE(2, x)));
#else
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const uint from = PLANE(1, p) + POINT(1, SOURCE(0, p.d), SOURCE(1, p.h), SOURCE(2, p.w));
      STORE_AT(E, E, out, ELEMENT(0, p), LOAD_AT(E, E, in, from));
    }
#endif
  }
}

// The output's positions that show position `i` of the input, one by one: target() is -1 where the k-th
// does not exist.
static inline int target(int k, int i, int before, int size, int padded) {
  const int last = size - 1;
#if REPLICATE
  const int o = (i == 0 ? 0 : i + before) + k;
#else
  const int o = k == 0 ? i + before : k == 1 ? before - i : before + 2 * last - i;
  if ((k == 1 && i == 0) || (k == 2 && i == last)) return -1;
#endif
  return o >= 0 && o < padded ? o : -1;
}

static inline int targets(int i, int before, int size, int padded) {
  const int last = size - 1;
#if REPLICATE
  const int begin = i == 0 ? 0 : i + before;
  return (i == last ? padded - 1 : i + before) - begin + 1;
#else
  return i <= before || last - i <= padded - size - before ? 3 : 1;
#endif
}
#define TARGET(axis, k, i) target(k, i, pads.before[axis], args.size[axis], args.other[axis])
#define TARGETS(axis, i) targets(i, pads.before[axis], args.size[axis], args.other[axis])

kernel ITEM_BY_ITEM void pad_backward(global char* out_base, global const char* grad_base,
                                      const SpatialArgs args, const PadArgs pads) {
  global char* out = out_base + args.offset[0];
  global const char* grad = grad_base + args.offset[1];
  FOR_ROWS(row) {
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const uint plane = PLANE(1, p);
      const int depths = TARGETS(0, p.d), heights = TARGETS(1, p.h), widths = TARGETS(2, p.w);
      TYPEV(ACC, WIDTH) sum = (TYPEV(ACC, WIDTH))(0);
      for (int kd = 0; kd < depths; kd++) {
        const int d = TARGET(0, kd, p.d);
        for (int kh = 0; d >= 0 && kh < heights; kh++) {
          const int h = TARGET(1, kh, p.h);
          for (int kw = 0; h >= 0 && kw < widths; kw++) {
            const int w = TARGET(2, kw, p.w);
            if (w >= 0) sum += LOAD_AT(ACC, IN, grad, plane + POINT(1, d, h, w));
          }
        }
      }
      STORE_AT(IN, ACC, out, ELEMENT(0, p), sum);
    }
  }
}
