// Softmax along a contiguous dimension: a work-item, or a work-group of GROUP, per row.
//
// LOCAL_ELEMENTS: a work-item's row has at most that many, and its exponentials are stored in local
// memory between two passes; 0: see STASH. ONLY: 1 or 2, the first or second kernel alone; 0: both.
#ifndef LOCAL_ELEMENTS
#define LOCAL_ELEMENTS 0
#endif
#ifndef ONLY
#define ONLY 0
#endif
#include "include/item_by_item.clh"
#include "include/prefetch.clh"
#include "softmax/passes.clh"

// STORED: exponentials are, between two passes.
#if LOG
#define STORED 0
#elif LOCAL_ELEMENTS
#if WIDTH > 1
#define STORE_LOCAL PASTE2(vstore, WIDTH)
#define LOAD_LOCAL PASTE2(vload, WIDTH)
#else
#define STORE_LOCAL(e, v, p) ((p)[v] = (e))
#define LOAD_LOCAL(v, p) (p)[v]
#endif
#define STORED 1
#define STASHV(v, e) STORE_LOCAL(e, v, exponentials)
#define STASH_ONE(i, e) (exponentials[i] = (e))
#define STORED_VECTOR(v) LOAD_LOCAL(v, exponentials)
#define STORED_ELEMENT(i) exponentials[i]
#elif STASH
#define STORED 1
#define STASHV(v, e) STOREV_FROM(OUT, ACC, WIDTH, out, v, e)
#define STASH_ONE(i, e) STORE_FROM(OUT, ACC, out, i, e)
#define STORED_VECTOR(v) LOADV_OF(OUT, out, v)
#define STORED_ELEMENT(i) LOAD_OF(OUT, out, i)
#else
#define STORED 0
#endif

#if ONLY == 0 || ONLY == 1
kernel ITEM_BY_ITEM void softmax_rows(global const char* in, const ulong in_offset,
                                      global char* out, const ulong out_offset,
                                      const Arguments args) {
  DECLARE_SHARED;
#if LOCAL_ELEMENTS && STORED
  local SCALAR exponentials[LOCAL_ELEMENTS];
#endif
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  const uint vectors = args.length / WIDTH;
  const uint end_row = min((group + 1) * args.outer_per_item, args.outer);
  const uint first_row = group * args.outer_per_item;
  const ulong in_bytes = (ulong)args.length * STORAGE_SIZE(IN);
  const ulong out_bytes = (ulong)args.length * STORAGE_SIZE(OUT);
  in += in_offset + first_row * in_bytes;
  out += out_offset + first_row * out_bytes;
  for (uint row = first_row; row < end_row; row++, in += in_bytes, out += out_bytes) {
    SCALAR largest = LOWEST(ACC);
    if (vectors > 0) {
      largest = max_lanes(largest_of(in, item, vectors));
    }
    FOR_TAIL(i) {
      const SCALAR x = LOAD_OF(IN, in, i);
      largest = LARGER(x, largest);
    }
    largest = group_max(largest, item, SHARED);

    SCALAR sum = 0;
    if (vectors > 0) {
      VECTOR total = (VECTOR)(0);
      FOR_BLOCKS(begin) {
        VECTOR block = (VECTOR)(0);
        FOR_VECTORS(v, begin) {
          PREFETCH(in + in_bytes + v * WIDTH * STORAGE_SIZE(IN));
          const VECTOR e = EXPV(LOADV_OF(IN, in, v) - largest);
#if STORED
          STASHV(v, e);
#endif
          block += e;
        }
        total += block;
      }
      sum = sum_lanes(total);
    }
    FOR_TAIL(i) {
      const SCALAR e = EXP_ONE(LOAD_OF(IN, in, i) - largest);
#if STORED
      STASH_ONE(i, e);
#endif
      sum += e;
    }
    sum = group_sum(sum, item, SHARED);

#if LOG
    const SCALAR log_sum = log(sum);
#define RESULT(exponential, load) (((load) - largest) - log_sum)
#else
    const SCALAR scale = 1 / sum;
#define RESULT(exponential, load) (exponential((load) - largest) * scale)
#endif
    for (uint v = item; v < vectors; v += GROUP) {
#if STORED
      STOREV_FROM(OUT, ACC, WIDTH, out, v, STORED_VECTOR(v) * scale);
#else
      STOREV_FROM(OUT, ACC, WIDTH, out, v, RESULT(EXPV, LOADV_OF(IN, in, v)));
#endif
    }
    FOR_TAIL(i) {
#if STORED
      STORE_FROM(OUT, ACC, out, i, STORED_ELEMENT(i) * scale);
#else
      STORE_FROM(OUT, ACC, out, i, RESULT(EXP_ONE, LOAD_OF(IN, in, i)));
#endif
    }
  }
}
#endif

#if ONLY == 0 || ONLY == 2
// grad: the gradient of the result; result: what softmax_rows gave.
kernel ITEM_BY_ITEM void softmax_rows_backward(global const char* grad, const ulong grad_offset,
                                               global const char* result, const ulong result_offset,
                                               global char* out, const ulong out_offset,
                                               const Arguments args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  const uint vectors = args.length / WIDTH;
  const uint end_row = min((group + 1) * args.outer_per_item, args.outer);
  const uint first_row = group * args.outer_per_item;
  const ulong first = (ulong)first_row * args.length;
  grad += grad_offset + first * STORAGE_SIZE(GRAD);
  result += result_offset + first * STORAGE_SIZE(IN);
  out += out_offset + first * STORAGE_SIZE(OUT);
  for (uint row = first_row; row < end_row; row++) {
    SCALAR sum = 0;
    if (vectors > 0) {
      VECTOR total = (VECTOR)(0);
      FOR_BLOCKS(begin) {
        VECTOR block = (VECTOR)(0);
        FOR_VECTORS(v, begin) block += TERM(LOADV_OF(GRAD, grad, v), LOADV_OF(IN, result, v));
        total += block;
      }
      sum = sum_lanes(total);
    }
    FOR_TAIL(i) sum += TERM(LOAD_OF(GRAD, grad, i), LOAD_OF(IN, result, i));
    sum = group_sum(sum, item, SHARED);

    for (uint v = item; v < vectors; v += GROUP) {
      STOREV_FROM(OUT, ACC, WIDTH, out, v,
                  GRAD_INPUT(SUFFIX(WIDTH), LOADV_OF(GRAD, grad, v), LOADV_OF(IN, result, v)));
    }
    FOR_TAIL(i) {
      STORE_FROM(OUT, ACC, out, i, GRAD_INPUT(, LOAD_OF(GRAD, grad, i), LOAD_OF(IN, result, i)));
    }
    grad += (ulong)args.length * STORAGE_SIZE(GRAD);
    result += (ulong)args.length * STORAGE_SIZE(IN);
    out += (ulong)args.length * STORAGE_SIZE(OUT);
  }
}
#endif
