// Softmax along a contiguous dimension: a work-item, or a work-group of GROUP, per row.
//
// SCRATCH: a work-item's row has at most that many elements, and its exponentials are kept in local
// memory between two passes; 0: see STASH.
//
// KEPT: vectors of a row that each work-item of a group keeps in registers, where that is all of
// the row; 0: rows are read again.
#ifndef SCRATCH
#define SCRATCH 0
#endif
#ifndef KEPT
#define KEPT 0
#endif
#include "include/item_by_item.clh"
#include "include/prefetch.clh"
#include "softmax/softmax.clh"

// This work-item's vectors, BLOCK by BLOCK, and its elements past the last vector.
#define FOR_BLOCKS(begin) for (uint begin = item; begin < vectors; begin += BLOCK * GROUP)
#define FOR_VECTORS(v, begin) \
  for (uint v = begin; v < min(begin + BLOCK * GROUP, vectors); v += GROUP)
#define FOR_TAIL(i) for (uint i = vectors * WIDTH + item; i < args.length; i += GROUP)

#if LOG
#define KEEPS 0
#elif SCRATCH
#define KEEPS 1
#define KEEPV(v, e) STORE_SCRATCH(e, v, scratch)
#define KEEP(i, e) (scratch[i] = (e))
#define KEPT_VECTOR(v) LOAD_SCRATCH(v, scratch)
#define KEPT_ELEMENT(i) scratch[i]
#elif STASH
#define KEEPS 1
#define KEEPV(v, e) STOREV_FROM(OUT, ACC, WIDTH, out, v, e)
#define KEEP(i, e) STORE_FROM(OUT, ACC, out, i, e)
#define KEPT_VECTOR(v) LOADV_OF(OUT, out, v)
#define KEPT_ELEMENT(i) LOAD_OF(OUT, out, i)
#else
#define KEEPS 0
#endif

// The largest of this work-item's vectors. One maximum would wait for each comparison.
static inline VECTOR largest_of(global const char* in, uint item, uint vectors) {
  VECTOR m0 = (VECTOR)(LOWEST(ACC)), m1 = m0, m2 = m0, m3 = m0;
  uint v = item;
  for (; v + 3 * GROUP < vectors; v += 4 * GROUP) {
    const VECTOR x0 = LOADV_OF(IN, in, v), x1 = LOADV_OF(IN, in, v + GROUP);
    const VECTOR x2 = LOADV_OF(IN, in, v + 2 * GROUP), x3 = LOADV_OF(IN, in, v + 3 * GROUP);
    m0 = LARGER(x0, m0);
    m1 = LARGER(x1, m1);
    m2 = LARGER(x2, m2);
    m3 = LARGER(x3, m3);
  }
  for (; v < vectors; v += GROUP) {
    const VECTOR x = LOADV_OF(IN, in, v);
    m0 = LARGER(x, m0);
  }
  m0 = LARGER(m1, m0);
  m2 = LARGER(m3, m2);
  return LARGER(m2, m0);
}

#if KEPT
// A whole row, read once.
static inline void kept_softmax(global const char* in, global char* out, uint vectors, uint item,
                                local SCALAR* shared) {
  VECTOR row[KEPT];
  FOR_KEPT(j) row[j] = LOADV_OF(IN, in, item + j * GROUP);
  VECTOR m = (VECTOR)(LOWEST(ACC));
  FOR_KEPT(j) m = LARGER(row[j], m);
  const SCALAR largest = group_max(max_lanes(m), item, shared);
  VECTOR total = (VECTOR)(0);
  FOR_KEPT(j) {
    row[j] -= largest;
    const VECTOR e = exp(row[j]);
#if !LOG
    row[j] = e;
#endif
    total += e;
  }
  const SCALAR sum = group_sum(sum_lanes(total), item, shared);
#if LOG
  const SCALAR log_sum = log(sum);
  FOR_KEPT(j) STOREV_FROM(OUT, ACC, WIDTH, out, item + j * GROUP, row[j] - log_sum);
#else
  const SCALAR scale = 1 / sum;
  FOR_KEPT(j) STOREV_FROM(OUT, ACC, WIDTH, out, item + j * GROUP, row[j] * scale);
#endif
}
#endif

kernel ITEM_BY_ITEM void softmax_rows(global const char* in_base, global char* out_base,
                                      const SoftmaxArgs args) {
  DECLARE_SHARED;
#if SCRATCH && KEEPS
  local SCALAR scratch[SCRATCH];
#endif
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  const uint vectors = args.length / WIDTH;
  const uint end_row = min((group + 1) * args.outer_per_item, args.outer);
  const ulong row_bytes = (ulong)args.length * STORAGE_SIZE(IN);
  for (uint row = group * args.outer_per_item; row < end_row; row++) {
    global const char* in = in_base + args.offset[0] + (ulong)row * args.length * STORAGE_SIZE(IN);
    global char* out = out_base + args.offset[1] + (ulong)row * args.length * STORAGE_SIZE(OUT);

#if KEPT
    kept_softmax(in, out, vectors, item, SHARED);
#else
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
          PREFETCH(in + row_bytes + v * WIDTH * STORAGE_SIZE(IN));
          const VECTOR e = EXPV(LOADV_OF(IN, in, v) - largest);
#if KEEPS
          KEEPV(v, e);
#endif
          block += e;
        }
        total += block;
      }
      sum = sum_lanes(total);
    }
    FOR_TAIL(i) {
      const SCALAR e = EXP_ONE(LOAD_OF(IN, in, i) - largest);
#if KEEPS
      KEEP(i, e);
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
#if KEEPS
      STOREV_FROM(OUT, ACC, WIDTH, out, v, KEPT_VECTOR(v) * scale);
#else
      STOREV_FROM(OUT, ACC, WIDTH, out, v, RESULT(EXPV, LOADV_OF(IN, in, v)));
#endif
    }
    FOR_TAIL(i) {
#if KEEPS
      STORE_FROM(OUT, ACC, out, i, KEPT_ELEMENT(i) * scale);
#else
      STORE_FROM(OUT, ACC, out, i, RESULT(EXP_ONE, LOAD_OF(IN, in, i)));
#endif
    }
#endif
  }
}

// in: the gradient of the result; result: what softmax_rows gave.
kernel ITEM_BY_ITEM void softmax_rows_backward(global const char* grad_base,
                                               global const char* result_base,
                                               global char* out_base, const SoftmaxArgs args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  const uint vectors = args.length / WIDTH;
  const uint end_row = min((group + 1) * args.outer_per_item, args.outer);
  for (uint row = group * args.outer_per_item; row < end_row; row++) {
    const ulong first = (ulong)row * args.length;
    global const char* grad = grad_base + args.offset[0] + first * STORAGE_SIZE(GRAD);
    global const char* result = result_base + args.offset[1] + first * STORAGE_SIZE(IN);
    global char* out = out_base + args.offset[2] + first * STORAGE_SIZE(OUT);

#if LOG
#define TERM(grad, result) (grad)
#define GRAD_INPUT(n, grad, result) ((grad) - SHARE_OF(n, result) * sum)
#else
#define TERM(grad, result) ((grad) * (result))
#define GRAD_INPUT(n, grad, result) (((grad) - sum) * (result))
#endif
    SCALAR sum = 0;
#if KEPT
    VECTOR g[KEPT], y[KEPT], total = (VECTOR)(0);
    FOR_KEPT(j) {
      g[j] = LOADV_OF(GRAD, grad, item + j * GROUP);
      y[j] = LOADV_OF(IN, result, item + j * GROUP);
    }
    FOR_KEPT(j) total += TERM(g[j], y[j]);
    sum = group_sum(sum_lanes(total), item, SHARED);
    FOR_KEPT(j)
    STOREV_FROM(OUT, ACC, WIDTH, out, item + j * GROUP, GRAD_INPUT(SUFFIX(WIDTH), g[j], y[j]));
#else
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
#endif
  }
}
