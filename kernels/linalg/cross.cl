// The cross product of vectors of three elements. Integers wrap, half types are computed in float.
//
// Compile parameter: IN (tag of all operands).
#include "include/dtype.clh"
#include "include/indexing.clh"
#include "linalg/cross_arguments.clh"

#ifndef IN
#define IN f32
#endif

typedef TYPE(IN) T;

#define TIMES_complex(x, y) \
  ((T)((x).s0 * (y).s0 - (x).s1 * (y).s1, (x).s0 * (y).s1 + (x).s1 * (y).s0))
#define TIMES_real(x, y) ((T)((x) * (y)))
#define TIMES_integer(x, y) ((T)((x) * (y)))
#define TIMES(x, y) PASTE2(TIMES_, CLASS(IN))(x, y)

/// Global size: n or more.
kernel void cross_product(global char* out, const ulong out_offset, global const char* a,
                          const ulong a_offset, global const char* b, const ulong b_offset,
                          const CrossArguments arguments) {
  out += out_offset;
  a += a_offset;
  b += b_offset;
  const size_t i = get_global_id(0);
  if (i >= arguments.n) return;
  uint at[3] = {0};
  DECODE_OFFSETS(at, 3, (uint)i, arguments.dims, arguments.size, arguments.stride);
  T x[3], y[3];
  for (int k = 0; k < 3; k++) {
    x[k] = LOAD(IN, a + at[1] + k * arguments.step[1], 0);
    y[k] = LOAD(IN, b + at[2] + k * arguments.step[2], 0);
  }
  for (int k = 0; k < 3; k++) {
    const int j = (k + 1) % 3, l = (k + 2) % 3;
    const T value = (T)(TIMES(x[j], y[l]) - TIMES(x[l], y[j]));
    STORE(IN, out + at[0] + k * arguments.step[0], 0, value);
  }
}
