// Gradients of layer norm and RMS norm for CPUs whose first cache holds what a row leaves behind:
// its gradients and normalised elements. While these become results, the next row takes their
// places, so that every element is read once, in the order in which it lies in memory, and memory
// is read and written all the time.
//
// SCRATCH: elements of a row at most. Rows are whole vectors, with PAIRS an even number of them.
#ifndef SCRATCH
#define SCRATCH 1024
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

#if WEIGHT
#define LOAD_WEIGHT(v) \
  VECTOR w[STEP];      \
  LOAD_STEP(PARAM, weight, v, w)
#define SCALED(g, u) ((g) * w[u])
#else
#define LOAD_WEIGHT(v)
#define SCALED(g, u) (g)
#endif

// Needs LOAD_WEIGHT(v).
#define STORE_RESULTS(v, row)                                                     \
  do {                                                                            \
    VECTOR result[STEP];                                                          \
    EACH {                                                                        \
      const VECTOR centred = SCALED(kept[(v) + u].gradient, u) - (row).constant_; \
      const VECTOR slope = (VECTOR)(-(row).slope);                                \
      result[u] = fma(kept[(v) + u].normal, slope, centred) * (row).rstd;         \
    }                                                                             \
    STORE_STEP(IN, (row).out, v, result);                                         \
  } while (0)

// Both loads come before the stores, which a compiler must take for stores to the same memory. By
// pointers to vectors, which are aligned: vstoren, of which a compiler can't know that, doubled the
// kernel's time on PoCL.
static inline void add_parameters(global VECTOR* dbias, global VECTOR* dweight, VECTOR gradients,
                                  VECTOR products) {
  const VECTOR weight_sum = *dweight + products;
  if (!RMS) *dbias += gradients;
  *dweight = weight_sum;
}

kernel ITEM_BY_ITEM void norm_rows_backward_ahead(
    global const char* grad_base, global const char* x_base, global const char* mean_base,
    global const char* rstd_base, global const char* weight_base, global char* out_base,
    global char* partial_base, const RowArgs args) {
  local Kept kept[SCRATCH / WIDTH];
  const uint length = args.length, vectors = length / WIDTH;
  const uint first_row = get_global_id(0) * args.rows_per_item;
  const uint end_row = first_row + min(args.rows_per_item, args.rows - min(first_row, args.rows));
  if (first_row >= end_row) return;
  global const char* weight = weight_base + args.offset[4];
  global char* partial =
      partial_base + args.offset[6] + (ulong)get_global_id(0) * 2 * length * STORAGE_SIZE(ACC);
  global VECTOR *dbias = (global VECTOR*)partial, *dweight = dbias + vectors;
#if DPARAM
  clear_partial(partial, length, 0);
#endif
  Row before = {out_base, 0, 0, 0};
  for (uint row = first_row; row < end_row; row++) {
    global const char* grad = ROW_START(grad_base, 0, IN, row);
    global const char* x = ROW_START(x_base, 1, IN, row);
    const SCALAR mean = MEAN_OF(row), rstd = RSTD_OF(row);
    const bool stores = row > first_row, adds_two = DPARAM && (row - first_row) % 2 == 1;
    VECTOR gradients[STEP], products[STEP];
    EACH gradients[u] = products[u] = ZERO;
    for (uint v = 0; v < vectors; v += STEP) {
      VECTOR g[STEP], normal[STEP];
      LOAD_STEP(IN, grad, v, g);
      LOAD_STEP(IN, x, v, normal);
      LOAD_WEIGHT(v);
      EACH {
        normal[u] = (normal[u] - mean) * rstd;
        const VECTOR scaled = SCALED(g[u], u);
        gradients[u] += scaled;
        products[u] = fma(scaled, normal[u], products[u]);
      }
      if (adds_two) {
        EACH add_parameters(dbias + v + u, dweight + v + u, g[u] + kept[v + u].gradient,
                            fma(g[u], normal[u], kept[v + u].gradient * kept[v + u].normal));
      }
      if (stores) STORE_RESULTS(v, before);
      EACH {
        kept[v + u].gradient = g[u];
        kept[v + u].normal = normal[u];
      }
    }
    before.out = ROW_START(out_base, 5, IN, row);
    before.rstd = rstd;
    before.slope = sum_lanes(sum_of_step(products)) / length;
#if !RMS
    before.constant_ = sum_lanes(sum_of_step(gradients)) / length;
#endif
  }
  const bool adds_last = DPARAM && (end_row - first_row) % 2 == 1;
  for (uint v = 0; v < vectors; v += STEP) {
    LOAD_WEIGHT(v);
    STORE_RESULTS(v, before);
    if (adds_last) {
      EACH add_parameters(dbias + v + u, dweight + v + u, kept[v + u].gradient,
                          kept[v + u].gradient * kept[v + u].normal);
    }
  }
  order_partial(partial, length);
}
