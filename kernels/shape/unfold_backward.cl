// The gradient of Tensor.unfold: every element of the input sums the windows it lies in.
//
// Compile parameters: E (tag), C (the tag summed in).
#include "include/dtype.clh"
#include "include/indexing.clh"
#include "shape/arguments.clh"

#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif

/// Global size: n or more.
kernel void unfold_backward(global char* out, const ulong out_offset, global const char* in,
                            const ulong in_offset, const UnfoldArguments layout) {
  out += out_offset;
  in += in_offset;
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  const uint position = (uint)i % layout.size[0];
  uint at[2] = {0};
  DECODE_OFFSETS(at, 2, (uint)i, layout.dims, layout.size, layout.stride);
  // Windows w with w * distance <= position < w * distance + size.
  const uint past = position < layout.window_size
                        ? 0
                        : (position - layout.window_size) / layout.window_distance + 1;
  const uint end = min(position / layout.window_distance + 1, layout.windows);
  TYPE(C) sum = (TYPE(C))(0);
  for (uint w = past; w < end; w++) {
    const uint inside = position - w * layout.window_distance;
    sum += LOAD_AS(C, E, in + at[1] + w * layout.window_step + inside * layout.inside_step, 0);
  }
  STORE_FROM(E, C, out + at[0], 0, sum);
}
