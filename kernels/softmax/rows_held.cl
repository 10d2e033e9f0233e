// Softmax along a contiguous dimension for GPUs, rows of any length and alignment: a work-group of
// GROUP shares a row. Adjacent work-items take adjacent elements one by one, so that transactions
// with memory are whole wherever a row begins.
//
// HELD: of a row's elements, the first that each work-item has in registers. The others, if there
// are any, are read again.
#ifndef HELD
#define HELD 1
#define GROUP 32
#endif
#include "softmax/softmax.clh"

#define FOR_HELD(j) \
  _Pragma("unroll") for (uint j = 0; j < HELD; j++) if (item + j * GROUP < args.length)
#define FOR_OTHERS(i) for (uint i = item + HELD * GROUP; i < args.length; i += GROUP)
// Of elements that are read together, so that one's way from memory hides the others'.
#define TOGETHER 8
#define FOR_CHUNKS(i) for (uint i = item + HELD * GROUP; i < args.length; i += TOGETHER * GROUP)
#define FOR_CHUNK(j, i) \
  _Pragma("unroll") for (uint j = 0; j < TOGETHER; j++) if ((i) + j * GROUP < args.length)

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
  SCALAR row[HELD], largest = BEGIN, sum = 0;
  FOR_HELD(j) row[j] = LOAD_OF(IN, in, item + j * GROUP);
  FOR_HELD(j) largest = LARGER(row[j], largest);
  FOR_HELD(j) sum += EXP_ONE(row[j] - largest);
  // The sum follows the largest element so far (Milakov and Gimelshein, "Online normalizer
  // calculation for softmax", 2018).
  FOR_CHUNKS(i) {
    SCALAR chunk[TOGETHER], larger = largest;
    FOR_CHUNK(j, i) chunk[j] = LOAD_OF(IN, in, i + j * GROUP);
    FOR_CHUNK(j, i) larger = LARGER(chunk[j], larger);
    sum *= EXP_ONE(largest - larger);
    FOR_CHUNK(j, i) sum += EXP_ONE(chunk[j] - larger);
    largest = larger;
  }
  const SCALAR largest_of_all = group_max(largest, item, SHARED);
  sum = group_sum(sum * EXP_ONE(largest - largest_of_all), item, SHARED);
#if LOG
  const SCALAR log_sum = log(sum);
#define RESULT(x) (((x) - largest_of_all) - log_sum)
#else
  const SCALAR scale = 1 / sum;
#define RESULT(x) (EXP_ONE((x) - largest_of_all) * scale)
#endif
  FOR_HELD(j) STORE_FROM(OUT, ACC, out, item + j * GROUP, RESULT(row[j]));
  FOR_OTHERS(i) STORE_FROM(OUT, ACC, out, i, RESULT(LOAD_OF(IN, in, i)));
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
  SCALAR g[HELD], sum = 0;
  FOR_HELD(j) g[j] = LOAD_OF(GRAD, grad, item + j * GROUP);
#if LOG  // whose sum is of gradients alone: registers are theirs
#define RESULT_OF(j) LOAD_OF(IN, result, item + j * GROUP)
#else
  SCALAR y[HELD];
  FOR_HELD(j) y[j] = LOAD_OF(IN, result, item + j * GROUP);
#define RESULT_OF(j) y[j]
#endif
  FOR_HELD(j) sum += TERM(g[j], RESULT_OF(j));
  FOR_CHUNKS(i) {
    FOR_CHUNK(j, i) {
      sum += TERM(LOAD_OF(GRAD, grad, i + j * GROUP), LOAD_OF(IN, result, i + j * GROUP));
    }
  }
  sum = group_sum(sum, item, SHARED);
  FOR_HELD(j) STORE_FROM(OUT, ACC, out, item + j * GROUP, GRAD_INPUT(, g[j], RESULT_OF(j)));
  FOR_OTHERS(i) {
    STORE_FROM(OUT, ACC, out, i, GRAD_INPUT(, LOAD_OF(GRAD, grad, i), LOAD_OF(IN, result, i)));
  }
}
