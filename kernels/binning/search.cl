// searchsorted: binary searches for values in sorted sequences.
//
// Compile parameters: IN (tag of values and sequences), OUT (i32 or i64), RIGHT (1: the first place
// past equal elements; 0: before them), SORTER (1: the sequence is in the order of an i64 tensor).
#ifndef IN
#define IN f32
#endif
#ifndef OUT
#define OUT i64
#endif
#ifndef RIGHT
#define RIGHT 0
#endif
#ifndef SORTER
#define SORTER 0
#endif
#include "include/dtype.clh"

// A NaN is past every place: no comparison with it is true.
#if RIGHT
#define BELONGS(element, value) ((element) > (value))
#else
#define BELONGS(element, value) ((element) >= (value))
#endif

/// Everything is contiguous. values_per_row: values that share a sequence of `length` elements.
kernel void searchsorted(global const char* values, ulong values_offset,
                         global const char* sequences, ulong sequences_offset,
                         global const char* sorter, ulong sorter_offset, global char* out,
                         ulong out_offset, ulong n, ulong values_per_row, ulong length) {
  const ulong i = get_global_id(0);
  if (i >= n) return;
  const ulong first = i / values_per_row * length;
  const TYPE(IN) value = LOAD(IN, values + values_offset, i);
  ulong low = 0, high = length;
  while (low < high) {
    const ulong middle = low + (high - low) / 2;
#if SORTER
    const ulong place = first + LOAD(u64, sorter + sorter_offset, first + middle);
#else
    const ulong place = first + middle;
#endif
    const TYPE(IN) element = LOAD(IN, sequences + sequences_offset, place);
    if (BELONGS(element, value)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  STORE(OUT, out + out_offset, i, (TYPE(OUT))low);
}
