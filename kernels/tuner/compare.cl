// Whether two results are the same but for rounding. TAG: a real or integer tag.
#ifndef TAG
#define TAG f32
#endif

#include "include/dtype.clh"

typedef TYPE(TAG) T;

// Both NaN, or both the same infinity, is the same.
#define SAME_real(x, y) \
  ((x) == (y) || (isnan(x) && isnan(y)) || fabs((x) - (y)) <= tolerance * (fabs(y) + scale))
#define SAME_signed(x, y) ((x) == (y))
#define SAME_unsigned(x, y) ((x) == (y))
#define SAME(x, y) PASTE2(SAME_, KIND(TAG))(x, y)

/// different[0] becomes 1 if an element of x is further from y's than tolerance * (|y| + scale);
/// integers have to be equal. Global size: any.
kernel void tuner_compare(global const char* x, ulong x_offset, global const char* y,
                          ulong y_offset, global char* different, ulong different_offset,
                          const ulong count, const float tolerance, const float scale) {
  for (ulong i = get_global_id(0); i < count; i += get_global_size(0)) {
    const T a = LOAD(TAG, x + x_offset, i), b = LOAD(TAG, y + y_offset, i);
    if (!SAME(a, b)) *(global int*)(different + different_offset) = 1;
  }
}
