// im2col and col2im: the windows of an image as columns, and the sum of columns as an image.
//
// Columns are seen as [batch][channel][tap][window row][window column], where a tap is a position in the
// kernel.
//
// Compile parameters: E (im2col: the tag of the elements' bits), COPY (its lanes where windows are one apart;
// 1: none), IN and ACC (col2im: the tags stored and summed in), UNIT_STRIDE (col2im: windows are one apart).
#ifndef COPY
#define COPY 1
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#include "include/item_by_item.clh"
#include "spatial/spatial.clh"

// In order height, width.
typedef struct {
  int kernel_size[2];
  int stride[2];
  int pad[2];
  int dilation[2];
} FoldArgs;

kernel ITEM_BY_ITEM void im2col(global char* columns_base, global const char* image_base,
                                const SpatialArgs args, const FoldArgs fold) {
  global char* columns = columns_base + args.offset[0];
  global const char* image = image_base + args.offset[1];
  const int height = (int)args.other[1], width = (int)args.other[2];
  const TYPE(E) zero = (TYPE(E))(0);
  FOR_ROWS(row) {
    const Place start = PLACE(row, 0);
#if COPY > 1
    const int tap_h = (int)start.d / fold.kernel_size[1], tap_w = (int)start.d % fold.kernel_size[1];
    const int h = (int)start.h * fold.stride[0] - fold.pad[0] + tap_h * fold.dilation[0];
    const int shift = tap_w * fold.dilation[1] - fold.pad[1];  // from a window's column to the image's
    const uint to = ELEMENT(0, start);
    const uint from = PLANE(1, start) + POINT(1, 0, (uint)h, 0);
    const bool inside = h >= 0 && h < height;
    const uint end = RUN_END;
    const uint image_begin = inside ? (uint)max(-shift, 0) : end;
    const uint image_end = inside ? (uint)clamp(width - shift, 0, (int)end) : 0;
    uint x = RUN_BEGIN;
    for (; x < min(image_begin, end); x++) STORE(E, columns, to + x, zero);
    for (; x + COPY <= image_end; x += COPY) {
      STOREV(E, COPY, AT(E, columns, to + x), 0,
             LOADV(E, COPY, AT(E, image, from + (uint)((int)x + shift)), 0));
    }
    for (; x < image_end; x++) {
      STORE(E, columns, to + x, LOAD(E, image, from + (uint)((int)x + shift)));
    }
    for (; x < end; x++) STORE(E, columns, to + x, zero);
#else
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const int tap_h = (int)p.d / fold.kernel_size[1], tap_w = (int)p.d % fold.kernel_size[1];
      const int h = (int)p.h * fold.stride[0] - fold.pad[0] + tap_h * fold.dilation[0];
      const int w = (int)p.w * fold.stride[1] - fold.pad[1] + tap_w * fold.dilation[1];
      TYPE(E) value = zero;
      if (h >= 0 && h < height && w >= 0 && w < width) {
        value = LOAD(E, image, PLANE(1, p) + POINT(1, 0, (uint)h, (uint)w));
      }
      STORE(E, columns, ELEMENT(0, p), value);
    }
#endif
  }
}

// The window that sees a position by tap `tap`, -1 if none does.
static inline int window_at(int position, int tap, int stride, int pad, int dilation, int windows) {
  const int start = position + pad - tap * dilation;
  const int window = UNIT_STRIDE ? start : start / stride;
  return start >= 0 && window < windows && (UNIT_STRIDE || window * stride == start) ? window : -1;
}

kernel ITEM_BY_ITEM void col2im(global char* image_base, global const char* columns_base,
                                const SpatialArgs args, const FoldArgs fold) {
  global char* image = image_base + args.offset[0];
  global const char* columns = columns_base + args.offset[1];
  FOR_ROWS(row) {
    FOR_RUN(x) {
      const Place p = PLACE(row, x);
      const uint plane = PLANE(1, p);
      TYPE(ACC) sum = (TYPE(ACC))(0);
      for (int kh = 0; kh < fold.kernel_size[0]; kh++) {
        const int h = window_at((int)p.h, kh, fold.stride[0], fold.pad[0], fold.dilation[0],
                                (int)args.other[1]);
        if (h < 0) continue;
        for (int kw = 0; kw < fold.kernel_size[1]; kw++) {
          const int w = window_at((int)p.w, kw, fold.stride[1], fold.pad[1], fold.dilation[1],
                                  (int)args.other[2]);
          if (w < 0) continue;
          const uint tap = (uint)(kh * fold.kernel_size[1] + kw);
          sum += LOAD_AS(ACC, IN, columns, plane + POINT(1, tap, (uint)h, (uint)w));
        }
      }
      STORE_FROM(IN, ACC, image, ELEMENT(0, p), sum);
    }
  }
}
