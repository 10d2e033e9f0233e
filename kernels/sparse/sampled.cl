// out[p] = alpha * (row of a) . (row of b) + beta * values[p] for each entry p of a compressed
// sparse matrix, whose row chooses that of a and whose column that of b.
//
// A work-item has `span` entries: on CPUs many, on GPUs one.
//
// Compile parameters: E (tag of all matrices), C (computed with), I (tag of indices), WIDTH
// (elements at a time), BETA (0: values aren't read).
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#ifndef I
#define I i64
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef BETA
#define BETA 0
#endif
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "sparse/arguments.clh"
#include "sparse/arithmetic.clh"
#include "sparse/rows.clh"

#define SCALAR TYPE(C)
#define VECTOR TYPEV(C, WIDTH)
#define GROUP 1
#if WIDTH > 1
#include "include/lanes.clh"
#else
#define sum_lanes(v) (v)
#endif

// On CPUs two sums at a time, so that they needn't wait for each other.
kernel ITEM_BY_ITEM void sparse_sampled(global const char* offsets, const ulong offsets_offset,
                                        global const char* columns, const ulong columns_offset,
                                        global const char* a, const ulong a_offset,
                                        global const char* b, const ulong b_offset,
                                        global char* values, const ulong values_offset,
                                        const SampledArguments args, const TYPE(C) alpha,
                                        const TYPE(C) beta) {
  offsets += offsets_offset;
  columns += columns_offset;
  values += values_offset;
  const ulong first = get_global_id(0) * args.span;
  if (first >= args.entries) return;
  const ulong last = min(first + args.span, args.entries);
  ulong row = ROW_OF(offsets, args.rows, first);
  for (ulong p = first; p < last; p++) {
    while (row + 1 < args.rows && LOAD_AS(i64, I, offsets, row + 1) <= (long)p) row++;
    global const char* from = a + a_offset + row * args.a_step * STORAGE_SIZE(E);
    global const char* with =
        b + b_offset + LOAD_AS(i64, I, columns, p) * (long)args.b_step * STORAGE_SIZE(E);
    VECTOR even = (VECTOR)((SCALAR)0), odd = (VECTOR)((SCALAR)0);
    ulong k = 0, v = 0;
    for (; k + 2 * WIDTH <= args.inner; k += 2 * WIDTH, v += 2) {
      even = MUL_ADD(WIDTH, LOADV_AS(C, E, WIDTH, from, v), LOADV_AS(C, E, WIDTH, with, v), even);
      odd = MUL_ADD(WIDTH, LOADV_AS(C, E, WIDTH, from, v + 1), LOADV_AS(C, E, WIDTH, with, v + 1),
                    odd);
    }
    for (; k + WIDTH <= args.inner; k += WIDTH, v++) {
      even = MUL_ADD(WIDTH, LOADV_AS(C, E, WIDTH, from, v), LOADV_AS(C, E, WIDTH, with, v), even);
    }
    SCALAR sum = sum_lanes(even + odd);
    for (; k < args.inner; k++) {
      sum = MUL_ADD(1, LOAD_AS(C, E, from, k), LOAD_AS(C, E, with, k), sum);
    }
    SCALE(sum, alpha);
#if BETA
    sum = MUL_ADD(1, LOAD_AS(C, E, values, p), beta, sum);
#endif
    STORE_FROM(E, C, values, p, sum);
  }
}
