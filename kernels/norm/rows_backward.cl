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

// Adds the weighted gradients and their products with the deviations from `mean`, of `count` elements.
static inline void weighted_products(global const char* grad, global const char* x,
                                     global const char* weight, uint count, uint item, SCALAR mean,
                                     SCALAR* sum, SCALAR* product) {
  const uint vectors = count / WIDTH;
  if (vectors > 0) {
    VECTOR s0 = ZERO, s1 = ZERO, p0 = ZERO, p1 = ZERO;
    uint v = item;
    for (; v + GROUP < vectors; v += 2 * GROUP) {
      const VECTOR g0 = WEIGHTED(LOADV_OF(IN, grad, v), LOADV_OF, v);
      const VECTOR g1 = WEIGHTED(LOADV_OF(IN, grad, v + GROUP), LOADV_OF, v + GROUP);
      s0 += g0;
      s1 += g1;
      p0 += g0 * (LOADV_OF(IN, x, v) - mean);
      p1 += g1 * (LOADV_OF(IN, x, v + GROUP) - mean);
    }
    if (v < vectors) {
      const VECTOR g = WEIGHTED(LOADV_OF(IN, grad, v), LOADV_OF, v);
      s0 += g;
      p0 += g * (LOADV_OF(IN, x, v) - mean);
    }
    *sum += sum_lanes(s0 + s1);
    *product += sum_lanes(p0 + p1);
  }
  FOR_TAIL(i, count) {
    const SCALAR g = WEIGHTED(LOAD_OF(IN, grad, i), LOAD_OF, i);
    *sum += g;
    *product += g * (LOAD_OF(IN, x, i) - mean);
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
                      min((uint)BLOCK, length - begin), item, mean, &block_sum, &block_product);
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

// Rows of a CPU's work-item that are finished together: the partial sums are loaded and stored once for both, and
// the first cache still holds what the rows' states were computed from.
#if GROUP > 1
#define ROWS 1
#else
#define ROWS 2
#endif

// Of `rows` rows that lie side by side, 1 or ROWS of them.
#define FINISH(T, rows, load, store, keep, i)                                                          \
  T sum_ = (T)(0), products_ = sum_;                                                                    \
  _Pragma("unroll") for (uint t = 0; t < (rows); t++) {                                                 \
    const T g = load(IN, grad + t * row_bytes, i);                                                      \
    const T normal = (load(IN, x + t * row_bytes, i) - row[t].mean) * row[t].rstd;                      \
    sum_ += g;                                                                                          \
    products_ += g * normal;                                                                            \
    if (DX) {                                                                                           \
      store(IN, out + t * row_bytes, i,                                                                 \
            (WEIGHTED(g, load, i) - row[t].constant_ - normal * row[t].slope) * row[t].rstd);           \
    }                                                                                                   \
  }                                                                                                     \
  if (DPARAM) {                                                                                         \
    if (!RMS) keep(dbias, i, first ? sum_ : load(ACC, dbias, i) + sum_);                                \
    keep(dweight, i, first ? products_ : load(ACC, dweight, i) + products_);                            \
  }

#define DEFINE_FINISH_ROWS(name, rows)                                                                  \
  static inline void name(global const char* grad, global const char* x, global const char* weight,    \
                          global char* out, global char* partial, const RowState* row, uint length,     \
                          uint item, bool first) {                                                      \
    global char* dbias = partial;                                                                       \
    global char* dweight = partial + (ulong)length * STORAGE_SIZE(ACC);                                 \
    const ulong row_bytes = (ulong)length * STORAGE_SIZE(IN);                                           \
    FOR_VECTORS(v, length) {                                                                            \
      _Pragma("unroll") for (uint t = 0; t < (rows); t++) {                                             \
        PREFETCH_NEXT(grad + t * row_bytes, v, (rows) * length);                                        \
        PREFETCH_NEXT(x + t * row_bytes, v, (rows) * length);                                           \
      }                                                                                                 \
      FINISH(VECTOR, rows, LOADV_OF, STOREV_TO, KEEPV, v)                                               \
    }                                                                                                   \
    FOR_TAIL(i, length) { FINISH(SCALAR, rows, LOAD_OF, STORE_TO, KEEP, i) }                            \
  }
DEFINE_FINISH_ROWS(finish_row, 1)
#if ROWS > 1
DEFINE_FINISH_ROWS(finish_rows, ROWS)
#endif

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
  for (uint row = first_row; row < end_row; row += ROWS) {
    global const char* grad = ROW_START(grad_base, 0, IN, row);
    global const char* x = ROW_START(x_base, 1, IN, row);
    global char* out = ROW_START(out_base, 5, IN, row);
    const uint rows = min((uint)ROWS, end_row - row);
    RowState states[ROWS];
    for (uint t = 0; t < rows; t++) {
      const ulong start = (ulong)t * args.length * STORAGE_SIZE(IN);
      states[t] = row_state(grad + start, x + start, weight, MEAN_OF(row + t),
                            LOAD_OF(STAT, rstd_base + args.offset[3], row + t), args.length, item, SHARED);
    }
#if ROWS > 1
    if (rows == ROWS) {
      finish_rows(grad, x, weight, out, partial, states, args.length, item, row == first_row);
      continue;
    }
#endif
    finish_row(grad, x, weight, out, partial, states, args.length, item, row == first_row);
  }
}
