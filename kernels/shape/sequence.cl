// Arithmetic and geometric sequences: arange, range, linspace, logspace.
//
// Compile parameters: OUT (tag), C (the tag computed with: i64, f32, f64, c64, c128), SYMMETRIC (1:
// the second half counts back from the end, so that both ends are exact), POWER (1: base to the
// power of the sequence; C is real), WIDTH (elements of a vector; 1 if C is complex).
#include "include/dtype.clh"
#include "include/item_by_item.clh"

#ifndef OUT
#define OUT f32
#endif
#ifndef C
#define C f32
#endif
#ifndef WIDTH
#define WIDTH 1
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

#if POWER
#define RESULT(base, x) pow(base, x)
#else
#define RESULT(base, x) (x)
#endif

#if WIDTH > 1
// Positions i and the next ones.
#define VALUES TYPEV(C, WIDTH)
#define POSITIONS(i) ((VALUES)((TYPE(C))(i)) + PASTE2(vload, WIDTH)(0, lanes))
#define STORE_VALUES(x) \
  STOREV_FROM(OUT, C, WIDTH, to + i * STORAGE_SIZE(OUT), 0, RESULT((VALUES)(base), x))
#endif

/// out is contiguous. A work-item takes `run` elements. Global size: ceil(n / run) or more.
kernel ITEM_BY_ITEM void sequence(global char* out, ulong out_offset, ulong n, TYPE(C) start,
                                  TYPE(C) end, TYPE(C) step, TYPE(C) base, ulong run) {
  ulong i = get_global_id(0) * run;
  const ulong until = min(i + run, n);
  global char* const to = out + out_offset;
#if WIDTH > 1
  TYPE(C) lanes[WIDTH];
  for (uint k = 0; k < WIDTH; k++) lanes[k] = k;
#if SYMMETRIC
  for (; i + WIDTH <= min(until, n / 2); i += WIDTH)
    STORE_VALUES((VALUES)(start) + (VALUES)(step)*POSITIONS(i));
  // The rest of the first half.
  for (; i < min(until, n / 2); i++)
    STORE_FROM(OUT, C, to, i, RESULT(base, start + SCALE(step, i)));
  for (; i + WIDTH <= until; i += WIDTH)
    STORE_VALUES((VALUES)(end) - (VALUES)(step) * ((VALUES)((TYPE(C))(n - 1)) - POSITIONS(i)));
#else
  for (; i + WIDTH <= until; i += WIDTH)
    STORE_VALUES((VALUES)(start) + (VALUES)(step)*POSITIONS(i));
#endif
#endif
  for (; i < until; i++) {
#if SYMMETRIC
    TYPE(C) value = i < n / 2 ? start + SCALE(step, i) : end - SCALE(step, n - 1 - i);
#else
    TYPE(C) value = start + SCALE(step, i);
#endif
    STORE_FROM(OUT, C, to, i, RESULT(base, value));
  }
}
