// The second stage of a reduction: combines the partial states of each output.
#include "reduce/defaults.clh"

kernel void reduce_finish(global char* out0_base, global char* out1_base, global char* partial,
                          const ReduceArgs args, const TYPE(S) s0, const TYPE(S) s1) {
  const uint output = get_global_id(0);
  if (output >= args.outputs) return;
  State state = identity();
  for (uint split = 0; split < args.splits; split++) {
    state = combine(state, load_partial(partial, PARTIAL_OFFSETS(args), (ulong)split * args.outputs + output));
  }
  ulong in = 0;
  global char* out0 = out0_base + args.out_offset[0];
  global char* out1 = out1_base + args.out_offset[1];
  DECODE_OUTPUT(args, 0, output, in, out0, out1);
  store_result(state, out0, out1, s0, s1);
}
