// im2col and col2im: the windows of an image as columns, and the sum of columns as an image.
//
// Columns are seen as [batch][channel][tap][window row][window column], where a tap is a position
// in the kernel.
//
// Compile parameters: E (im2col: the tag of the elements' bits), COPY (its lanes where windows are
// one apart; 1: none), IN and ACC (col2im: the tags stored and summed in), UNIT_STRIDE (col2im:
// windows are one apart), LINE (col2im_lines: the longest chunk of a row).
#ifndef LINE
#define LINE 1
#endif
#ifndef COPY
#define COPY 1
#endif
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#include "include/item_by_item.clh"
#include "spatial/spatial.clh"

// In order height, width.
kernel ITEM_BY_ITEM void im2col(global char* columns, const ulong columns_offset,
                                global const char* image, const ulong image_offset,
                                const Arguments args, const FoldArguments fold) {
  columns += columns_offset;
  image += image_offset;
  const int height = (int)args.other[1], width = (int)args.other[2];
  const TYPE(E) zero = (TYPE(E))(0);
  FOR_ROWS(start) {
#if COPY > 1
    const int tap_h = (int)start.d / fold.kernel_size[1],
              tap_w = (int)start.d % fold.kernel_size[1];
    const int h = (int)start.h * fold.stride[0] - fold.pad[0] + tap_h * fold.dilation[0];
    const int shift =
        tap_w * fold.dilation[1] - fold.pad[1];  // from a window's column to the image's
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
      const Place p = PLACE(start, x);
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
  const int rest = UNIT_STRIDE ? 0 : start - window * stride;
  return start >= 0 && window < windows && rest == 0 ? window : -1;
}

kernel ITEM_BY_ITEM void col2im(global char* image, const ulong image_offset,
                                global const char* columns, const ulong columns_offset,
                                const Arguments args, const FoldArguments fold) {
  image += image_offset;
  columns += columns_offset;
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
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

#if LINE > 1
#define LANES 8

// Sums columns of contiguous rows: a tap adds a vector to a row, or a strided one.
kernel ITEM_BY_ITEM void col2im_lines(global char* image, const ulong image_offset,
                                      global const char* columns, const ulong columns_offset,
                                      const Arguments args, const FoldArguments fold) {
  image += image_offset;
  columns += columns_offset;
  const int begin = (int)RUN_BEGIN, end = (int)RUN_END;
  TYPE(ACC) line[LINE];
  FOR_ROWS(start) {
    for (int i = 0; i < LINE && i < end - begin; i++) line[i] = (TYPE(ACC))(0);
    for (int kh = 0; kh < fold.kernel_size[0]; kh++) {
      const int h = window_at((int)start.h, kh, fold.stride[0], fold.pad[0], fold.dilation[0],
                              (int)args.other[1]);
      if (h < 0) continue;
      for (int kw = 0; kw < fold.kernel_size[1]; kw++) {
        // Window w shows column w * stride + shift.
        const int shift = kw * fold.dilation[1] - fold.pad[1], stride = fold.stride[1];
        const int first = max(begin - shift + stride - 1, 0) / stride;
        const int count =
            min((max(end - shift, 0) + stride - 1) / stride, (int)args.other[2]) - first;
        const uint tap = (uint)(kh * fold.kernel_size[1] + kw);
        global const char* row =
            AT(IN, columns, PLANE(1, start) + POINT(1, tap, (uint)h, (uint)first));
       private TYPE(ACC)* to = line + (first * stride + shift - begin);
        int w = 0;
#if UNIT_STRIDE
        for (; w + LANES <= count; w += LANES) {
          const TYPEV(ACC, LANES) values = LOADV_AS(ACC, IN, LANES, AT(IN, row, w), 0);
          PASTE2(vstore, LANES)(PASTE2(vload, LANES)(0, to + w) + values, 0, to + w);
        }
#endif
        for (; w < count; w++) to[w * stride] += LOAD_AS(ACC, IN, row, w);
      }
    }
    const uint from = ELEMENT(0, start) + (uint)begin;
    int i = 0;
    for (; i + LANES <= end - begin; i += LANES) {
      STOREV_FROM(IN, ACC, LANES, AT(IN, image, from + i), 0, PASTE2(vload, LANES)(0, line + i));
    }
    for (; i < end - begin; i++) STORE_FROM(IN, ACC, image, from + i, line[i]);
  }
}
#endif
