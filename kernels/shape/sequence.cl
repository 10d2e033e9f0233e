// Arithmetic and geometric sequences: arange, range, linspace, logspace.
//
// Compile parameters: OUT (tag), C (the tag computed with: i64, f32, f64, c64, c128), SYMMETRIC (1:
// the second half counts back from the end, so that both ends are exact), POWER (1: base to the power
// of the sequence; C is real).
#include "include/dtype.clh"

#ifndef OUT
#define OUT f32
#endif
#ifndef C
#define C f32
#endif
#ifndef SYMMETRIC
#define SYMMETRIC 0
#endif
#ifndef POWER
#define POWER 0
#endif

#define SCALE_real(x, i) ((x) * (TYPE(C))(i))
#define SCALE_signed(x, i) ((x) * (TYPE(C))(i))
#define SCALE_complex(x, i) ((x) * (i))
#define SCALE(x, i) PASTE2(SCALE_, KIND(C))(x, i)

/// out is contiguous. Global size: n or more.
kernel void sequence(global char *out, ulong out_offset, ulong n, TYPE(C) start, TYPE(C) end,
                     TYPE(C) step, TYPE(C) base) {
  const ulong i = get_global_id(0);
  if (i >= n) return;
#if SYMMETRIC
  TYPE(C) value = i < n / 2 ? start + SCALE(step, i) : end - SCALE(step, n - 1 - i);
#else
  TYPE(C) value = start + SCALE(step, i);
#endif
#if POWER
  value = pow(base, value);
#endif
  STORE_FROM(OUT, C, out + out_offset, i, value);
}
