// Negative log likelihood: picks the score of each sample's class. Scores are
// [batch][classes][inner].
//
// T: tag of scores, weights and results. ACC: what is accumulated in. TARGET: tag of the classes.
// WEIGHTED: there are weights. EACH: the gradient has one element per sample.
#ifndef T
#define T f32
#define ACC f32
#define TARGET i64
#define WEIGHTED 1
#define EACH 0
#endif
#include "include/dtype.clh"
#include "include/assert.clh"

// The layout is that of csrc/ops/LossNLL.cpp.
typedef struct {
  ulong offset[6];
  ulong samples;  // batch * inner
  long ignore_index;
  uint classes;
  uint inner;
  uint parts;
  uint mean;
  uint site;
  uint unused;
} NllArgs;

// Sets `position` (of the class's score) and `weight`; false: the sample does not count.
static inline bool find_class(ulong sample, const NllArgs args, global const char* target,
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

#define SCORES (scores_base + args.offset[0])
#define TARGETS (target_base + args.offset[1])
#define WEIGHTS (weights_base + args.offset[2])

// Each sample's loss.
kernel void nll_each(global const char* scores_base, global const char* target_base,
                     global const char* weights_base, global char* out_base, global int* asserts,
                     const NllArgs args) {
  const ulong sample = get_global_id(0);
  if (sample >= args.samples) return;
  ulong position;
  TYPE(ACC) weight, loss = 0;
  if (find_class(sample, args, TARGETS, WEIGHTS, asserts, &position, &weight)) {
    loss = -LOAD_AS(ACC, T, SCORES, position) * weight;
  }
  STORE_FROM(T, ACC, out_base + args.offset[3], sample, loss);
}

// The sums of losses and of weights over one of `parts` stretches of samples.
kernel void nll_partial(global const char* scores_base, global const char* target_base,
                        global const char* weights_base, global char* partial_base,
                        global int* asserts, const NllArgs args) {
  const uint part = get_global_id(0);
  if (part >= args.parts) return;
  const ulong per_part = (args.samples + args.parts - 1) / args.parts;
  const ulong end = min((part + 1) * per_part, args.samples);
  TYPE(ACC) loss = 0, total_weight = 0;
  // Summed in blocks, to keep the rounding error down.
  for (ulong begin = part * per_part; begin < end; begin += 128) {
    TYPE(ACC) block_loss = 0, block_weight = 0;
    for (ulong sample = begin; sample < min(begin + 128, end); sample++) {
      ulong position;
      TYPE(ACC) weight;
      if (find_class(sample, args, TARGETS, WEIGHTS, asserts, &position, &weight)) {
        block_loss -= LOAD_AS(ACC, T, SCORES, position) * weight;
        block_weight += weight;
      }
    }
    loss += block_loss;
    total_weight += block_weight;
  }
  global char* partial = partial_base + args.offset[3];
  STORE(ACC, partial, 2 * part, loss);
  STORE(ACC, partial, 2 * part + 1, total_weight);
}

kernel void nll_finish(global const char* partial_base, global char* out_base,
                       global char* total_weight_base, const NllArgs args) {
  if (get_global_id(0) > 0) return;
  global const char* partial = partial_base + args.offset[3];
  TYPE(ACC) loss = 0, total_weight = 0;
  for (uint part = 0; part < args.parts; part++) {
    loss += LOAD(ACC, partial, 2 * part);
    total_weight += LOAD(ACC, partial, 2 * part + 1);
  }
  // All samples ignored, or none given: 0/0, NaN, as upstream.
  if (args.mean) loss /= total_weight;
  STORE_FROM(T, ACC, out_base + args.offset[4], 0, loss);
  STORE_FROM(T, ACC, total_weight_base + args.offset[5], 0, total_weight);
}

// grad_input is zero but for the class of each sample.
kernel void nll_backward(global const char* grad_base, global const char* target_base,
                         global const char* weights_base, global char* grad_input_base,
                         global const char* total_weight_base, global int* asserts,
                         const NllArgs args) {
  const ulong sample = get_global_id(0);
  if (sample >= args.samples) return;
  ulong position;
  TYPE(ACC) weight;
  if (!find_class(sample, args, TARGETS, WEIGHTS, asserts, &position, &weight)) return;
#if EACH
  TYPE(ACC) grad = LOAD_AS(ACC, T, grad_base + args.offset[0], sample);
#else
  TYPE(ACC) grad = LOAD_AS(ACC, T, grad_base + args.offset[0], 0);
#endif
  if (args.mean) grad /= LOAD_AS(ACC, T, total_weight_base + args.offset[4], 0);
  STORE_FROM(T, ACC, grad_input_base + args.offset[3], position, -grad * weight);
}
