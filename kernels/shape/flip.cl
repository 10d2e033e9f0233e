// Copies with a stride of either sign per dimension: flip.
//
// Compile parameters: E (an unsigned tag of the element's size, u128 for 16 bytes), and for rows
// WIDTH (elements of a vector), TURN (0: the rows lie with any strides, 1: contiguous in both, 2:
// contiguous, last element first in one of them).
#include "include/dtype.clh"
#include "include/indexing.clh"
#include "include/item_by_item.clh"
#include "shape/arguments.clh"

#ifndef E
#define E u32
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef TURN
#define TURN 0
#endif

/// Global size: n or more.
kernel void copy_signed(global char* out, const ulong out_offset, global const char* in,
                        const ulong in_offset, const FlipArguments layout) {
  out += out_offset;
  in += in_offset;
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  uint at[2] = {0};
  DECODE_OFFSETS(at, 2, (uint)i, layout.dims, layout.size, layout.stride);
  const TYPE(E) value = LOAD(E, in + (long)(int)at[1], 0);
  STORE(E, out + (long)(int)at[0], 0, value);
}

#define REVERSED_2(v) (v).s10
#define REVERSED_4(v) (v).s3210
#define REVERSED_8(v) (v).s76543210
#define REVERSED_16(v) (v).sfedcba9876543210
#define REVERSED(v) PASTE2(REVERSED_, WIDTH)(v)

/// For CPUs: rows along dimension 0 in runs, `together` rows of the next dimensions to a work-item.
/// Global size: ceil(size[0] / run), ceil(n / size[0] / together), or more.
kernel ITEM_BY_ITEM void copy_signed_rows(global char* out, const ulong out_offset,
                                          global const char* in, const ulong in_offset,
                                          const FlipArguments layout) {
  out += out_offset;
  in += in_offset;
  const long length = layout.size[0];
  const long first = get_global_id(0) * layout.run, end = min(first + layout.run, length);
  const uint first_row = get_global_id(1) * layout.together;
  const uint end_row = min(first_row + layout.together, layout.n / layout.size[0]);
  if (first >= end) return;
  const long out_step = (int)layout.stride[0][0], in_step = (int)layout.stride[1][0];
  for (uint row = first_row; row < end_row; row++) {
    uint at[2] = {0};
    uint rest = row;
    FOR_DIMENSIONS(d, 1, layout.dims, layout.size) {
      const uint quotient = rest / layout.size[d], coordinate = rest - quotient * layout.size[d];
      rest = quotient;
      for (uint k = 0; k < 2; k++) at[k] += coordinate * layout.stride[k][d];
    }
    global char* const to = out + (long)(int)at[0];
    global const char* const from = in + (long)(int)at[1];
    long x = first;
#if TURN > 0
    for (; x + WIDTH <= end; x += WIDTH) {
      // A vector starts at whichever of its ends has the lower address.
      global char* const p = to + (out_step < 0 ? x + WIDTH - 1 : x) * out_step;
      global const char* const q = from + (in_step < 0 ? x + WIDTH - 1 : x) * in_step;
      const TYPEV(E, WIDTH) v = LOADV(E, WIDTH, q, 0);
#if TURN == 2
      STOREV(E, WIDTH, p, 0, REVERSED(v));
#else
      STOREV(E, WIDTH, p, 0, v);
#endif
    }
#endif
    for (; x < end; x++) STORE(E, to + x * out_step, 0, LOAD(E, from + x * in_step, 0));
  }
}
