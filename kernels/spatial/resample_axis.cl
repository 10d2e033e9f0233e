// Resampling along one axis by a table of weights (resample_table.cl), and the transpose of it.
//
// Compile parameters: FROM and TO (the tags read and written), ACC (that of sums and weights), AXIS
// (0 depth, 1 height, 2 width), FIXED (the table holds fixed-point integers; FROM and TO are u8).
#ifndef FROM
#define FROM f32
#endif
#ifndef TO
#define TO f32
#endif
#ifndef AXIS
#define AXIS 2
#endif
#ifndef FIXED
#define FIXED 0
#endif
#include "include/item_by_item.clh"
#include "spatial/spatial.clh"

#define VALUES TYPEV(ACC, WIDTH)

#define TABLE(outputs)                                                          \
  table += table_offset;                                                        \
  global const TYPE(ACC)* weights = (global const TYPE(ACC)*)table;             \
  global const int* begins =                                                    \
      (global const int*)(table + (ulong)(outputs) * taps * sizeof(TYPE(ACC))); \
  global const int* counts = begins + (outputs)

#if AXIS == 0
#define ALONG(p) (p).d
#elif AXIS == 1
#define ALONG(p) (p).h
#else
#define ALONG(p) (p).w
#endif
#define STEP args.stride[1][2 + AXIS]

// Where the line through `p` starts in operand 1.
static inline Place line_start(Place p) {
  ALONG(p) = 0;
  return p;
}

kernel ITEM_BY_ITEM void resample_axis(global char* out, const ulong out_offset,
                                       global const char* in, const ulong in_offset,
                                       global const char* table, const ulong table_offset,
                                       const Arguments args, const uint taps) {
  out += out_offset;
  in += in_offset;
  TABLE(args.size[AXIS]);
#if FIXED
  const int bits = counts[args.size[AXIS]];
#endif
  FOR_ROWS(start) {
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
      const uint o = ALONG(p);
      const int count = counts[o];
      global const TYPE(ACC)* weight = weights + (ulong)o * taps;
      uint i = ELEMENT(1, line_start(p)) + (uint)begins[o] * STEP;
#if FIXED
      TYPEV(i32, WIDTH) sum = (TYPEV(i32, WIDTH))(1 << (bits - 1));
      for (int k = 0; k < count; k++, i += STEP) sum += LOAD_AT(i32, u8, in, i) * (int)weight[k];
      const TYPEV(i32, WIDTH) rounded =
          clamp(sum >> bits, (TYPEV(i32, WIDTH))(0), (TYPEV(i32, WIDTH))(255));
      STORE_AT(u8, i32, out, ELEMENT(0, p), rounded);
#else
      VALUES sum = (VALUES)(0);
      for (int k = 0; k < count; k++, i += STEP) sum += weight[k] * LOAD_AT(ACC, FROM, in, i);
      STORE_AT(TO, ACC, out, ELEMENT(0, p), sum);
#endif
    }
  }
}

#if !FIXED
// Whether a row's steps are those of the axis.
#define ALONG_ROW (AXIS == 2 && !CHANNELS_INNER)

// The outputs that look at input i are neighbours, for windows move on with the output: a bisection
// finds the first.
static inline uint first_output(int i, uint outputs, global const int* begins,
                                global const int* counts) {
  uint o = 0;
  for (uint end = outputs; o < end;) {
    const uint middle = (o + end) / 2;
    if (begins[middle] + counts[middle] <= i) {
      o = middle + 1;
    } else {
      end = middle;
    }
  }
  return o;
}

// Operand 0 is the input's gradient, 1 the output's.
kernel ITEM_BY_ITEM void resample_axis_backward(global char* out, const ulong out_offset,
                                                global const char* grad, const ulong grad_offset,
                                                global const char* table, const ulong table_offset,
                                                const Arguments args, const uint taps) {
  out += out_offset;
  grad += grad_offset;
  const uint outputs = args.other[AXIS];
  TABLE(outputs);
#if ALONG_ROW
  const uint first = first_output((int)RUN_BEGIN, outputs, begins, counts);
#endif
  FOR_ROWS(start) {
#if ALONG_ROW
    uint o_first = first;
#else
    const int i = (int)ALONG(start);
    const uint o_first = first_output(i, outputs, begins, counts);
#endif
    FOR_RUN(x) {
      const Place p = PLACE(start, x);
#if ALONG_ROW
      const int i = (int)x;
      while (o_first < outputs && begins[o_first] + counts[o_first] <= i) o_first++;
#endif
      const uint line = ELEMENT(1, line_start(p));
      VALUES sum = (VALUES)(0);
      for (uint o = o_first; o < outputs && begins[o] <= i; o++) {
        sum += weights[(ulong)o * taps + (uint)(i - begins[o])] *
               LOAD_AT(ACC, FROM, grad, line + o * STEP);
      }
      STORE_AT(TO, ACC, out, ELEMENT(0, p), sum);
    }
  }
}
#endif
