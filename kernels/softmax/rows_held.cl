// Softmax along a contiguous dimension for GPUs, rows of any length: a work-group of GROUP shares a
// row. Its vectors are aligned wherever it begins: up to WIDTH - 1 elements before the first one
// and behind the last, the edges, are taken one by one.
//
// HELD: of a row's vectors, the first that each work-item has in registers. The others, if there
// are any, are read again.
#ifndef HELD
#define HELD 1
#define GROUP 32
#endif
#include "softmax/softmax.clh"

#define FOR_HELD(j) \
  _Pragma("unroll") for (uint j = 0; j < HELD; j++) if (item + j * GROUP < vectors)
#define FOR_OTHERS(v) for (uint v = item + HELD * GROUP; v < vectors; v += GROUP)
// How many vectors are read together, so that one's way from memory hides the others'.
#define TOGETHER 4
#define FOR_CHUNKS(v) for (uint v = item + HELD * GROUP; v < vectors; v += TOGETHER * GROUP)
#define FOR_CHUNK(j, v) \
  _Pragma("unroll") for (uint j = 0; j < TOGETHER; j++) if ((v) + j * GROUP < vectors)

// Declares for the row whose first element is number `first` of all: the elements before the first
// vector, the vectors, and the element that a work-item takes of the edges, args.length if none.
#define DECLARE_ROW(first)                                              \
  const uint before = min((uint)(-(first) & (WIDTH - 1)), args.length); \
  const uint vectors = (args.length - before) / WIDTH;                  \
  const uint edge = min(item < before ? item : item + vectors * WIDTH, args.length)

// A finite number to begin with: a work-item of -infinities alone has the sum 0 then, not NaN.
#define BEGIN PASTE2(BEGIN_, SCALAR)
#define BEGIN_float (-FLT_MAX)
#define BEGIN_double (-DBL_MAX)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void softmax_rows_held(
    global const char* in, const ulong in_offset, global char* out, const ulong out_offset,
    const Arguments args) {
  DECLARE_SHARED;
  const uint item = get_local_id(0);
  const ulong first = (ulong)get_group_id(0) * args.length;
  in += in_offset + first * STORAGE_SIZE(IN);
  out += out_offset + first * STORAGE_SIZE(OUT);
  DECLARE_ROW(first);
  VECTOR row[HELD];
  SCALAR largest = BEGIN, sum = 0;
  global const char* in_vectors = in + before * STORAGE_SIZE(IN);
  global char* out_vectors = out + before * STORAGE_SIZE(OUT);
  FOR_HELD(j) row[j] = LOADV_OF(IN, in_vectors, item + j * GROUP);
  SCALAR edge_value = BEGIN;
  if (edge < args.length) edge_value = LOAD_OF(IN, in, edge);
  {
    VECTOR m = (VECTOR)(BEGIN);
    FOR_HELD(j) m = LARGER(row[j], m);
    largest = max_lanes(m);
    largest = LARGER(edge_value, largest);
    VECTOR total = (VECTOR)(0);
    FOR_HELD(j) total += EXPV(row[j] - largest);
    sum = sum_lanes(total);
    if (edge < args.length) sum += EXP_ONE(edge_value - largest);
  }
  // The sum follows the largest element so far (Milakov and Gimelshein, "Online normalizer
  // calculation for softmax", 2018).
  FOR_CHUNKS(v) {
    VECTOR chunk[TOGETHER], m = (VECTOR)(largest), total = (VECTOR)(0);
    FOR_CHUNK(j, v) chunk[j] = LOADV_OF(IN, in_vectors, v + j * GROUP);
    FOR_CHUNK(j, v) m = LARGER(chunk[j], m);
    const SCALAR larger = max_lanes(m);
    FOR_CHUNK(j, v) total += EXPV(chunk[j] - larger);
    sum = sum * EXP_ONE(largest - larger) + sum_lanes(total);
    largest = larger;
  }
  const SCALAR largest_of_all = group_max(largest, item, SHARED);
  sum = group_sum(sum * EXP_ONE(largest - largest_of_all), item, SHARED);
#if LOG
  const SCALAR log_sum = log(sum);
#define RESULT(exponential, x) (((x) - largest_of_all) - log_sum)
#else
  const SCALAR scale = 1 / sum;
#define RESULT(exponential, x) (exponential((x) - largest_of_all) * scale)
#endif
#define STORE_RESULT(v, x) STOREV_FROM(OUT, ACC, WIDTH, out_vectors, v, RESULT(EXPV, x))
  FOR_HELD(j) STORE_RESULT(item + j * GROUP, row[j]);
  if (edge < args.length) STORE_FROM(OUT, ACC, out, edge, RESULT(EXP_ONE, edge_value));
  FOR_OTHERS(v) STORE_RESULT(v, LOADV_OF(IN, in_vectors, v));
}

// grad: the gradient of the result; result: what softmax_rows_held gave.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void softmax_rows_held_backward(
    global const char* grad, const ulong grad_offset, global const char* result,
    const ulong result_offset, global char* out, const ulong out_offset, const Arguments args) {
  DECLARE_SHARED;
  const uint item = get_local_id(0);
  const ulong first = (ulong)get_group_id(0) * args.length;
  grad += grad_offset + first * STORAGE_SIZE(GRAD);
  result += result_offset + first * STORAGE_SIZE(IN);
  out += out_offset + first * STORAGE_SIZE(OUT);
  DECLARE_ROW(first);
  global const char* grad_vectors = grad + before * STORAGE_SIZE(GRAD);
  global const char* result_vectors = result + before * STORAGE_SIZE(IN);
  global char* out_vectors = out + before * STORAGE_SIZE(OUT);
#define GRADIENT(v) LOADV_OF(GRAD, grad_vectors, v)
#define RESULT_OF(v) LOADV_OF(IN, result_vectors, v)
  VECTOR g[HELD], total = (VECTOR)(0);
  FOR_HELD(j) g[j] = GRADIENT(item + j * GROUP);
#if LOG  // whose sum is of gradients alone: registers are theirs
#define HELD_RESULT(j) RESULT_OF(item + j * GROUP)
#else
  VECTOR y[HELD];
  FOR_HELD(j) y[j] = RESULT_OF(item + j * GROUP);
#define HELD_RESULT(j) y[j]
#endif
  SCALAR edge_grad = 0, edge_result = 0;
  if (edge < args.length) {
    edge_grad = LOAD_OF(GRAD, grad, edge);
    edge_result = LOAD_OF(IN, result, edge);
  }
  FOR_HELD(j) total += TERM(g[j], HELD_RESULT(j));
  FOR_CHUNKS(v) {
    FOR_CHUNK(j, v) total += TERM(GRADIENT(v + j * GROUP), RESULT_OF(v + j * GROUP));
  }
  const SCALAR sum = group_sum(sum_lanes(total) + TERM(edge_grad, edge_result), item, SHARED);
#define STORE_GRADIENT(v, grad, result) \
  STOREV_FROM(OUT, ACC, WIDTH, out_vectors, v, GRAD_INPUT(SUFFIX(WIDTH), grad, result))
  FOR_HELD(j) STORE_GRADIENT(item + j * GROUP, g[j], HELD_RESULT(j));
  if (edge < args.length) {
    STORE_FROM(OUT, ACC, out, edge, GRAD_INPUT(, edge_grad, edge_result));
  }
  FOR_OTHERS(v) STORE_GRADIENT(v, GRADIENT(v), RESULT_OF(v));
}
