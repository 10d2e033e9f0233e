// Average pooling and its gradient, by windows of a fixed size or adaptive.
//
// Compile parameters: IN, ACC (the tags stored and summed in), ADAPTIVE, LINE (elements of a row
// that the kernels for lines and planes keep; 0: none of these kernels).
#ifndef LINE
#define LINE 0
#endif
#include "include/item_by_item.clh"
#include "spatial/pool.clh"

#define DIVISOR(d, h, w) \
  ((TYPE(ACC))(pool.divisor != 0 ? pool.divisor : (d).count * (h).count * (w).count))

kernel ITEM_BY_ITEM void average_pool(global char* out, const ulong out_offset,
                                      global const char* in, const ulong in_offset,
                                      const Arguments args, const PoolArguments pool) {
  out += out_offset;
  in += in_offset;
  FOR_ROWS(start) {
    const Window wd = WINDOW_OF(0, start.d);
    const Window wh = WINDOW_OF(1, start.h);
#if CHANNELS_INNER
    const Window ww = WINDOW_OF(2, start.w);
#endif
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
#if !CHANNELS_INNER
      const Window ww = WINDOW_OF(2, p.w);
#endif
      const uint plane = PLANE(1, p);
      TYPEV(ACC, WIDTH) sum = (TYPEV(ACC, WIDTH))(0);
      for (int d = wd.begin; d < wd.end; d++) {
        for (int h = wh.begin; h < wh.end; h++) {
          uint i = plane + POINT(1, d, h, ww.begin);
          for (int w = ww.begin; w < ww.end; w++, i += args.stride[1][4])
            sum += LOAD_AT(ACC, IN, in, i);
        }
      }
      // A window of padding alone is 0, whatever its size.
      const bool empty = wd.end <= wd.begin || wh.end <= wh.begin || ww.end <= ww.begin;
      STORE_AT(IN, ACC, out, ELEMENT(0, p), empty ? sum : sum / DIVISOR(wd, wh, ww));
    }
  }
}

// Reals are multiplied by the reciprocal, whose division leaves the loop around vectors.
#define SHARE(value, divisor) \
  ((TYPE(ACC))0.5f != (TYPE(ACC))0 ? (value) * ((TYPE(ACC))1 / (divisor)) : (value) / (divisor))

kernel ITEM_BY_ITEM void average_pool_backward(global char* out, const ulong out_offset,
                                               global const char* grad, const ulong grad_offset,
                                               const Arguments args, const PoolArguments pool) {
  out += out_offset;
  grad += grad_offset;
#if CHANNELS_INNER
  Window cd, ch, cw;
  int until;  // the first column with other windows than cw's
  bool single;
  TYPE(ACC) divisor;
#endif
  FOR_ROWS(start) {
#if CHANNELS_INNER
    // Windows take divisions, so they are kept for the positions that share them.
    if (start.row == 0 || start.w == 0) {
      cd = COVER_OF(0, start.d);
      ch = COVER_OF(1, start.h);
      until = 0;
    }
    if ((int)start.w >= until) {
      cw = COVER_OF(2, start.w);
      single = cd.count == 1 && ch.count == 1 && cw.count == 1;
      until = (int)start.w + 1;
    }
    // Windows that don't overlap: one output for all channels, without loops around its vectors.
    if (single) {
      if (until == (int)start.w + 1) {
        const Window wd = WINDOW(0, cd.begin, args.other[0], args.size[0]);
        const Window wh = WINDOW(1, ch.begin, args.other[1], args.size[1]);
        const Window ww = WINDOW(2, cw.begin, args.other[2], args.size[2]);
        divisor = DIVISOR(wd, wh, ww);
        until = ww.end;
        if (cw.end < (int)args.other[2]) {
          until = min(until, WINDOW(2, cw.end, args.other[2], args.size[2]).begin);
        }
      }
      global const char* from =
          AT(IN, grad, PLANE(1, start) + POINT(1, cd.begin, ch.begin, cw.begin));
      global char* to = AT(IN, out, ELEMENT(0, start));
      FOR_RUN(x) {
        STORE_AT(IN, ACC, to, CHANNEL(0, x), SHARE(LOAD_AT(ACC, IN, from, CHANNEL(1, x)), divisor));
      }
      continue;
    }
#else
    const Window cd = COVER_OF(0, start.d);
    const Window ch = COVER_OF(1, start.h);
#endif
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
#if !CHANNELS_INNER
      const Window cw = COVER_OF(2, p.w);
#endif
      const uint plane = PLANE(1, p);
      TYPEV(ACC, WIDTH) sum = (TYPEV(ACC, WIDTH))(0);
      for (int d = cd.begin; d < cd.end; d++) {
        const Window wd = WINDOW(0, d, args.other[0], args.size[0]);
        for (int h = ch.begin; h < ch.end; h++) {
          const Window wh = WINDOW(1, h, args.other[1], args.size[1]);
          for (int w = cw.begin; w < cw.end; w++) {
            const Window ww = WINDOW(2, w, args.other[2], args.size[2]);
            sum += LOAD_AT(ACC, IN, grad, plane + POINT(1, d, h, w)) / DIVISOR(wd, wh, ww);
          }
        }
      }
      STORE_AT(IN, ACC, out, ELEMENT(0, p), sum);
    }
  }
}

#if LINE > 0
#define LANES 8
#define SUMS TYPEV(ACC, LANES)

// The average for contiguous rows, of LINE elements at most: columns are summed first, in vectors.
kernel ITEM_BY_ITEM void average_pool_lines(global char* out, const ulong out_offset,
                                            global const char* in, const ulong in_offset,
                                            const Arguments args, const PoolArguments pool) {
  out += out_offset;
  in += in_offset;
  TYPE(ACC) line[LINE];
  const Window first = WINDOW_OF(2, RUN_BEGIN);
  const Window last = WINDOW_OF(2, RUN_END - 1);
  FOR_ROWS(start) {
    const Window wd = WINDOW_OF(0, start.d);
    const Window wh = WINDOW_OF(1, start.h);
    const uint plane = PLANE(1, start);
    FOR_VECTORS(x, LANES, first.begin, last.end) {
      SUMS sum = (SUMS)(0);
      for (int d = wd.begin; d < wd.end; d++) {
        uint i = plane + POINT(1, d, wh.begin, 0) + x;
        for (int h = wh.begin; h < wh.end; h++, i += args.stride[1][3]) {
          sum += LOADV_AS(ACC, IN, LANES, AT(IN, in, i), 0);
        }
      }
      PASTE2(vstore, LANES)(sum, 0, line + x);
    }
    FOR_TOO_FEW(x, LANES, first.begin, last.end) {
      TYPE(ACC) sum = (TYPE(ACC))(0);
      for (int d = wd.begin; d < wd.end; d++) {
        for (int h = wh.begin; h < wh.end; h++) {
          sum += LOAD_AS(ACC, IN, in, plane + POINT(1, d, h, 0) + x);
        }
      }
      line[x] = sum;
    }
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const Window ww = WINDOW_OF(2, p.w);
      TYPEV(ACC, 4) sums = (TYPEV(ACC, 4))(0);
      int w = ww.begin;
      for (; w + 4 <= ww.end; w += 4) sums += vload4(0, line + w);
      TYPE(ACC) sum = sums.x + sums.y + (sums.z + sums.w);
      for (; w < ww.end; w++) sum += line[w];
      const bool empty = wd.end <= wd.begin || wh.end <= wh.begin || ww.end <= ww.begin;
      STORE_FROM(IN, ACC, out, ELEMENT(0, p), empty ? sum : sum / DIVISOR(wd, wh, ww));
    }
  }
}

// The gradient where a work-item takes whole planes, contiguous ones: the shares of a row of
// outputs, as a row of inputs, are added to every row of its windows. IN is ACC.
kernel ITEM_BY_ITEM void average_pool_planes(global char* out, const ulong out_offset,
                                             global const char* grad, const ulong grad_offset,
                                             const Arguments args, const PoolArguments pool) {
  out += out_offset;
  grad += grad_offset;
  const int width = pool.size[2], area = pool.size[1] * width;
  TYPE(ACC) line[LINE];
  FOR_ROWS(start) {
    FOR_RUN(plane_number) {
      const Place p = PLACE(start, plane_number);
      const uint plane = PLANE(0, p), from = PLANE(1, p);
      CLEAR_PLANE(IN, out, plane, (uint)(pool.size[0] * area));
      for (int begin = 0; begin < width; begin += LINE) {
        const int count = min(LINE, width - begin);
        const int w_begin = COVER(2, begin, (int)args.other[2], width).begin;
        const int w_end = COVER(2, begin + count - 1, (int)args.other[2], width).end;
        for (uint d = 0; d < args.other[0]; d++) {
          const Window wd = WINDOW(0, (int)d, (int)args.other[0], pool.size[0]);
          for (uint h = 0; h < args.other[1]; h++) {
            const Window wh = WINDOW(1, (int)h, (int)args.other[1], pool.size[1]);
            for (int k = 0; k < LINE && k < count; k++) line[k] = 0;
            for (int w = w_begin; w < w_end; w++) {
              const Window ww = WINDOW(2, w, (int)args.other[2], width);
              const TYPE(ACC) share =
                  LOAD(IN, grad, from + POINT(1, d, h, w)) / DIVISOR(wd, wh, ww);
              for (int k = max(ww.begin - begin, 0); k < min(ww.end - begin, count); k++)
                line[k] += share;
            }
            for (int i = wd.begin; i < wd.end; i++) {
              for (int j = wh.begin; j < wh.end; j++) {
                global TYPE(ACC)* row =
                    (global TYPE(ACC)*)AT(IN, out, plane) + i * area + j * width + begin;
                int k = 0;
                for (; k + LANES <= count; k += LANES) {
                  const SUMS sum =
                      PASTE2(vload, LANES)(0, row + k) + PASTE2(vload, LANES)(0, line + k);
                  PASTE2(vstore, LANES)(sum, 0, row + k);
                }
                for (; k < count; k++) row[k] += line[k];
              }
            }
          }
        }
      }
    }
  }
}
#endif
