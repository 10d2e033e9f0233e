// The second stage of a reduction: combines the partial states of each output.
#include "reduce/defaults.clh"

kernel void reduce_finish(global char* out0_base, global char* out1_base, global char* partial,
                          const ReduceArgs args, const TYPE(S) s0, const TYPE(S) s1) {
  const uint output = get_global_id(0);
  if (output >= args.outputs) return;
#define SPLIT(i) load_partial(partial, PARTIAL_OFFSETS(args), (ulong)(i) * args.outputs + output)
  // Four chains hide the memory's latency. Each takes a stretch of its own: states are combined in
  // the order of their rows, so that the first of equal values wins.
  State state = identity(), second = identity(), third = identity(), fourth = identity();
  const uint quarter = args.splits / 4;
  for (uint split = 0; split < quarter; split++) {
    state = combine(state, SPLIT(split));
    second = combine(second, SPLIT(quarter + split));
    third = combine(third, SPLIT(2 * quarter + split));
    fourth = combine(fourth, SPLIT(3 * quarter + split));
  }
  for (uint split = 4 * quarter; split < args.splits; split++) {
    fourth = combine(fourth, SPLIT(split));
  }
  state = combine(combine(state, second), combine(third, fourth));
  ulong in = 0;
  global char* out0 = out0_base + args.out_offset[0];
  global char* out1 = out1_base + args.out_offset[1];
  DECODE_OUTPUT(args, 0, output, in, out0, out1);
  store_result(state, out0, out1, s0, s1);
}
