// The cross product of vectors of three elements. Integers wrap, half types are computed in float.
//
// Compile parameter: IN (tag of all operands).
#include "include/dtype.clh"
#include "include/indexing.clh"

#ifndef IN
#define IN f32
#endif

typedef TYPE(IN) T;

#define TIMES_complex(x, y) \
  ((T)((x).s0 * (y).s0 - (x).s1 * (y).s1, (x).s0 * (y).s1 + (x).s1 * (y).s0))
#define TIMES_real(x, y) ((T)((x) * (y)))
#define TIMES_integer(x, y) ((T)((x) * (y)))
#define TIMES(x, y) PASTE2(TIMES_, CLASS(IN))(x, y)

typedef struct {
  ulong offset[3];  // bytes: out, a, b
  long step[3];     // bytes from one element of a vector to the next
  uint n;           // vectors
  uint dims;
  uint size[16];
  uint stride[3][16];  // bytes
} CrossLayout;

/// Global size: n or more.
kernel void cross_product(global char* out, global const char* a, global const char* b,
                          const CrossLayout layout) {
  const size_t i = get_global_id(0);
  if (i >= layout.n) return;
  uint at[3] = {0};
  DECODE_OFFSETS(at, 3, (uint)i, layout.dims, layout.size, layout.stride);
  T x[3], y[3];
  for (int k = 0; k < 3; k++) {
    x[k] = LOAD(IN, a + layout.offset[1] + at[1] + k * layout.step[1], 0);
    y[k] = LOAD(IN, b + layout.offset[2] + at[2] + k * layout.step[2], 0);
  }
  for (int k = 0; k < 3; k++) {
    const int j = (k + 1) % 3, l = (k + 2) % 3;
    const T value = (T)(TIMES(x[j], y[l]) - TIMES(x[l], y[j]));
    STORE(IN, out + layout.offset[0] + at[0] + k * layout.step[0], 0, value);
  }
}
