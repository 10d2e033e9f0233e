// A step of an optimizer whose states have 8 bits: a number of a table of 256 ascending ones, times
// the largest of its block. Computed in float.
//
// A work-group per block of states. On CPUs it is one work-item.
//
// Compile parameters: E (tag of parameters and gradients), GROUP, SHARE (elements of a work-item,
// at least block / GROUP), RULE (0 Adam, 1 momentum, 2 RMSprop, 3 Lion, 4 Adagrad).
#ifndef E
#define E f32
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifndef SHARE
#define SHARE 256
#endif
#ifndef RULE
#define RULE 0
#endif
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "quantize/blockwise_arguments.clh"

/// The number of the table that is nearest to x; of two the lower one.
static inline uchar nearest(global const float* table, float x) {
  uint low = 0, high = 255;
  while (low < high) {
    const uint middle = (low + high) / 2;
    if ((table[middle] + table[middle + 1]) * 0.5f < x) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return (uchar)low;
}

#if GROUP > 1
#define LARGEST(x) largest_of_group(x, shared)
static inline float largest_of_group(float x, local float* shared) {
  const uint item = get_local_id(0);
  // Global memory waits, too: what all have read of the block's old maxima is written afterwards.
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  shared[item] = x;
  for (uint n = GROUP / 2; n > 0; n /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < n) shared[item] = fmax(shared[item], shared[item + n]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return shared[0];
}
#else
#define LARGEST(x) (x)
#endif

#define TABLE(p) ((global const float*)(p))

kernel ITEM_BY_ITEM void blockwise(global char* parameters, const ulong parameters_offset,
                                   global const char* gradients, const ulong gradients_offset,
                                   global uchar* states1, const ulong states1_offset,
                                   global uchar* states2, const ulong states2_offset,
                                   global const char* table1, const ulong table1_offset,
                                   global const char* table2, const ulong table2_offset,
                                   global char* largest1, const ulong largest1_offset,
                                   global char* largest2, const ulong largest2_offset,
                                   const BlockwiseArguments args) {
#if GROUP > 1
  local float shared[GROUP];
#endif
  const ulong block = get_group_id(0);
  const ulong start = block * args.block;
  const ulong end = min(start + args.block, args.elements);
  parameters += parameters_offset;
  gradients += gradients_offset;
  states1 += states1_offset;
  states2 += states2_offset;
  table1 += table1_offset;
  table2 += table2_offset;
  global float* most1 = (global float*)(largest1 + largest1_offset) + block;
  global float* most2 = (global float*)(largest2 + largest2_offset) + block;
  const float scale1 = *most1;
  float one[SHARE], above1 = 0;
#if RULE == 0
  const float scale2 = *most2;
  float two[SHARE], above2 = 0;
#endif
  uint n = 0;
  for (ulong i = start + get_local_id(0); i < end; i += GROUP, n++) {
    float gradient = LOAD_AS(f32, E, gradients, i) * args.gradient_scale;
    float parameter = LOAD_AS(f32, E, parameters, i);
    float state = TABLE(table1)[states1[i]] * scale1;
#if RULE == 0
    float square = TABLE(table2)[states2[i]] * scale2;
    state = state * args.beta1 + gradient * (1 - args.beta1);
    square = square * args.beta2 + gradient * gradient * (1 - args.beta2);
    parameter *= 1 - args.rate * args.decay;
    parameter -=
        args.rate / args.correction1 * state / (sqrt(square) / args.correction2 + args.eps);
    two[n] = square;
    above2 = fmax(above2, fabs(square));
#elif RULE == 3
    parameter *= 1 - args.rate * args.decay;
    const float turn = state * args.beta1 + gradient * (1 - args.beta1);
    parameter -= turn == 0 ? 0 : copysign(args.rate, turn);
    state = state * args.beta2 + gradient * (1 - args.beta2);
#else
    gradient += parameter * args.decay;
#if RULE == 1
    state = args.first ? gradient : state * args.beta1 + gradient;
    parameter -= args.rate * state;
#elif RULE == 2
    state = state * args.beta1 + gradient * gradient * (1 - args.beta1);
    parameter -= args.rate * gradient / (sqrt(state) + args.eps);
#else
    state += gradient * gradient;
    parameter -= args.rate * gradient / (sqrt(state) + args.eps);
#endif
#endif
    STORE_FROM(E, f32, parameters, i, parameter);
    one[n] = state;
    above1 = fmax(above1, fabs(state));
  }
  above1 = LARGEST(above1);
#if RULE == 0
  above2 = LARGEST(above2);
#endif
#if GROUP > 1
  // All have read the block's old values.
  if (get_local_id(0) == 0)
#endif
  {
    *most1 = above1;
#if RULE == 0
    *most2 = above2;
#endif
  }
  n = 0;
  for (ulong i = start + get_local_id(0); i < end; i += GROUP, n++) {
    states1[i] = nearest(TABLE(table1), above1 > 0 ? one[n] / above1 : 0);
#if RULE == 0
    states2[i] = nearest(TABLE(table2), above2 > 0 ? two[n] / above2 : 0);
#endif
  }
}
