// Values to try kernels on. TAG: a real or integer tag.
#ifndef TAG
#define TAG f32
#endif

#include "include/dtype.clh"

#define VALUE_OF_real(x) ((float)(x) * 0.25f)
#define VALUE_OF_signed(x) ((float)((x) / 2))
#define VALUE_OF_unsigned(x) ((float)abs((x) / 2))
#define VALUE_OF(x) PASTE2(VALUE_OF_, KIND(TAG))(x)

/// out[i] = one of -1, -3/4, ..., 1 (integers: -2 to 2 or 0 to 2), scattered and the same for the
/// same seed. Sums of their products are exact in float, whatever the order, unless there are very
/// many. Global size: any.
kernel void tuner_fill(global char* out, ulong out_offset, const ulong count, const uint seed) {
  for (ulong i = get_global_id(0); i < count; i += get_global_size(0)) {
    uint bits = ((uint)i ^ (uint)(i >> 32)) * 0x9e3779b9u + seed;
    bits = (bits ^ (bits >> 15)) * 0x85ebca6bu;
    bits ^= bits >> 13;
    const int x = (int)(bits % 9) - 4;
    STORE_FROM(TAG, f32, out + out_offset, i, VALUE_OF(x));
  }
}
