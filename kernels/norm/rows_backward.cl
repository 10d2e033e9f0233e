// Gradients of layer norm and RMS norm: a work-item, or a work-group of GROUP, takes a share of the
// rows, and sums the gradients of weight and bias over them in a row of partial sums of its own.
#include "include/item_by_item.clh"
#include "norm/rows_backward.clh"

#if WEIGHT
#define WEIGHTED(g, load, i) ((g) * load(PARAM, weight, i))
#else
#define WEIGHTED(g, load, i) (g)
#endif

typedef struct {
  SCALAR mean, rstd;
  SCALAR constant_, slope;  // of the gradient of the input, but for the factor rstd
} RowState;

/// Sums over a stretch of a row: its weighted gradients, and their products with the normalised
/// elements.
typedef struct {
  SCALAR gradients, products;
} RowSums;

// Element i's gradient g and normalised x, for the gradients of weight and bias. Both loads come
// before the stores, which a compiler must take for stores to the same memory.
#define ADD_PARAMETERS(T, load, store, i, g, x)            \
  do {                                                     \
    const T weight_sum = fma(g, x, load(ACC, dweight, i)); \
    if (!RMS) store(dbias, i, load(ACC, dbias, i) + (g));  \
    store(dweight, i, weight_sum);                         \
  } while (0)

#if PAIRS
#define PREFETCH_TWO(p, v, length) PREFETCH_NEXT(p, v, length)  // a cache line
#else
#define PREFETCH_TWO(p, v, length)       \
  do {                                   \
    PREFETCH_NEXT(p, v, length);         \
    PREFETCH_NEXT(p, v + GROUP, length); \
  } while (0)
#endif

// The first pass over `count` elements of a row of `length`: its sums, and its share of the
// gradients of weight and bias. They are added here because stores are worked off in their order:
// among those of the second pass they would wait for memory. Asks for the next row's gradients, and
// row_gradients() for its x, so that memory is read all the time.
static inline RowSums first_pass(global const char* grad, global const char* x,
                                 global const char* weight, global char* dbias,
                                 global char* dweight, uint count, uint item, SCALAR mean,
                                 SCALAR rstd, uint length) {
  RowSums sums = {0, 0};
  const uint vectors = count / WIDTH;
  if (vectors > 0) {
    VECTOR s0 = ZERO, s1 = ZERO, p0 = ZERO, p1 = ZERO;
    uint v = item;
    for (; v + GROUP < vectors; v += 2 * GROUP) {
      PREFETCH_TWO(grad, v, length);
      if (!DX) PREFETCH_TWO(x, v, length);
      VECTOR g0, g1, x0, x1, w0, w1;
      LOAD_TWO(IN, grad, v, g0, g1);
      LOAD_TWO(IN, x, v, x0, x1);
      x0 = (x0 - mean) * rstd;
      x1 = (x1 - mean) * rstd;
      if (DPARAM) {
        ADD_PARAMETERS(VECTOR, LOADV_OF, STORE_PARTIALV, v, g0, x0);
        ADD_PARAMETERS(VECTOR, LOADV_OF, STORE_PARTIALV, v + GROUP, g1, x1);
      }
      if (WEIGHT) {
        LOAD_TWO(PARAM, weight, v, w0, w1);
        g0 *= w0;
        g1 *= w1;
      }
      s0 += g0;
      s1 += g1;
      p0 = fma(g0, x0, p0);
      p1 = fma(g1, x1, p1);
    }
    if (v < vectors) {
      const VECTOR g = LOADV_OF(IN, grad, v), normal = (LOADV_OF(IN, x, v) - mean) * rstd;
      if (DPARAM) ADD_PARAMETERS(VECTOR, LOADV_OF, STORE_PARTIALV, v, g, normal);
      const VECTOR weighted = WEIGHTED(g, LOADV_OF, v);
      s0 += weighted;
      p0 = fma(weighted, normal, p0);
    }
    sums.gradients = sum_lanes(s0 + s1);
    sums.products = sum_lanes(p0 + p1);
  }
  FOR_TAIL(i, count) {
    const SCALAR g = LOAD_OF(IN, grad, i), normal = (LOAD_OF(IN, x, i) - mean) * rstd;
    if (DPARAM) ADD_PARAMETERS(SCALAR, LOAD_OF, STORE_PARTIAL, i, g, normal);
    const SCALAR weighted = WEIGHTED(g, LOAD_OF, i);
    sums.gradients += weighted;
    sums.products = fma(weighted, normal, sums.products);
  }
  return sums;
}

static inline RowState row_state(global const char* grad, global const char* x,
                                 global const char* weight, global char* partial, SCALAR mean,
                                 SCALAR rstd, uint length, uint item, local SCALAR* shared) {
  RowState state = {mean, rstd, 0, 0};
  SCALAR sum = 0, product = 0;
  global char* dweight = partial + (ulong)length * STORAGE_SIZE(ACC);
  for (uint begin = 0; begin < length; begin += BLOCK) {
    const ulong start = (ulong)begin * STORAGE_SIZE(IN),
                sum_start = (ulong)begin * STORAGE_SIZE(ACC);
    const RowSums sums = first_pass(
        grad + start, x + start, weight + (ulong)begin * STORAGE_SIZE(PARAM), partial + sum_start,
        dweight + sum_start, min((uint)BLOCK, length - begin), item, mean, rstd, length);
    sum += sums.gradients;
    product += sums.products;
  }
#if DX
#if !RMS
  state.constant_ = group_sum(sum, item, shared) / length;
#endif
  state.slope = group_sum(product, item, shared) / length;
#endif
  return state;
}

// The second pass, over what the first one has left in the cache.
#define GRADIENT(T, g, x) \
  (fma(((x) - row.mean) * row.rstd, (T)(-row.slope), (g) - row.constant_) * row.rstd)
static inline void row_gradients(global const char* grad, global const char* x,
                                 global const char* weight, global char* out, RowState row,
                                 uint length, uint item) {
#if PAIRS
  for (uint v = 0; v < length / WIDTH; v += 2) {
    PREFETCH_NEXT(x, v, length);
    VECTOR g0, g1, x0, x1, w0, w1;
    LOAD_TWO(IN, grad, v, g0, g1);
    LOAD_TWO(IN, x, v, x0, x1);
    if (WEIGHT) {
      LOAD_TWO(PARAM, weight, v, w0, w1);
      g0 *= w0;
      g1 *= w1;
    }
    x0 = GRADIENT(VECTOR, g0, x0);
    x1 = GRADIENT(VECTOR, g1, x1);
    STORE_TWO(IN, out, v, x0, x1);
  }
#else
#define GRADIENT_AT(T, load, i) GRADIENT(T, WEIGHTED(load(IN, grad, i), load, i), load(IN, x, i))
  FOR_VECTORS(v, length) {
    PREFETCH_NEXT(x, v, length);
    STOREV_TO(IN, out, v, GRADIENT_AT(VECTOR, LOADV_OF, v));
  }
  FOR_TAIL(i, length) STORE_TO(IN, out, i, GRADIENT_AT(SCALAR, LOAD_OF, i));
#endif
}

kernel ITEM_BY_ITEM void norm_rows_backward(global const char* grad, const ulong grad_offset,
                                            global const char* x, const ulong x_offset,
                                            global const char* means, const ulong means_offset,
                                            global const char* rstds, const ulong rstds_offset,
                                            global const char* weight, const ulong weight_offset,
                                            global char* out, const ulong out_offset,
                                            global char* partial, const ulong partial_offset,
                                            const RowArguments args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint group = get_global_id(0) / GROUP;
  grad += grad_offset;
  x += x_offset;
  means += means_offset;
  rstds += rstds_offset;
  weight += weight_offset;
  out += out_offset;
  partial += partial_offset + (ulong)group * 2 * args.length * STORAGE_SIZE(ACC);
  const uint first_row = group * args.rows_per_item;
  const uint end_row = first_row + min(args.rows_per_item, args.rows - min(first_row, args.rows));
#if DPARAM
  clear_partial(partial, args.length, item);
#endif
  for (uint row = first_row; row < end_row; row++) {
    global const char* grad_row = ROW_START(grad, IN, row);
    global const char* x_row = ROW_START(x, IN, row);
    const RowState state = row_state(grad_row, x_row, weight, partial, MEAN_OF(row), RSTD_OF(row),
                                     args.length, item, SHARED);
#if DX
    row_gradients(grad_row, x_row, weight, ROW_START(out, IN, row), state, args.length, item);
#endif
  }
  order_partial(partial, args.length);
}
