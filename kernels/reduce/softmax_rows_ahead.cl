// Softmax along a contiguous dimension, for CPUs. While the exponentials of a row are computed, the largest element
// of the next one is looked for and the results of the one before are stored, so that memory is read and written
// all the time.
//
// SCRATCH: elements of a row at most. PAIRS: see vector_pairs.clh.
#ifndef SCRATCH
#define SCRATCH 4096
#endif
#include "include/item_by_item.clh"
#include "include/prefetch.clh"
#include "reduce/softmax.clh"
#define TIES_TO_EVEN LOG  // elements less the logarithm of 1 are exact
#include "include/vector_pairs.clh"

/// A row whose exponentials are there: what makes results of them, or for log_softmax of the elements.
typedef struct {
  global const char* in;
  global char* out;
  local const SCALAR* exponentials;
  SCALAR largest, scale;  // LOG: the logarithm of the sum, else one by the sum
} Row;

// `count` vectors from v on, side by side: a vector's exponential is a chain in which every step waits.
#define AT_ONCE (PAIRS ? 4 : 2)
#define EACH(count) _Pragma("unroll") for (uint u = 0; u < (count); u++)
#define EACH_TWO(count) _Pragma("unroll") for (uint u = 0; u < (count) / 2; u++)
#define LOAD_VECTORS(count, tag, p, v, x)                                   \
  do {                                                                      \
    EACH_TWO(count) LOAD_TWO(tag, p, (v) + 2 * u, x[2 * u], x[2 * u + 1]);  \
    if ((count) == 1) x[0] = LOADV_OF(tag, p, v);                           \
  } while (0)
#define STORE_VECTORS(count, tag, p, v, x)                                   \
  do {                                                                       \
    EACH_TWO(count) STORE_TWO(tag, p, (v) + 2 * u, x[2 * u], x[2 * u + 1]);  \
    if ((count) == 1) STOREV_FROM(tag, ACC, WIDTH, p, v, x[0]);              \
  } while (0)

#if LOG
#define RESULTS(count, v, row, x)                                             \
  do {                                                                        \
    LOAD_VECTORS(count, IN, (row).in, v, x);                                  \
    EACH(count) x[u] = (x[u] - (row).largest) - (row).scale;                  \
  } while (0)
#else
#define RESULTS(count, v, row, x) \
  EACH(count) x[u] = LOAD_SCRATCH((v) + u, (row).exponentials) * (row).scale
#endif

static inline void store_element(Row row, uint i) {
#if LOG
  const SCALAR result = (LOAD_OF(IN, row.in, i) - row.largest) - row.scale;
#else
  const SCALAR result = row.exponentials[i] * row.scale;
#endif
  STORE_FROM(OUT, ACC, row.out, i, result);
}

#if LOG
#define KEEPV(v, e)
#else
#define KEEPV(v, e) STORE_SCRATCH(e, v, exponentials)
#endif

#define WORK_OFF(count)                                                            \
  do {                                                                             \
    PREFETCH_PAGE_AHEAD(IN, WIDTH * (count), next, v / (count));                   \
    VECTOR e[count], x[count];                                                     \
    LOAD_VECTORS(count, IN, in, v, e);                                             \
    EACH(count) e[u] = EXPV(e[u] - largest);                                       \
    EACH(count) KEEPV(v + u, e[u]);                                                \
    EACH_TWO(count) e[2 * u] += e[2 * u + 1];                                      \
    block += (count) < 4 ? e[0] : e[0] + e[2 % (count)];                           \
    LOAD_VECTORS(count, IN, next, v, x);                                           \
    EACH(count) most = LARGER(x[u], most);                                         \
    if (stores) {                                                                  \
      RESULTS(count, v, before, x);                                                \
      STORE_VECTORS(count, OUT, before.out, v, x);                                 \
    }                                                                              \
  } while (0)

kernel ITEM_BY_ITEM void softmax_rows_ahead(global const char* in_base, global char* out_base,
                                            const SoftmaxArgs args) {
#if LOG
#define SCRATCH_OF(row) 0
#else
  local SCALAR scratch[2 * SCRATCH];
  // Two rows' exponentials are half a page more than some pages apart, where there is room for that: a load
  // whose address is that of a store under way but for a multiple of a page waits for it.
  const uint page = 4096 / sizeof(SCALAR);
  const uint apart = min((args.length + page / 2 - 1) / page * page + page / 2, (uint)SCRATCH);
#define SCRATCH_OF(row) (scratch + (row) % 2 * apart)
#endif
  const uint length = args.length, vectors = length / WIDTH, tail = vectors * WIDTH;
  const uint first_row = get_global_id(0) * args.outer_per_item;
  const uint end_row = min(first_row + args.outer_per_item, args.outer);
  if (first_row >= end_row) return;
  const ulong in_bytes = (ulong)length * STORAGE_SIZE(IN), out_bytes = (ulong)length * STORAGE_SIZE(OUT);
  global const char* in = in_base + args.offset[0] + first_row * in_bytes;
  global char* out = out_base + args.offset[1] + first_row * out_bytes;

  VECTOR most = (VECTOR)(LOWEST(ACC));
  SCALAR largest = LOWEST(ACC);
  for (uint v = 0; v < vectors; v++) most = LARGER(LOADV_OF(IN, in, v), most);
  for (uint i = tail; i < length; i++) largest = LARGER(LOAD_OF(IN, in, i), largest);
  Row before = {in, out, SCRATCH_OF(1), 0, 0};
  for (uint row = first_row; row < end_row; row++) {
    if (vectors > 0) {
      const SCALAR of_vectors = max_lanes(most);
      largest = LARGER(of_vectors, largest);
    }
    const bool stores = row > first_row;
    global const char* next = row + 1 < end_row ? in + in_bytes : in;
    local SCALAR* exponentials = SCRATCH_OF(row);
    VECTOR total = (VECTOR)(0);
    most = (VECTOR)(LOWEST(ACC));
    for (uint begin = 0; begin < vectors; begin += BLOCK) {
      VECTOR block = (VECTOR)(0);
      const uint end = min(begin + BLOCK, vectors);
      uint v = begin;
      for (; v + AT_ONCE <= end; v += AT_ONCE) WORK_OFF(AT_ONCE);
#if PAIRS
      if (v < end) WORK_OFF(2);
#else
      if (v < end) WORK_OFF(1);
#endif
      total += block;
    }
    SCALAR sum = vectors > 0 ? sum_lanes(total) : 0, largest_of_next = LOWEST(ACC);
    for (uint i = tail; i < length; i++) {
      const SCALAR e = EXP_ONE(LOAD_OF(IN, in, i) - largest);
#if !LOG
      exponentials[i] = e;
#endif
      sum += e;
      const SCALAR x = LOAD_OF(IN, next, i);
      largest_of_next = LARGER(x, largest_of_next);
      if (stores) store_element(before, i);
    }
    before.in = in;
    before.out = out;
    before.exponentials = exponentials;
    before.largest = largest;
    before.scale = quiet(LOG ? log(sum) : 1 / sum);
    largest = largest_of_next;
    in = next;
    out += out_bytes;
  }
  uint v = 0;
  VECTOR x[2];
  for (; v + 1 < vectors; v += 2) {
    RESULTS(2, v, before, x);
    STORE_VECTORS(2, OUT, before.out, v, x);
  }
  if (v < vectors) {
    RESULTS(1, v, before, x);
    STORE_VECTORS(1, OUT, before.out, v, x);
  }
  for (uint i = tail; i < length; i++) store_element(before, i);
}
