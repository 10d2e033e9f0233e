// multi_margin_loss and multilabel_margin_loss: hinges between the scores of a row.
//
// Scores are [rows][classes], contiguous. Compile parameters: E (tag of scores, weights and
// gradients), C (computed with, and the tag of the rows' losses), GROUP (work-items per row; above
// 1 a work-group), SQUARED (hinges are squared), WEIGHTED, EACH (the output's gradient has one
// element per row).
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifndef SQUARED
#define SQUARED 0
#endif
#ifndef WEIGHTED
#define WEIGHTED 0
#endif
#ifndef EACH
#define EACH 0
#endif
#include "include/assert.clh"
#include "include/dtype.clh"
#include "include/reduce.clh"
#include "loss/arguments.clh"

typedef TYPE(C) real;

#define ROW_ITEM (GROUP > 1 ? (uint)get_local_id(0) : 0)
#define FOR_CLASSES(d) for (uint d = ROW_ITEM; d < args.classes; d += GROUP)
#if GROUP > 1
#define SUM_OF_ROW(value)     \
  local real scratch_[GROUP]; \
  WORK_GROUP_REDUCE(scratch_, get_local_id(0), GROUP, value, COMBINE_SUM)
#else
#define SUM_OF_ROW(value)
#endif

/// The hinge of a score that stands `z` above where it should.
#define HINGE(z) ((z) > 0 ? (SQUARED ? (z) * (z) : (z)) : (real)0)
#if WEIGHTED
#define CLASS_WEIGHT(chosen) LOAD_AS(C, E, weight + weight_offset, chosen)
#else
#define CLASS_WEIGHT(chosen) ((real)1)
#endif
#if EACH
#define ROW_GRADIENT(row) LOAD_AS(C, E, grad + grad_offset, row)
#else
#define ROW_GRADIENT(row) LOAD_AS(C, E, grad + grad_offset, 0)
#endif

/// losses[row] = mean over the classes of the hinges margin - score[target] + score[class].
kernel void multi_margin(global const char* scores, ulong scores_offset, global const char* target,
                         ulong target_offset, global const char* weight, ulong weight_offset,
                         global char* losses, ulong losses_offset, const MarginArguments args,
                         real margin, global int* asserts) {
  const ulong row = get_global_id(0) / GROUP;
  if (row >= args.rows) return;
  global const char* in = scores + scores_offset + row * args.classes * STORAGE_SIZE(E);
  const long chosen = ((global const long*)(target + target_offset))[row];
  const bool valid = check_index(chosen, args.classes, asserts, args.site);
  real sum = 0;
  if (valid) {
    const real above = margin - LOAD_AS(C, E, in, chosen);
    FOR_CLASSES(d) {
      const real z = above + LOAD_AS(C, E, in, d);
      if (d != (uint)chosen) sum += HINGE(z);
    }
    sum *= CLASS_WEIGHT(chosen);
  }
  SUM_OF_ROW(sum);
  if (ROW_ITEM == 0) STORE(C, losses + losses_offset, row, sum / args.classes);
}

/// `scale`: 1 / classes, and 1 / rows with it where the loss is a mean.
kernel void multi_margin_backward(global const char* scores, ulong scores_offset,
                                  global const char* target, ulong target_offset,
                                  global const char* weight, ulong weight_offset,
                                  global const char* grad, ulong grad_offset, global char* out,
                                  ulong out_offset, const MarginArguments args, real margin,
                                  real scale, global int* asserts) {
  const ulong row = get_global_id(0) / GROUP;
  if (row >= args.rows) return;
  global const char* in = scores + scores_offset + row * args.classes * STORAGE_SIZE(E);
  global char* to = out + out_offset + row * args.classes * STORAGE_SIZE(E);
  const long chosen = ((global const long*)(target + target_offset))[row];
  const bool valid = check_index(chosen, args.classes, asserts, args.site);
  real sum = 0;
  if (valid) {
    const real above = margin - LOAD_AS(C, E, in, chosen);
    const real factor = scale * CLASS_WEIGHT(chosen) * ROW_GRADIENT(row);
    FOR_CLASSES(d) {
      if (d == (uint)chosen) continue;
      const real z = above + LOAD_AS(C, E, in, d);
      const real slope = z > 0 ? factor * (SQUARED ? 2 * z : (real)1) : (real)0;
      STORE_FROM(E, C, to, d, slope);
      sum -= slope;
    }
  }
  SUM_OF_ROW(sum);
  if (valid && ROW_ITEM == 0) STORE_FROM(E, C, to, chosen, sum);
}

/// The targets of a row end at the first -1. One work-item per score.
kernel void multilabel_mark(global const char* target, ulong target_offset, global char* is_target,
                            ulong is_target_offset, const MarginArguments args,
                            global int* asserts) {
  const ulong i = get_global_id(0);
  if (i >= args.rows * args.classes) return;
  const ulong row = i / args.classes;
  const uint d = i - row * args.classes;
  global const long* targets = (global const long*)(target + target_offset) + row * args.classes;
  check_index(targets[d] + 1, (long)args.classes + 1, asserts, args.site);
  bool found = false;
  for (uint t = 0; t < args.classes && targets[t] >= 0 && !found; t++) found = targets[t] == d;
  STORE_FROM(E, C, is_target + is_target_offset, i, (real)found);
}

#define MARKED(d) (LOAD_AS(C, E, marks, d) != 0)

/// losses[row]: for each target, the hinges 1 - score[target] + score[class] of all that are none.
kernel void multilabel_margin(global const char* scores, ulong scores_offset,
                              global const char* target, ulong target_offset,
                              global const char* is_target, ulong is_target_offset,
                              global char* losses, ulong losses_offset,
                              const MarginArguments args) {
  const ulong row = get_global_id(0) / GROUP;
  if (row >= args.rows) return;
  const ulong begin = row * args.classes;
  global const char* in = scores + scores_offset + begin * STORAGE_SIZE(E);
  global const char* marks = is_target + is_target_offset + begin * STORAGE_SIZE(E);
  global const long* targets = (global const long*)(target + target_offset) + begin;
  real sum = 0;
  for (uint t = 0; t < args.classes && targets[t] >= 0; t++) {
    if (targets[t] >= args.classes) continue;
    const real above = 1 - LOAD_AS(C, E, in, targets[t]);
    real hinges = 0;
    FOR_CLASSES(d) {
      const real z = above + LOAD_AS(C, E, in, d);
      if (z > 0 && !MARKED(d)) hinges += z;
    }
    sum += hinges;
  }
  SUM_OF_ROW(sum);
  if (ROW_ITEM == 0) STORE(C, losses + losses_offset, row, sum / args.classes);
}

/// One work-item per score: what it gains as a class that is no target, or loses as a target.
kernel void multilabel_margin_backward(global const char* scores, ulong scores_offset,
                                       global const char* target, ulong target_offset,
                                       global const char* is_target, ulong is_target_offset,
                                       global const char* grad, ulong grad_offset, global char* out,
                                       ulong out_offset, const MarginArguments args, real scale) {
  const ulong i = get_global_id(0);
  if (i >= args.rows * args.classes) return;
  const ulong row = i / args.classes;
  const ulong begin = row * args.classes;
  const uint own = i - begin;
  global const char* in = scores + scores_offset + begin * STORAGE_SIZE(E);
  global const char* marks = is_target + is_target_offset + begin * STORAGE_SIZE(E);
  global const long* targets = (global const long*)(target + target_offset) + begin;
  const real score = LOAD_AS(C, E, in, own);
  const bool marked = MARKED(own);
  uint times = 0;  // this score is a target
  long hinges = 0;
  for (uint t = 0; t < args.classes && targets[t] >= 0; t++) {
    if (targets[t] >= args.classes) continue;
    times += targets[t] == own;
    if (!marked) hinges += 1 - LOAD_AS(C, E, in, targets[t]) + score > 0;
  }
  if (times > 0) {
    for (uint d = 0; d < args.classes; d++) {
      if (!MARKED(d)) hinges -= 1 - score + LOAD_AS(C, E, in, d) > 0;
    }
    hinges *= times;
  }
  STORE_FROM(E, C, out + out_offset, i, hinges * scale * ROW_GRADIENT(row));
}
