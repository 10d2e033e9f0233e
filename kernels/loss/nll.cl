// Negative log likelihood: picks the score of each sample's class. Scores are
// [batch][classes][inner].
//
// T: tag of scores, weights and results. ACC: what is accumulated in. TARGET: tag of the classes.
// WEIGHTED: there are weights. EACH: the gradient has one element per sample. GROUP: work-items
// that add up together, 1 on CPUs.
#ifndef T
#define T f32
#define ACC f32
#define TARGET i64
#define WEIGHTED 1
#define EACH 0
#define GROUP 1
#endif
#include "include/dtype.clh"
#include "include/assert.clh"
#include "loss/arguments.clh"

#define SCALAR TYPE(ACC)
#if GROUP > 1
#include "include/group_reduction.clh"
#define DECLARE_SHARED local SCALAR shared[2 * (GROUP + SIDE)]
#define ADD_UP(loss, weight_sum, item) group_sums(loss, weight_sum, item, shared)
#else
#define DECLARE_SHARED
#define ADD_UP(loss, weight_sum, item)
#endif

// Sets `position` (of the class's score) and `weight`; false: the sample does not count.
static inline bool find_class(ulong sample, const NllArguments args, global const char* target,
                              global const char* weights, global int* asserts, ulong* position,
                              TYPE(ACC) * weight) {
  const long chosen = LOAD_AS(i64, TARGET, target, sample);
  if (chosen == args.ignore_index) return false;
  if (!check_index(chosen, args.classes, asserts, args.site)) return false;
  const ulong batch = sample / args.inner;
  *position = (batch * args.classes + chosen) * args.inner + (sample - batch * args.inner);
#if WEIGHTED
  *weight = LOAD_AS(ACC, T, weights, chosen);
#else
  *weight = 1;
#endif
  return true;
}

// Each sample's loss.
kernel void nll_each(global const char* scores, const ulong scores_offset,
                     global const char* target, const ulong target_offset,
                     global const char* weights, const ulong weights_offset, global char* out,
                     const ulong out_offset, global int* asserts, const NllArguments args) {
  const ulong sample = get_global_id(0);
  if (sample >= args.samples) return;
  ulong position;
  TYPE(ACC) weight, loss = 0;
  if (find_class(sample, args, target + target_offset, weights + weights_offset, asserts, &position,
                 &weight)) {
    loss = -LOAD_AS(ACC, T, scores + scores_offset, position) * weight;
  }
  STORE_FROM(T, ACC, out + out_offset, sample, loss);
}

// The sums of losses and of weights over one of `parts` stretches of samples, of which each of the
// GROUP work-items takes every GROUP-th.
kernel void nll_partial(global const char* scores, const ulong scores_offset,
                        global const char* target, const ulong target_offset,
                        global const char* weights, const ulong weights_offset,
                        global char* partial, const ulong partial_offset, global int* asserts,
                        const NllArguments args) {
  DECLARE_SHARED;
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0;
  const uint part = get_global_id(0) / GROUP;
  const ulong per_part = (args.samples + args.parts - 1) / args.parts;
  const ulong end = min((part + 1) * per_part, args.samples);
  SCALAR loss = 0, weight_sum = 0;
  // Summed in blocks, to keep the rounding error down.
  for (ulong begin = part * per_part + item; begin < end; begin += 128 * GROUP) {
    SCALAR block_loss = 0, block_weight = 0;
    for (ulong sample = begin; sample < min(begin + 128 * GROUP, end); sample += GROUP) {
      ulong position;
      SCALAR weight;
      if (find_class(sample, args, target + target_offset, weights + weights_offset, asserts,
                     &position, &weight)) {
        block_loss -= LOAD_AS(ACC, T, scores + scores_offset, position) * weight;
        block_weight += weight;
      }
    }
    loss += block_loss;
    weight_sum += block_weight;
  }
  ADD_UP(&loss, &weight_sum, item);
  partial += partial_offset;
  if (item == 0) {
    STORE(ACC, partial, 2 * part, loss);
    STORE(ACC, partial, 2 * part + 1, weight_sum);
  }
}

// By one group.
kernel void nll_combine(global const char* partial, const ulong partial_offset, global char* out,
                        const ulong out_offset, global char* total_weight,
                        const ulong total_weight_offset, const NllArguments args) {
  DECLARE_SHARED;
  const uint item = get_local_id(0);
  partial += partial_offset;
  SCALAR loss = 0, weight_sum = 0;
  for (uint part = item; part < args.parts; part += GROUP) {
    loss += LOAD(ACC, partial, 2 * part);
    weight_sum += LOAD(ACC, partial, 2 * part + 1);
  }
  ADD_UP(&loss, &weight_sum, item);
  if (item > 0) return;
  // All samples ignored, or none given: 0/0, NaN, as upstream.
  if (args.mean) loss /= weight_sum;
  STORE_FROM(T, ACC, out + out_offset, 0, loss);
  STORE_FROM(T, ACC, total_weight + total_weight_offset, 0, weight_sum);
}

// grad_input is zero but for the class of each sample.
kernel void nll_backward(global const char* grad, const ulong grad_offset,
                         global const char* target, const ulong target_offset,
                         global const char* weights, const ulong weights_offset,
                         global char* grad_input, const ulong grad_input_offset,
                         global const char* total_weight, const ulong total_weight_offset,
                         global int* asserts, const NllArguments args) {
  const ulong sample = get_global_id(0);
  if (sample >= args.samples) return;
  ulong position;
  TYPE(ACC) weight;
  if (!find_class(sample, args, target + target_offset, weights + weights_offset, asserts,
                  &position, &weight))
    return;
  TYPE(ACC) flowing = LOAD_AS(ACC, T, grad + grad_offset, EACH ? sample : 0);
  if (args.mean) flowing /= LOAD_AS(ACC, T, total_weight + total_weight_offset, 0);
  STORE_FROM(T, ACC, grad_input + grad_input_offset, position, -flowing * weight);
}
