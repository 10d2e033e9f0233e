// Gradients of layer norm and RMS norm for CPUs, software pipelined over the rows.
//
// The gradient has two passes over a row: sums, then the results. Local memory, which is the first
// cache, holds what a row leaves behind: its gradients and normalised elements. While these become
// results, the next row takes their places. So every element is read and decoded once, and memory
// is read and written all the time.
//
// Without it (`rows`) layer norm's gradient in bfloat16 takes 1.15 times as long. In float32 both
// are at memory's speed.
//
// LOCAL_ELEMENTS: of a row at most. Rows are whole vectors, with PAIRS an even number of them.
#ifndef LOCAL_ELEMENTS
#define LOCAL_ELEMENTS 1024
#endif
#include "include/item_by_item.clh"
#include "norm/rows_backward.clh"
#include "include/vector_steps.clh"

/// A row that local memory holds: where its results go, and what makes them.
typedef struct {
  global char* out;
  SCALAR rstd, constant_, slope;
} Row;

typedef struct {
  VECTOR gradient, normal;
} Element;

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
      const VECTOR centred = SCALED(held[(v) + u].gradient, u) - (row).constant_; \
      const VECTOR slope = (VECTOR)(-(row).slope);                                \
      result[u] = fma(held[(v) + u].normal, slope, centred) * (row).rstd;         \
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

kernel ITEM_BY_ITEM void norm_rows_prefetch_backward(
    global const char* grad, const ulong grad_offset, global const char* x, const ulong x_offset,
    global const char* means, const ulong means_offset, global const char* rstds,
    const ulong rstds_offset, global const char* weight, const ulong weight_offset,
    global char* out, const ulong out_offset, global char* partial, const ulong partial_offset,
    const RowArguments args) {
  local Element held[LOCAL_ELEMENTS / WIDTH];
  const uint length = args.length, vectors = length / WIDTH;
  const uint first_row = get_global_id(0) * args.rows_per_item;
  const uint end_row = first_row + min(args.rows_per_item, args.rows - min(first_row, args.rows));
  if (first_row >= end_row) return;
  grad += grad_offset;
  x += x_offset;
  means += means_offset;
  rstds += rstds_offset;
  weight += weight_offset;
  out += out_offset;
  partial += partial_offset + (ulong)get_global_id(0) * 2 * length * STORAGE_SIZE(ACC);
  global VECTOR *dbias = (global VECTOR*)partial, *dweight = dbias + vectors;
#if DPARAM
  clear_partial(partial, length, 0);
#endif
  Row before = {out, 0, 0, 0};
  for (uint row = first_row; row < end_row; row++) {
    global const char* grad_row = ROW_START(grad, IN, row);
    global const char* x_row = ROW_START(x, IN, row);
    const SCALAR mean = MEAN_OF(row), rstd = RSTD_OF(row);
    const bool stores = row > first_row, adds_two = DPARAM && (row - first_row) % 2 == 1;
    VECTOR gradients[STEP], products[STEP];
    EACH gradients[u] = products[u] = ZERO;
    for (uint v = 0; v < vectors; v += STEP) {
      VECTOR g[STEP], normal[STEP];
      LOAD_STEP(IN, grad_row, v, g);
      LOAD_STEP(IN, x_row, v, normal);
      LOAD_WEIGHT(v);
      EACH {
        normal[u] = (normal[u] - mean) * rstd;
        const VECTOR scaled = SCALED(g[u], u);
        gradients[u] += scaled;
        products[u] = fma(scaled, normal[u], products[u]);
      }
      if (adds_two) {
        EACH add_parameters(dbias + v + u, dweight + v + u, g[u] + held[v + u].gradient,
                            fma(g[u], normal[u], held[v + u].gradient * held[v + u].normal));
      }
      if (stores) STORE_RESULTS(v, before);
      EACH {
        held[v + u].gradient = g[u];
        held[v + u].normal = normal[u];
      }
    }
    before.out = ROW_START(out, IN, row);
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
      EACH add_parameters(dbias + v + u, dweight + v + u, held[v + u].gradient,
                          held[v + u].gradient * held[v + u].normal);
    }
  }
  order_partial(partial, length);
}
