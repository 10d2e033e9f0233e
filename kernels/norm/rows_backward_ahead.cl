// Gradients of layer norm and RMS norm for CPUs whose first cache holds what a row leaves behind: its weighted
// gradients and normalised elements. While these become results, the next row takes their places, so that every
// element is read once, in the order in which it lies in memory, and memory is read and written all the time.
//
// LONGEST: elements of a row at most. Rows are whole vectors, with PAIRS an even number of them.
#ifndef LONGEST
#define LONGEST 1024
#endif
#include "include/item_by_item.clh"
#include "norm/rows_backward.clh"
#include "include/vector_steps.clh"

/// A row that is kept: where its results go, and what makes them.
typedef struct {
  global char* out;
  SCALAR rstd, constant_, slope;
} Row;

typedef struct {
  VECTOR gradient, normal;
} Kept;

static inline void store_results(Row row, uint v, local const Kept* kept) {
  VECTOR result[STEP];
  EACH {
    const VECTOR centred = kept[v + u].gradient - row.constant_;
    result[u] = fma(kept[v + u].normal, (VECTOR)(-row.slope), centred) * row.rstd;
  }
  STORE_STEP(IN, row.out, v, result);
}

kernel ITEM_BY_ITEM void norm_rows_backward_ahead(global const char* grad_base, global const char* x_base,
                                                  global const char* mean_base,
                                                  global const char* rstd_base,
                                                  global const char* weight_base, global char* out_base,
                                                  global char* partial_base, const RowArgs args) {
  local Kept kept[LONGEST / WIDTH];
  const uint length = args.length, vectors = length / WIDTH;
  const uint first_row = get_global_id(0) * args.rows_per_item;
  const uint end_row = min(first_row + args.rows_per_item, args.rows);
  global const char* weight = weight_base + args.offset[4];
  global char* dbias = partial_base + args.offset[6] + (ulong)get_global_id(0) * 2 * length * STORAGE_SIZE(ACC);
  global char* dweight = dbias + (ulong)length * STORAGE_SIZE(ACC);
#if DPARAM
  clear_partial(dbias, length, 0);
#endif
  Row before = {out_base, 0, 0, 0};
  for (uint row = first_row; row < end_row; row++) {
    global const char* grad = ROW_START(grad_base, 0, IN, row);
    global const char* x = ROW_START(x_base, 1, IN, row);
    const SCALAR mean = MEAN_OF(row), rstd = RSTD_OF(row);
    const bool stores = row > first_row;
    VECTOR gradients[STEP], products[STEP];
    EACH gradients[u] = products[u] = ZERO;
    for (uint v = 0; v < vectors; v += STEP) {
      VECTOR g[STEP], normal[STEP];
      LOAD_STEP(IN, grad, v, g);
      LOAD_STEP(IN, x, v, normal);
      EACH normal[u] = (normal[u] - mean) * rstd;
#if DPARAM
      EACH ADD_PARAMETERS(VECTOR, LOADV_OF, KEEPV, v + u, g[u], normal[u]);
#endif
#if WEIGHT
      VECTOR w[STEP];
      LOAD_STEP(PARAM, weight, v, w);
      EACH g[u] *= w[u];
#endif
      EACH gradients[u] += g[u];
      EACH products[u] = fma(g[u], normal[u], products[u]);
      if (stores) store_results(before, v, kept);
      EACH kept[v + u].gradient = g[u];
      EACH kept[v + u].normal = normal[u];
    }
    before.out = ROW_START(out_base, 5, IN, row);
    before.rstd = rstd;
    before.slope = sum_lanes(sum_of_step(products)) / length;
#if !RMS
    before.constant_ = sum_lanes(sum_of_step(gradients)) / length;
#endif
  }
  if (first_row < end_row) {
    for (uint v = 0; v < vectors; v += STEP) store_results(before, v, kept);
  }
  order_partial(dbias, length);
}
