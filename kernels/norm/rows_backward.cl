// Gradients of layer norm and RMS norm: a work-item, or a work-group of GROUP, takes a share of the
// rows, and sums the gradients of weight and bias over them in a row of partial sums of its own.
//
// DX, DPARAM: which gradients are wanted, of the input; of weight and bias (RMS: of the weight).
// partial is [share][bias, weight][length].
#include "include/item_by_item.clh"
#include "norm/rows.clh"
#ifndef DX
#define DX 1
#define DPARAM 1
#endif

#if RMS
#define MEAN_OF(row) ((SCALAR)0)
#else
#define MEAN_OF(row) LOAD_OF(STAT, mean_base + args.offset[2], row)
#endif
#if WEIGHT
#define WEIGHTED(g, load, i) ((g) * load(PARAM, weight, i))
#else
#define WEIGHTED(g, load, i) (g)
#endif

typedef struct {
  SCALAR mean, rstd;
  SCALAR constant_, slope;  // of the gradient of the input, but for the factor rstd
} RowState;

// Adds the weighted gradients and their products with the deviations from `mean`, of `count` elements of a row of
// `length`. Asks for the next row's gradients, and row_gradients() for its x, so that memory is read all the time.
static inline void weighted_products(global const char* grad, global const char* x,
                                     global const char* weight, uint count, uint item, SCALAR mean,
                                     SCALAR* sum, SCALAR* product, uint length) {
  const uint vectors = count / WIDTH;
  if (vectors > 0) {
    VECTOR s0 = ZERO, s1 = ZERO, p0 = ZERO, p1 = ZERO;
    uint v = item;
    for (; v + GROUP < vectors; v += 2 * GROUP) {
      PREFETCH_NEXT(grad, v, length);
      PREFETCH_NEXT(grad, v + GROUP, length);
      const VECTOR g0 = WEIGHTED(LOADV_OF(IN, grad, v), LOADV_OF, v);
      const VECTOR g1 = WEIGHTED(LOADV_OF(IN, grad, v + GROUP), LOADV_OF, v + GROUP);
      s0 += g0;
      s1 += g1;
      p0 = fma(g0, LOADV_OF(IN, x, v) - mean, p0);
      p1 = fma(g1, LOADV_OF(IN, x, v + GROUP) - mean, p1);
    }
    if (v < vectors) {
      const VECTOR g = WEIGHTED(LOADV_OF(IN, grad, v), LOADV_OF, v);
      s0 += g;
      p0 = fma(g, LOADV_OF(IN, x, v) - mean, p0);
    }
    *sum += sum_lanes(s0 + s1);
    *product += sum_lanes(p0 + p1);
  }
  FOR_TAIL(i, count) {
    const SCALAR g = WEIGHTED(LOAD_OF(IN, grad, i), LOAD_OF, i);
    *sum += g;
    *product = fma(g, LOAD_OF(IN, x, i) - mean, *product);
  }
}

static inline RowState row_state(global const char* grad, global const char* x,
                                 global const char* weight, SCALAR mean, SCALAR rstd, uint length,
                                 uint item, local SCALAR* shared) {
  RowState state = {mean, rstd, 0, 0};
#if DX
  SCALAR sum = 0, product = 0;
  for (uint begin = 0; begin < length; begin += BLOCK) {
    const ulong start = (ulong)begin * STORAGE_SIZE(IN);
    SCALAR block_sum = 0, block_product = 0;
    weighted_products(grad + start, x + start, weight + (ulong)begin * STORAGE_SIZE(PARAM),
                      min((uint)BLOCK, length - begin), item, mean, &block_sum, &block_product, length);
    sum += block_sum;
    product += block_product;
  }
#if !RMS
  state.constant_ = group_sum(sum, item, shared) / length;
#endif
  state.slope = group_sum(product, item, shared) * rstd / length;
#endif
  return state;
}

// Partial sums are read again soon, so they stay in the caches whatever the other stores do.
#if WIDTH > 1
#define KEEPV(p, i, v) PASTE2(vstore, WIDTH)(v, i, (global SCALAR*)(p))
#else
#define KEEPV(p, i, v) STORE(ACC, p, i, v)
#endif
#define KEEP(p, i, v) STORE(ACC, p, i, v)

// All loads come before the stores, which a compiler must take for stores to the same memory.
static inline void row_gradients(global const char* grad, global const char* x,
                                 global const char* weight, global char* out, global char* partial,
                                 RowState row, uint length, uint item) {
  global char* dbias = partial;
  global char* dweight = partial + (ulong)length * STORAGE_SIZE(ACC);
#define STEP(T, load, store, keep, i)                                           \
  const T g = load(IN, grad, i), weighted = WEIGHTED(g, load, i);               \
  const T normal = (load(IN, x, i) - row.mean) * row.rstd;                      \
  if (DPARAM) {                                                                 \
    const T weight_sum = fma(g, normal, load(ACC, dweight, i));                 \
    if (!RMS) keep(dbias, i, load(ACC, dbias, i) + g);                          \
    keep(dweight, i, weight_sum);                                               \
  }                                                                             \
  if (DX) {                                                                     \
    store(IN, out, i, fma(normal, (T)(-row.slope), weighted - row.constant_) * row.rstd); \
  }
  FOR_VECTORS(v, length) {
    PREFETCH_NEXT(x, v, length);
    STEP(VECTOR, LOADV_OF, STOREV_TO, KEEPV, v)
  }
  FOR_TAIL(i, length) { STEP(SCALAR, LOAD_OF, STORE_TO, KEEP, i) }
}

kernel ITEM_BY_ITEM void norm_rows_backward(global const char* grad_base, global const char* x_base,
                                            global const char* mean_base,
                                            global const char* rstd_base,
                                            global const char* weight_base, global char* out_base,
                                            global char* partial_base, const RowArgs args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  global const char* weight = weight_base + args.offset[4];
  global char* partial =
      partial_base + args.offset[6] + (ulong)group * 2 * args.length * STORAGE_SIZE(ACC);
  const uint first_row = group * args.rows_per_item;
  const uint end_row = min(first_row + args.rows_per_item, args.rows);
#if DPARAM
  FOR_VECTORS(v, args.length) {
    KEEPV(partial, v, ZERO);
    KEEPV(partial + (ulong)args.length * STORAGE_SIZE(ACC), v, ZERO);
  }
  FOR_TAIL(i, args.length) {
    KEEP(partial, i, 0);
    KEEP(partial, args.length + i, 0);
  }
#endif
  for (uint row = first_row; row < end_row; row++) {
    global const char* grad = ROW_START(grad_base, 0, IN, row);
    global const char* x = ROW_START(x_base, 1, IN, row);
    const RowState state =
        row_state(grad, x, weight, MEAN_OF(row), LOAD_OF(STAT, rstd_base + args.offset[3], row),
                  args.length, item, SHARED);
    row_gradients(grad, x, weight, ROW_START(out_base, 5, IN, row), partial, state, args.length,
                  item);
  }
}
