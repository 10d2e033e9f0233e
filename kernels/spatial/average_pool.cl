// Average pooling and its gradient, by windows of a fixed size or adaptive.
//
// Compile parameters: IN, ACC (the tags stored and summed in), ADAPTIVE.
#include "include/item_by_item.clh"
#include "spatial/pool.clh"

#define DIVISOR(d, h, w) \
  ((TYPE(ACC))(pool.divisor != 0 ? pool.divisor : (d).count * (h).count * (w).count))

kernel ITEM_BY_ITEM void average_pool(global char* out_base, global const char* in_base,
                                      const SpatialArgs args, const PoolArgs pool) {
  global char* out = out_base + args.offset[0];
  global const char* in = in_base + args.offset[1];
  FOR_ROWS(row) {
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const Window wd = WINDOW(0, p.d, args.size[0], args.other[0]);
      const Window wh = WINDOW(1, p.h, args.size[1], args.other[1]);
      const Window ww = WINDOW(2, p.w, args.size[2], args.other[2]);
      const uint plane = PLANE(1, p);
      TYPEV(ACC, WIDTH) sum = (TYPEV(ACC, WIDTH))(0);
      for (int d = wd.begin; d < wd.end; d++) {
        for (int h = wh.begin; h < wh.end; h++) {
          uint i = plane + POINT(1, d, h, ww.begin);
          for (int w = ww.begin; w < ww.end; w++, i += args.stride[1][4]) sum += LOAD_AT(ACC, IN, in, i);
        }
      }
      // A window of padding alone is 0, whatever its size.
      const bool empty = wd.end <= wd.begin || wh.end <= wh.begin || ww.end <= ww.begin;
      STORE_AT(IN, ACC, out, ELEMENT(0, p), empty ? sum : sum / DIVISOR(wd, wh, ww));
    }
  }
}

kernel ITEM_BY_ITEM void average_pool_backward(global char* out_base, global const char* grad_base,
                                               const SpatialArgs args, const PoolArgs pool) {
  global char* out = out_base + args.offset[0];
  global const char* grad = grad_base + args.offset[1];
  FOR_ROWS(row) {
    const Place start = PLACE(row, 0);
    const Window cd = COVER(0, start.d, args.other[0], args.size[0]);
    const Window ch = COVER(1, start.h, args.other[1], args.size[1]);
#if CHANNELS_INNER
    const Window cw = COVER(2, start.w, args.other[2], args.size[2]);
    // Windows that don't overlap: one output for all channels, without loops around its vectors.
    if (cd.count == 1 && ch.count == 1 && cw.count == 1) {
      const Window wd = WINDOW(0, cd.begin, args.other[0], args.size[0]);
      const Window wh = WINDOW(1, ch.begin, args.other[1], args.size[1]);
      const Window ww = WINDOW(2, cw.begin, args.other[2], args.size[2]);
      const TYPEV(ACC, WIDTH) divisor = (TYPEV(ACC, WIDTH))DIVISOR(wd, wh, ww);
      const uint point = POINT(1, cd.begin, ch.begin, cw.begin);
      FOR_RUN(x) {
        const Place p = PLACE(row, x);
        STORE_AT(IN, ACC, out, ELEMENT(0, p), LOAD_AT(ACC, IN, grad, PLANE(1, p) + point) / divisor);
      }
      continue;
    }
#endif
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
#if !CHANNELS_INNER
      const Window cw = COVER(2, p.w, args.other[2], args.size[2]);
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

// The same where a work-item takes whole planes, contiguous ones: every output adds to its window. IN is ACC.
kernel ITEM_BY_ITEM void average_pool_planes(global char* out_base, global const char* grad_base,
                                             const SpatialArgs args, const PoolArgs pool) {
  global char* out = out_base + args.offset[0];
  global const char* grad = grad_base + args.offset[1];
  const int width = pool.size[2], area = pool.size[1] * width;
  FOR_ROWS(row) {
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const uint plane = PLANE(0, p), from = PLANE(1, p);
      CLEAR_PLANE(IN, out, plane, (uint)(pool.size[0] * area));
      for (uint d = 0; d < args.other[0]; d++) {
        const Window wd = WINDOW(0, (int)d, (int)args.other[0], pool.size[0]);
        for (uint h = 0; h < args.other[1]; h++) {
          const Window wh = WINDOW(1, (int)h, (int)args.other[1], pool.size[1]);
          for (uint w = 0; w < args.other[2]; w++) {
            const Window ww = WINDOW(2, (int)w, (int)args.other[2], width);
            const TYPE(ACC) share = LOAD(IN, grad, from + POINT(1, d, h, w)) / DIVISOR(wd, wh, ww);
            for (int i = wd.begin; i < wd.end; i++) {
              for (int j = wh.begin; j < wh.end; j++) {
                global TYPE(ACC)* line = (global TYPE(ACC)*)AT(IN, out, plane) + i * area + j * width;
                for (int k = ww.begin; k < ww.end; k++) line[k] += share;
              }
            }
          }
        }
      }
    }
  }
}
