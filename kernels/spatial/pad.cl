// Reflection and replication padding, and their gradients.
//
// Compile parameters: E (forward: the tag of the elements' bits), REPLICATE, COPY (lanes of the
// part of a row that is copied; 1: none, because widths aren't contiguous); IN and ACC (backward:
// the tags stored and summed in).
#ifndef REPLICATE
#define REPLICATE 0
#endif
#ifndef COPY
#define COPY 1
#endif
#include "include/item_by_item.clh"
#include "spatial/spatial.clh"

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

kernel ITEM_BY_ITEM void pad(global char* out, const ulong out_offset, global const char* in,
                             const ulong in_offset, const Arguments args, const PadArguments pads) {
  out += out_offset;
  in += in_offset;
  FOR_ROWS(start) {
#if COPY > 1
    // The middle of the row is a copy.
    const uint to = ELEMENT(0, start);
    const uint from = PLANE(1, start) + POINT(1, SOURCE(0, start.d), SOURCE(1, start.h), 0);
    const int left = pads.before[2], last = (int)args.other[2] - 1;
    const int begin = (int)RUN_BEGIN, end = (int)RUN_END, middle = clamp(left, begin, end);
    const int middle_end = clamp(left + (int)args.other[2], middle, end);
    for (int x = begin; x < middle; x++) {
      STORE(E, out, to + x, LOAD(E, in, from + (REPLICATE ? 0u : (uint)(left - x))));
    }
    FOR_VECTORS(x, COPY, middle, middle_end) {
      STOREV(E, COPY, AT(E, out, to + x), 0, LOADV(E, COPY, AT(E, in, from + (uint)(x - left)), 0));
    }
    FOR_TOO_FEW(x, COPY, middle, middle_end)
    STORE(E, out, to + x, LOAD(E, in, from + (uint)(x - left)));
    for (int x = middle_end; x < end; x++) {
      STORE(E, out, to + x, LOAD(E, in, from + (uint)(REPLICATE ? last : 2 * last + left - x)));
    }
#else
#if CHANNELS_INNER
    const uint point = POINT(1, SOURCE(0, start.d), SOURCE(1, start.h), SOURCE(2, start.w));
    global const char* from = AT(E, in, PLANE(1, start) + point);
    global char* to = AT(E, out, ELEMENT(0, start));
    FOR_RUN(x) STORE_AT(E, E, to, CHANNEL(0, x), LOAD_AT(E, E, from, CHANNEL(1, x)));
#else
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const uint from = PLANE(1, p) + POINT(1, SOURCE(0, p.d), SOURCE(1, p.h), SOURCE(2, p.w));
      STORE_AT(E, E, out, ELEMENT(0, p), LOAD_AT(E, E, in, from));
    }
#endif
#endif
  }
}

// The output's positions that show position `i` of the input, one by one: target() is -1 where the
// k-th does not exist.
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
  return (i > 0 && i <= before) || (i < last && last - i <= padded - size - before) ? 3 : 1;
#endif
}
#define TARGET(axis, k, i) target(k, i, pads.before[axis], args.size[axis], args.other[axis])
#define TARGETS(axis, i) targets(i, pads.before[axis], args.size[axis], args.other[axis])

// Stores the sum of the outputs that show `p`, of which there are depths, heights and widths along
// the axes.
#define GATHER(p)                                                                     \
  do {                                                                                \
    TYPEV(ACC, WIDTH) sum = (TYPEV(ACC, WIDTH))(0);                                   \
    for (int kd = 0; kd < depths; kd++) {                                             \
      const int d = TARGET(0, kd, (p).d);                                             \
      for (int kh = 0; d >= 0 && kh < heights; kh++) {                                \
        const int h = TARGET(1, kh, (p).h);                                           \
        for (int kw = 0; h >= 0 && kw < widths; kw++) {                               \
          const int w = TARGET(2, kw, (p).w);                                         \
          if (w >= 0) sum += LOAD_AT(ACC, IN, grad, PLANE(1, p) + POINT(1, d, h, w)); \
        }                                                                             \
      }                                                                               \
    }                                                                                 \
    STORE_AT(IN, ACC, out, ELEMENT(0, p), sum);                                       \
  } while (0)

#define MOST_POINTS 9

kernel ITEM_BY_ITEM void pad_backward(global char* out, const ulong out_offset,
                                      global const char* grad, const ulong grad_offset,
                                      const Arguments args, const PadArguments pads) {
  out += out_offset;
  grad += grad_offset;
#if COPY > 1
  // The columns that a single output shows.
  const int left = pads.before[2], size = (int)args.size[2], padded = (int)args.other[2];
  const int right = padded - size - left, begin = (int)RUN_BEGIN, end = (int)RUN_END;
  const int first = REPLICATE ? left > 0 : max(left, 0) + (left > 0);
  const int last = REPLICATE ? size - (right > 0) : size - max(right, 0) - (right > 0);
  const int middle = clamp(max(first, -left), begin, end);
  const int middle_end = clamp(min(last, padded - left), middle, end);
#endif
  FOR_ROWS(start) {
    const int depths = TARGETS(0, start.d), heights = TARGETS(1, start.h);
    const int d = TARGET(0, 0, start.d), h = TARGET(1, 0, start.h);
    const bool single = depths == 1 && heights == 1 && d >= 0 && h >= 0;
#if COPY > 1
    const uint to = ELEMENT(0, start), from = PLANE(1, start) + (uint)left;
    if (single) {
      const uint line = from + POINT(1, d, h, 0);
      FOR_VECTORS(x, COPY, middle, middle_end) {
        STOREV(IN, COPY, AT(IN, out, to + x), 0, LOADV(IN, COPY, AT(IN, grad, line + x), 0));
      }
    } else {
      FOR_VECTORS(x, COPY, middle, middle_end) {
        TYPEV(ACC, COPY) sum = (TYPEV(ACC, COPY))(0);
        for (int kd = 0; kd < depths; kd++) {
          const int d = TARGET(0, kd, start.d);
          for (int kh = 0; d >= 0 && kh < heights; kh++) {
            const int h = TARGET(1, kh, start.h);
            if (h < 0) continue;
            sum += LOADV_AS(ACC, IN, COPY, AT(IN, grad, from + POINT(1, d, h, 0) + x), 0);
          }
        }
        STOREV_FROM(IN, ACC, COPY, AT(IN, out, to + x), 0, sum);
      }
    }
    const int tail = middle_end - middle < COPY ? middle : middle_end;
    for (int x = begin; x < end; x++) {
      if (x == middle) x = tail;
      if (x >= end) break;
      const Place p = PLACE(start, x);
      const int widths = TARGETS(2, p.w);
      GATHER(p);
    }
#else
#if CHANNELS_INNER
    const int widths = TARGETS(2, start.w), w = TARGET(2, 0, start.w);
    if (single && widths == 1 && w >= 0) {
      global const char* from = AT(IN, grad, PLANE(1, start) + POINT(1, d, h, w));
      global char* to = AT(IN, out, ELEMENT(0, start));
      FOR_RUN(x) STORE_AT(IN, IN, to, CHANNEL(0, x), LOAD_AT(IN, IN, from, CHANNEL(1, x)));
      continue;
    }
#endif
#if WIDTH > 1
    // Otherwise vectors of channels share what is found out about a position.
    uint points[MOST_POINTS], count = 0;
    for (int kd = 0; kd < depths; kd++) {
      const int d = TARGET(0, kd, start.d);
      for (int kh = 0; d >= 0 && kh < heights; kh++) {
        const int h = TARGET(1, kh, start.h);
        for (int kw = 0; h >= 0 && kw < widths; kw++) {
          const int w = TARGET(2, kw, start.w);
          if (w >= 0 && count++ < MOST_POINTS) points[count - 1] = POINT(1, d, h, w);
        }
      }
    }
    if (count <= MOST_POINTS) {
      FOR_RUN(x) {
        const uint plane = PLANE(1, start) + CHANNEL(1, x);
        TYPEV(ACC, WIDTH) sum = (TYPEV(ACC, WIDTH))(0);
        for (uint k = 0; k < count; k++) sum += LOAD_AT(ACC, IN, grad, plane + points[k]);
        STORE_AT(IN, ACC, out, ELEMENT(0, start) + CHANNEL(0, x), sum);
      }
      continue;
    }
#endif
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
#if !CHANNELS_INNER
      const int widths = TARGETS(2, p.w);
#endif
      GATHER(p);
    }
#endif
  }
}
