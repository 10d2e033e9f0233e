// The forward and backward variables of RNN-transducer losses: logarithms of the sums over all
// paths that lead to a place (time, labels), and over all that lead from it to the end.
//
// A work-group per sequence. On CPUs it is one work-item, which walks the table row by row; on GPUs
// GROUP work-items take a diagonal together, whose places don't need each other.
//
// Compile parameters: GROUP, C (tag of all).
#ifndef GROUP
#define GROUP 1
#endif
#ifndef C
#define C f32
#endif
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "loss/transducer_arguments.clh"

/// log(exp(a) + exp(b)); either may be minus infinity.
static inline TYPE(C) add_logarithms(TYPE(C) a, TYPE(C) b) {
  const TYPE(C) most = fmax(a, b);
  if (most == -INFINITY) return most;
  return most + log1p(exp(fmin(a, b) - most));
}

#define AT(p, t, u) LOAD(C, p, start + (ulong)(t) * args.labels + (u))
#define PUT(p, t, u, v) STORE(C, p, start + (ulong)(t) * args.labels + (u), v)

/// blank, label: log-probabilities [batch, times, labels] of a blank and of the next label at a
/// place; forward, backward: likewise, beyond a sequence's lengths minus infinity.
kernel ITEM_BY_ITEM void transducer(global const char* blank, const ulong blank_offset,
                                    global const char* label, const ulong label_offset,
                                    global const char* times, const ulong times_offset,
                                    global const char* counts, const ulong counts_offset,
                                    global char* forward, const ulong forward_offset,
                                    global char* backward, const ulong backward_offset,
                                    const TransducerArguments args) {
  const ulong sequence = get_group_id(0);
  blank += blank_offset;
  label += label_offset;
  forward += forward_offset;
  backward += backward_offset;
  const ulong start = sequence * args.times * args.labels;
  // Within the table whatever the lengths say.
  const int last_time = clamp(LOAD(i32, times + times_offset, sequence), 1, (int)args.times) - 1;
  const int last_label =
      clamp(LOAD(i32, counts + counts_offset, sequence), 0, (int)args.labels - 1);
  const int item = get_local_id(0);
#if GROUP > 1
  for (int diagonal = 0; diagonal <= last_time + last_label; diagonal++) {
    for (int u = item; u <= min(last_label, diagonal); u += GROUP) {
      const int t = diagonal - u;
      if (t > last_time) continue;
#else
  for (int t = 0; t <= last_time; t++) {
    for (int u = 0; u <= last_label; u++) {
#endif
      TYPE(C) sum = t == 0 && u == 0 ? (TYPE(C))0 : (TYPE(C))(-INFINITY);
      if (t > 0) sum = add_logarithms(sum, AT(forward, t - 1, u) + AT(blank, t - 1, u));
      if (u > 0) sum = add_logarithms(sum, AT(forward, t, u - 1) + AT(label, t, u - 1));
      PUT(forward, t, u, sum);
      // The place counted from the end.
      const int s = last_time - t, v = last_label - u;
      TYPE(C) rest = t == 0 && u == 0 ? AT(blank, s, v) : (TYPE(C))(-INFINITY);
      if (t > 0) rest = add_logarithms(rest, AT(backward, s + 1, v) + AT(blank, s, v));
      if (u > 0) rest = add_logarithms(rest, AT(backward, s, v + 1) + AT(label, s, v));
      PUT(backward, s, v, rest);
    }
#if GROUP > 1
    barrier(CLK_GLOBAL_MEM_FENCE);
#endif
  }
}
