// Reductions whose work-items walk along the reduced dimension: one output per work-item, or per
// work-group of GROUP. Serves contiguous rows with vectors, everything else with scalars.
#include "include/item_by_item.clh"
#include "reduce/defaults.clh"

kernel ITEM_BY_ITEM void reduce_rows(global const char* in, const ulong in_offset,
                                     global char* out0, const ulong out0_offset, global char* out1,
                                     const ulong out1_offset, global char* partial,
                                     const ulong partial_offset, const Arguments args,
                                     const TYPE(S) s0, const TYPE(S) s1) {
#if GROUP > 1
  local ROW_SCRATCH shared[ROW_SCRATCH_SIZE];
  const uint item = get_local_id(0);
#else
  const uint item = 0;
#endif
  const uint group = get_global_id(0) / GROUP;
  const uint split = group % args.splits;
  const uint first_output = group / args.splits * args.outputs_per_item;
  const uint end_output = min(first_output + args.outputs_per_item, args.outputs);
  const uint first_chunk = (ulong)args.chunks * split / args.splits;
  const uint end_chunk = (ulong)args.chunks * (split + 1) / args.splits;

  in += in_offset;
  out0 += out0_offset;
  out1 += out1_offset;
  partial += partial_offset;
  for (uint output = first_output; output < end_output; output++) {
    global const char* start = in;
    global char *result0 = out0, *result1 = out1;
    DECODE_OUTPUT(args, 0, output, start, result0, result1);

#if GROUP > 1
    const RowOrigin origin = ROW_ORIGIN(start);
#endif
#if ROW_VECTORS
    const State state = row_in_registers(start, args.length, origin, item, shared);
#else
    State state = identity();
    ulong n = 0;
    for (uint c = first_chunk; c < end_chunk; c++) {
      global const char* row = start;
      ulong first = 0;
      if (args.chunks > 1) {
        const uint index = c / args.chunks_per_row;
        first = (ulong)(c - index * args.chunks_per_row) * args.chunk;
        DECODE_ROW(args, index, row);
      }
      const uint count = min((ulong)args.chunk, args.length - first);
      n += count;
      state = combine(state,
                      reduce_row(row + (long)first * args.step, args.step, count, first, item, s0));
    }
#if GROUP > 1
    state = combine_row(state, n, origin, item, shared);
#endif
#endif
    if (item == 0) {
      if (args.splits > 1) {
        store_partial(state, partial, PARTIAL_STARTS(args), (ulong)split * args.outputs + output);
      } else {
        store_result(state, result0, result1, s0, s1);
      }
    }
  }
}
