// Softmax's gradient along a contiguous dimension for CPUs whose first cache holds two rows,
// software pipelined over the rows.
//
// The gradient has two passes over a row: a sum, then the results. While the row before becomes
// results, the next one takes its place in local memory, and its sum is computed. So every element
// is read and decoded once, and memory is read and written all the time.
//
// Without it (`rows`) the gradient in bfloat16 takes 1.6 times as long, log_softmax's 2.1 times. In
// float32 both are at memory's speed.
//
// LOCAL_ELEMENTS: of a row at most. Rows are whole vectors, with PAIRS (see vector_pairs.clh) an
// even number of them.
#ifndef LOCAL_ELEMENTS
#define LOCAL_ELEMENTS 1024
#endif
#include "include/item_by_item.clh"
#include "softmax/softmax.clh"
#include "include/vector_pairs.clh"
#include "include/vector_steps.clh"

/// Of a row: the gradients of the results, and the exponentials by their sum.
typedef struct {
  VECTOR gradient, share;
} Element;

#if LOG
#define SHARE(result) SHARE_OF(SUFFIX(WIDTH), result)
#define SUMMAND(gradient, share) (gradient)
#define RESULT(gradient, share, sum) ((gradient) - (share) * (sum))
#else
#define SHARE(result) (result)
#define SUMMAND(gradient, share) ((gradient) * (share))
#define RESULT(gradient, share, sum) (((gradient) - (sum)) * (share))
#endif

static inline void store_results(global char* out, uint v, local const Element* row, SCALAR sum) {
  VECTOR result[STEP];
  EACH result[u] = RESULT(row[v + u].gradient, row[v + u].share, sum);
  STORE_STEP(OUT, out, v, result);
}

kernel ITEM_BY_ITEM void softmax_rows_prefetch_backward(
    global const char* grad, const ulong grad_offset, global const char* result,
    const ulong result_offset, global char* out, const ulong out_offset, const Arguments args) {
  local Element row_before[LOCAL_ELEMENTS / WIDTH];
  const uint length = args.length, vectors = length / WIDTH;
  const uint first_row = get_global_id(0) * args.outer_per_item;
  const uint end_row =
      first_row + min(args.outer_per_item, args.outer - min(first_row, args.outer));
  if (first_row >= end_row) return;
  const ulong first = (ulong)first_row * length;
  grad += grad_offset + first * STORAGE_SIZE(GRAD);
  result += result_offset + first * STORAGE_SIZE(IN);
  out += out_offset + first * STORAGE_SIZE(OUT);
  SCALAR sum = 0;  // of the row before
  for (uint row = first_row; row < end_row; row++) {
    const bool stores = row > first_row;
    VECTOR total = (VECTOR)(0);
    for (uint begin = 0; begin < vectors; begin += BLOCK) {
      VECTOR block[STEP];
      EACH block[u] = (VECTOR)(0);
      for (uint v = begin; v < min(begin + BLOCK, vectors); v += STEP) {
        VECTOR g[STEP], share[STEP];
        LOAD_STEP(GRAD, grad, v, g);
        LOAD_STEP(IN, result, v, share);
        EACH share[u] = SHARE(share[u]);
        EACH block[u] += SUMMAND(g[u], share[u]);
        if (stores) store_results(out, v, row_before, sum);
        EACH row_before[v + u].gradient = g[u];
        EACH row_before[v + u].share = share[u];
      }
      total += sum_of_step(block);
    }
    sum = sum_lanes(total);
    grad += (ulong)length * STORAGE_SIZE(GRAD);
    result += (ulong)length * STORAGE_SIZE(IN);
    if (stores) out += (ulong)length * STORAGE_SIZE(OUT);
  }
  for (uint v = 0; v < vectors; v += STEP) store_results(out, v, row_before, sum);
}
