// The second stage of a reduction: a work-item, or GROUP of them, combine the partial states of an
// output. Partial states of adjacent outputs are adjacent, so a work-group takes OUTPUTS side by
// side.
#include "reduce/defaults.clh"

#define SPLIT(i) load_partial(partial, PARTIAL_STARTS(args), (ulong)(i) * args.outputs + output)

kernel void reduce_partials(global char* out0, const ulong out0_offset, global char* out1,
                            const ulong out1_offset, global char* partial,
                            const ulong partial_offset, const Arguments args, const TYPE(S) s0,
                            const TYPE(S) s1) {
  partial += partial_offset;
#if GROUP > 1
  local State shared[GROUP * OUTPUTS];
  const uint item = get_local_id(0) / OUTPUTS, lane = get_local_id(0) % OUTPUTS;
  const uint own = get_group_id(0) * OUTPUTS + lane;
  const uint output = min(own, args.outputs - 1);  // all meet at the barriers
  const uint begin = args.splits * item / GROUP, end = args.splits * (item + 1) / GROUP;
#else
  const uint output = get_global_id(0);
  if (output >= args.outputs) return;
  const uint begin = 0, end = args.splits;
#endif
  // Four chains hide the memory's latency. Each takes a stretch of its own: states are combined in
  // the order of their rows, so that the first of equal values wins.
  State state = identity(), second = identity(), third = identity(), fourth = identity();
  const uint quarter = (end - begin) / 4;
  for (uint split = begin; split < begin + quarter; split++) {
    state = combine(state, SPLIT(split));
    second = combine(second, SPLIT(quarter + split));
    third = combine(third, SPLIT(2 * quarter + split));
    fourth = combine(fourth, SPLIT(3 * quarter + split));
  }
  for (uint split = begin + 4 * quarter; split < end; split++) {
    fourth = combine(fourth, SPLIT(split));
  }
  state = combine(combine(state, second), combine(third, fourth));
#if GROUP > 1
  state = combine_group(state, item, shared + lane);
  if (item > 0 || own != output) return;
#endif
  ulong in = 0;
  out0 += out0_offset;
  out1 += out1_offset;
  DECODE_OUTPUT(args, 0, output, in, out0, out1);
  store_result(state, out0, out1, s0, s1);
}
