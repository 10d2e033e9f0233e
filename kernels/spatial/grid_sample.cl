// Grid sampling and its gradients. A location's taps are found once for all channels.
//
// Compile parameters: those of grid_sample.clh; SCATTER defined for grid_sample_scatter. Gradients
// of the input are summed in ACC.
#include "include/item_by_item.clh"
#include "spatial/grid_sample.clh"
#ifdef SCATTER
#include "include/atomics.clh"
#endif

// Operand 0 is the output, 1 the input, both with a channel for each of a work-item's
// `grid.channels`; 2 the grid.
kernel ITEM_BY_ITEM void grid_sample(global char* out, const ulong out_offset,
                                     global const char* in, const ulong in_offset,
                                     global const char* numbers, const ulong numbers_offset,
                                     const Arguments args, const GridArguments grid) {
  out += out_offset;
  in += in_offset;
  numbers += numbers_offset;
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      REACHES(numbers, ELEMENT(2, p), args.other);
      uint to = ELEMENT(0, p), from = PLANE(1, p);
      for (uint c = 0; c < grid.channels; c++) {
        SCALAR sum = SEEN_OUTSIDE;
        FOR_TAPS(kd, kh, kw) {
          sum += TAP_WEIGHT(kd, kh, kw) * LOAD_AS(ACC, IN, in, from + TAP_POINT(1, kd, kh, kw));
        }
        STORE_FROM(IN, ACC, out, to, sum);
        to += grid.channel_stride[0];
        from += grid.channel_stride[1];
      }
    }
  }
}

// Operand 0 is the output's gradient with its channels left out, 1 the input, 2 the grid, 3 its
// gradient.
kernel ITEM_BY_ITEM void grid_sample_grid(global const char* grad, const ulong grad_offset,
                                          global const char* in, const ulong in_offset,
                                          global const char* numbers, const ulong numbers_offset,
                                          global char* out, const ulong out_offset,
                                          const Arguments args, const GridArguments grid) {
  grad += grad_offset;
  in += in_offset;
  numbers += numbers_offset;
  out += out_offset;
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      REACHES(numbers, ELEMENT(2, p), args.other);
      uint at = ELEMENT(0, p), from = PLANE(1, p);
      SCALAR by_w = 0, by_h = 0, by_d = 0;
#if MODE != 1
      for (uint c = 0; c < grid.channels; c++) {
        const SCALAR g = LOAD_AS(ACC, IN, grad, at);
        FOR_TAPS(kd, kh, kw) {
          const SCALAR value = g * LOAD_AS(ACC, IN, in, from + TAP_POINT(1, kd, kh, kw));
          by_w += value * DEPTH_WEIGHT(kd) * h.weight[kh] * w.slope[kw];
          by_h += value * DEPTH_WEIGHT(kd) * h.slope[kh] * w.weight[kw];
          by_d += value * DEPTH_SLOPE(kd) * h.weight[kh] * w.weight[kw];
        }
        at += args.stride[0][1];
        from += args.stride[1][1];
      }
#endif
      const uint to = ELEMENT(3, p);
      STORE_FROM(IN, ACC, out, to, by_w);
      STORE_FROM(IN, ACC, out, to + grid.gradient_stride, by_h);
#if AXES == 3
      STORE_FROM(IN, ACC, out, to + 2 * grid.gradient_stride, by_d);
#endif
    }
  }
}

// The input's gradient where every channel has a work-item of its own, that walks over all
// locations: in order, so that results don't vary. Operand 0 is a tensor with one element for each
// channel of each sample, 1 the zeroed gradient, 2 the grid, 3 the output's gradient.
kernel ITEM_BY_ITEM void grid_sample_planes(global const char* unused, const ulong unused_offset,
                                            global char* out, const ulong out_offset,
                                            global const char* numbers, const ulong numbers_offset,
                                            global const char* grad, const ulong grad_offset,
                                            const Arguments args, const GridArguments grid) {
  out += out_offset;
  numbers += numbers_offset;
  grad += grad_offset;
  FOR_ROWS(start) {
    FOR_RUN(x) {
      Place p = PLACE(start, x);
      const uint plane = PLANE(1, p), from = PLANE(3, p);
      const uint grid_plane = p.n * args.stride[2][0];
      for (uint od = 0; od < grid.locations[0]; od++) {
        for (uint oh = 0; oh < grid.locations[1]; oh++) {
          for (uint ow = 0; ow < grid.locations[2]; ow++) {
            REACHES(numbers, grid_plane + POINT(2, od, oh, ow), args.other);
            const SCALAR g = LOAD_AS(ACC, IN, grad, from + POINT(3, od, oh, ow));
            FOR_TAPS(kd, kh, kw) {
              const uint to = plane + TAP_POINT(1, kd, kh, kw);
              const SCALAR sum = LOAD(ACC, out, to) + TAP_WEIGHT(kd, kh, kw) * g;
              STORE(ACC, out, to, sum);
            }
          }
        }
      }
    }
  }
}

#ifdef SCATTER
// The gradient by atomic additions. Operand 0 is the output's gradient with its channels left out,
// 1 the zeroed gradient, 2 the grid.
kernel ITEM_BY_ITEM void grid_sample_scatter(global const char* grad, const ulong grad_offset,
                                             global char* out, const ulong out_offset,
                                             global const char* numbers, const ulong numbers_offset,
                                             const Arguments args, const GridArguments grid) {
  grad += grad_offset;
  out += out_offset;
  numbers += numbers_offset;
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      REACHES(numbers, ELEMENT(2, p), args.other);
      uint at = ELEMENT(0, p), plane = PLANE(1, p);
      for (uint c = 0; c < grid.channels; c++) {
        const SCALAR g = LOAD_AS(ACC, IN, grad, at);
        FOR_TAPS(kd, kh, kw) {
          const uint to = plane + TAP_POINT(1, kd, kh, kw);
          ATOMIC(add, ACC)(AT(ACC, out, to), TAP_WEIGHT(kd, kh, kw) * g);
        }
        at += args.stride[0][1];
        plane += args.stride[1][1];
      }
    }
  }
}
#endif
