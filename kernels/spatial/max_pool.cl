// Max pooling with the positions of the maxima, and the gradient, by windows of a fixed size,
// adaptive or fractional. Positions count in a channel's plane, row by row. A NaN is a maximum; of
// several, the last is. Gradients record a position outside of its plane (include/assert.clh).
//
// Compile parameters: IN, ACC (the tags stored and compared), INDEX (a signed integer as large as
// ACC), ADAPTIVE; FRACTIONAL defined for the fractional kernels; ONLY (1 to 4: the first to fourth
// kernel alone, for a network mostly needs one or two; 0: all).
#ifndef INDEX
#define INDEX i32
#endif
#ifndef ONLY
#define ONLY 0
#endif
#include "include/item_by_item.clh"
#include "include/assert.clh"
#include "spatial/pool.clh"

#define VALUES TYPEV(ACC, WIDTH)
#define INDICES TYPEV(INDEX, WIDTH)
#define LOWEST_VALUE CONVERT(ACC, IN, LOWEST(IN))

// Looks at one more value. Comparisons of vectors give lanes of their operands' size, of scalars an
// int.
#define LOOK(value, position)                                         \
  do {                                                                \
    const VALUES v_ = (value);                                        \
    const INDICES take_ = (INDICES)((v_ > best) | (v_ != v_));        \
    best = select(best, v_, take_);                                   \
    index = select(index, (INDICES)((TYPE(INDEX))(position)), take_); \
  } while (0)

#define POSITIONS TYPEV(i64, WIDTH)
#if WIDTH == 1
#define IS_ANY(x) ((x) != 0)
#else
#define IS_ANY(x) any(x)
#endif
// Records a lane of the least or the largest position, if one lies outside.
#define CHECK_POSITIONS(lowest, highest, count)                                        \
  if (IS_ANY(((lowest) < (long)pool.least) | ((highest) >= (long)(count)))) {          \
    const POSITIONS both_[2] = {lowest, highest};                                      \
    for (int k_ = 0; k_ < 2 * WIDTH; k_++) {                                           \
      check_position(((const TYPE(i64)*)both_)[k_], pool.least, count, asserts, site); \
    }                                                                                  \
  }

// True if a position is one of the plane's.
static inline bool check_position(long position, int least, long count, global int* asserts,
                                  uint site) {
  if (position >= least && position < count) return position >= 0;
  record_failure(position, count, asserts, site);
  return false;
}

#define STORE_BEST(p)                                    \
  do {                                                   \
    STORE_AT(IN, ACC, out, ELEMENT(0, p), best);         \
    STORE_AT(i64, INDEX, indices, ELEMENT(2, p), index); \
  } while (0)

#if ONLY == 0 || ONLY == 1
kernel ITEM_BY_ITEM void max_pool(global char* out, const ulong out_offset, global const char* in,
                                  const ulong in_offset, global char* indices,
                                  const ulong indices_offset, const Arguments args,
                                  const PoolArguments pool) {
  out += out_offset;
  in += in_offset;
  indices += indices_offset;
  FOR_ROWS(start) {
    const Window wd = WINDOW_OF(0, start.d);
    const Window wh = WINDOW_OF(1, start.h);
    const int step_d = ADAPTIVE ? 1 : pool.dilation[0];
    const int step_h = ADAPTIVE ? 1 : pool.dilation[1];
    const int step_w = ADAPTIVE ? 1 : pool.dilation[2];
#if CHANNELS_INNER
    const Window ww = WINDOW_OF(2, start.w);
#endif
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
#if !CHANNELS_INNER
      const Window ww = WINDOW_OF(2, p.w);
#endif
      const uint plane = PLANE(1, p);
      VALUES best = (VALUES)(LOWEST_VALUE);
      INDICES index =
          (INDICES)((wd.begin * (int)args.other[1] + wh.begin) * (int)args.other[2] + ww.begin);
      for (int d = wd.begin; d < wd.end; d += step_d) {
        for (int h = wh.begin; h < wh.end; h += step_h) {
          const int line = (d * (int)args.other[1] + h) * (int)args.other[2];
          for (int w = ww.begin; w < ww.end; w += step_w) {
            LOOK(LOAD_AT(ACC, IN, in, plane + POINT(1, d, h, w)), line + w);
          }
        }
      }
      STORE_BEST(p);
    }
  }
}
#endif

#if ONLY == 0 || ONLY == 2
// Every input sums the gradients of the outputs that chose it.
kernel ITEM_BY_ITEM void max_pool_backward(global char* out, const ulong out_offset,
                                           global const char* grad, const ulong grad_offset,
                                           global const char* indices, const ulong indices_offset,
                                           const Arguments args, const PoolArguments pool,
                                           global int* asserts, const uint site) {
  out += out_offset;
  grad += grad_offset;
  indices += indices_offset;
  const long count = (long)args.size[0] * args.size[1] * args.size[2];
  FOR_ROWS(start) {
    const Window cd = COVER_OF(0, start.d);
    const Window ch = COVER_OF(1, start.h);
#if CHANNELS_INNER
    const Window cw = COVER_OF(2, start.w);
#endif
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
#if !CHANNELS_INNER
      const Window cw = COVER_OF(2, p.w);
#endif
      const uint plane = PLANE(1, p), index_plane = PLANE(2, p);
      const INDICES own = (INDICES)((TYPE(INDEX))((p.d * args.size[1] + p.h) * args.size[2] + p.w));
      VALUES sum = (VALUES)(0);
      POSITIONS lowest = (POSITIONS)(0), highest = (POSITIONS)(0);
      for (int d = cd.begin; d < cd.end; d++) {
        for (int h = ch.begin; h < ch.end; h++) {
          for (int w = cw.begin; w < cw.end; w++) {
            const POSITIONS position = LOAD_AT(i64, i64, indices, index_plane + POINT(2, d, h, w));
            lowest = min(lowest, position);
            highest = max(highest, position);
            const INDICES chosen = CONVERTV(INDEX, i64, WIDTH, position);
            const VALUES value = LOAD_AT(ACC, IN, grad, plane + POINT(1, d, h, w));
            sum += select((VALUES)(0), value, (INDICES)(chosen == own));
          }
        }
      }
      CHECK_POSITIONS(lowest, highest, count)
      STORE_AT(IN, ACC, out, ELEMENT(0, p), sum);
    }
  }
}
#endif

#if ONLY == 0 || ONLY == 3
// Max pooling where a work-item takes whole planes, contiguous ones, for any kind of windows. IN is
// ACC.
kernel ITEM_BY_ITEM void max_pool_planes(global char* out, const ulong out_offset,
                                         global const char* grad, const ulong grad_offset,
                                         global const char* indices, const ulong indices_offset,
                                         const Arguments args, const PoolArguments pool,
                                         global int* asserts, const uint site) {
  out += out_offset;
  grad += grad_offset;
  indices += indices_offset;
  const uint count = (uint)(pool.size[0] * pool.size[1] * pool.size[2]);
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const uint plane = PLANE(0, p), from = PLANE(1, p), index_from = PLANE(2, p);
      CLEAR_PLANE(IN, out, plane, count);
      global TYPE(ACC)* sums = (global TYPE(ACC)*)AT(IN, out, plane);
      for (uint d = 0; d < args.other[0]; d++) {
        for (uint h = 0; h < args.other[1]; h++) {
          for (uint w = 0; w < args.other[2]; w++) {
            const long chosen = LOAD(i64, indices, index_from + POINT(2, d, h, w));
            if (check_position(chosen, pool.least, count, asserts, site)) {
              sums[chosen] += LOAD(IN, grad, from + POINT(1, d, h, w));
            }
          }
        }
      }
    }
  }
}
#endif

#if ONLY == 0 || ONLY == 4
// Max pooling of planes whose channels lie innermost: a work-item takes up to WIDTH channels of all
// positions. Operand 0 has its positions one after the other.
kernel ITEM_BY_ITEM void max_pool_channels(global char* out, const ulong out_offset,
                                           global const char* grad, const ulong grad_offset,
                                           global const char* indices, const ulong indices_offset,
                                           const Arguments args, const PoolArguments pool,
                                           global int* asserts, const uint site) {
  out += out_offset;
  grad += grad_offset;
  indices += indices_offset;
  const uint count = (uint)(pool.size[0] * pool.size[1] * pool.size[2]), step = args.stride[0][4];
  FOR_ROWS(start) {
    FOR_RUN(x) {
      // Unlike copies, sums must not overlap.
      Place p = start;
      p.c = x * WIDTH;
      const uint lanes = min((uint)WIDTH, args.channels - p.c);
      global char* const plane = AT(IN, out, PLANE(0, p));
      global TYPE(ACC)* const sums = (global TYPE(ACC)*)plane;
      if (lanes == WIDTH) {
        for (uint i = 0; i < count; i++) STORE_AT(IN, ACC, plane, i * step, (VALUES)(0));
      } else {
        for (uint i = 0; i < count; i++) {
          for (uint k = 0; k < lanes; k++) sums[i * step + k] = 0;
        }
      }
      for (uint d = 0; d < args.other[0]; d++) {
        for (uint h = 0; h < args.other[1]; h++) {
          for (uint w = 0; w < args.other[2]; w++) {
            global const TYPE(i64)* chosen =
                (global const TYPE(i64)*)AT(i64, indices, PLANE(2, p) + POINT(2, d, h, w));
            global const TYPE(ACC)* value =
                (global const TYPE(ACC)*)AT(IN, grad, PLANE(1, p) + POINT(1, d, h, w));
            if (lanes == WIDTH) {
#pragma unroll
              for (uint k = 0; k < WIDTH; k++) {
                if (check_position(chosen[k], pool.least, count, asserts, site)) {
                  sums[(uint)chosen[k] * step + k] += value[k];
                }
              }
            } else {
              for (uint k = 0; k < lanes; k++) {
                if (check_position(chosen[k], pool.least, count, asserts, site)) {
                  sums[(uint)chosen[k] * step + k] += value[k];
                }
              }
            }
          }
        }
      }
    }
  }
}
#endif

#ifdef FRACTIONAL
// The random windows of fractional pooling: monotone, and the last one ends with the input. Every
// step is rounded to the samples' dtype, IN, as CPU torch computes it.
#define ROUND_TO_EXPANDED(tag, x) ROUND_##tag(, x)
#define ROUND_TO(tag, x) ROUND_TO_EXPANDED(tag, x)
#define ROUNDED(x) ROUND_TO(IN, x)
static inline int fractional_begin(int o, TYPE(ACC) sample, int outputs, int size,
                                   int kernel_size) {
  if (o == outputs - 1) return size - kernel_size;
  const TYPE(ACC) range = ROUNDED((TYPE(ACC))(size - kernel_size));
  const TYPE(ACC) alpha = ROUNDED(range / ROUNDED((TYPE(ACC))(outputs - 1)));
  const TYPE(ACC) place = ROUNDED(ROUNDED((TYPE(ACC))o) + sample);
  return (int)ROUNDED(place * alpha) - (int)ROUNDED(sample * alpha);
}
// Samples are [batch][channel][axis], in two dimensions width first; operand 3's width stride steps
// through the axes.
#define SAMPLE_AT(k) LOAD_AS(ACC, IN, samples, PLANE(3, p) + (k) * args.stride[3][4])
#define FRACTIONAL_BEGIN(axis, o, sample) \
  fractional_begin(o, sample, args.size[axis], args.other[axis], pool.kernel_size[axis])

kernel ITEM_BY_ITEM void fractional_max_pool(global char* out, const ulong out_offset,
                                             global const char* in, const ulong in_offset,
                                             global char* indices, const ulong indices_offset,
                                             global const char* samples, const ulong samples_offset,
                                             const Arguments args, const PoolArguments pool) {
  out += out_offset;
  in += in_offset;
  indices += indices_offset;
  samples += samples_offset;
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const int begin_d = pool.axes == 3 ? FRACTIONAL_BEGIN(0, p.d, SAMPLE_AT(0)) : 0;
      const int begin_h = FRACTIONAL_BEGIN(1, p.h, SAMPLE_AT(1));
      const int begin_w = FRACTIONAL_BEGIN(2, p.w, SAMPLE_AT(pool.axes == 3 ? 2 : 0));
      const uint plane = PLANE(1, p);
      VALUES best = (VALUES)(LOWEST_VALUE);
      INDICES index =
          (INDICES)((begin_d * (int)args.other[1] + begin_h) * (int)args.other[2] + begin_w);
      for (int d = begin_d; d < begin_d + pool.kernel_size[0]; d++) {
        for (int h = begin_h; h < begin_h + pool.kernel_size[1]; h++) {
          const int line = (d * (int)args.other[1] + h) * (int)args.other[2];
          for (int w = begin_w; w < begin_w + pool.kernel_size[2]; w++) {
            LOOK(LOAD_AT(ACC, IN, in, plane + POINT(1, d, h, w)), line + w);
          }
        }
      }
      STORE_BEST(p);
    }
  }
}

// The samples are not known here: window o begins within 1 of o * alpha, and the positions tell the
// rest.
static inline Window fractional_cover(int i, int outputs, int size, int kernel_size) {
  Window cover = {0, outputs, 0};
  if (outputs > 1 && size > kernel_size) {
    const float alpha = (float)(size - kernel_size) / (float)(outputs - 1);
    cover.begin = max((int)((float)(i - kernel_size) / alpha) - 2, 0);
    // The last window is fixed to the end.
    cover.end = i >= size - kernel_size ? outputs : min((int)((float)(i + 1) / alpha) + 3, outputs);
  }
  return cover;
}
#define FRACTIONAL_COVER(axis, i) \
  fractional_cover(i, args.other[axis], args.size[axis], pool.kernel_size[axis])

kernel ITEM_BY_ITEM void fractional_max_pool_backward(
    global char* out, const ulong out_offset, global const char* grad, const ulong grad_offset,
    global const char* indices, const ulong indices_offset, const Arguments args,
    const PoolArguments pool, global int* asserts, const uint site) {
  out += out_offset;
  grad += grad_offset;
  indices += indices_offset;
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const Window cd = FRACTIONAL_COVER(0, p.d);
      const Window ch = FRACTIONAL_COVER(1, p.h);
      const Window cw = FRACTIONAL_COVER(2, p.w);
      const uint plane = PLANE(1, p), index_plane = PLANE(2, p);
      const long own = (long)(p.d * args.size[1] + p.h) * args.size[2] + p.w;
      const long count = (long)args.size[0] * args.size[1] * args.size[2];
      TYPE(ACC) sum = 0;
      for (int d = cd.begin; d < cd.end; d++) {
        for (int h = ch.begin; h < ch.end; h++) {
          for (int w = cw.begin; w < cw.end; w++) {
            const long chosen = LOAD(i64, indices, index_plane + POINT(2, d, h, w));
            if (check_position(chosen, pool.least, count, asserts, site) && chosen == own) {
              sum += LOAD_AS(ACC, IN, grad, plane + POINT(1, d, h, w));
            }
          }
        }
      }
      STORE_FROM(IN, ACC, out, ELEMENT(0, p), sum);
    }
  }
}
#endif
