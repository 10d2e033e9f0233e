// Scans of lines that lie side by side in memory: a work-item walks WIDTH neighbouring lines at
// once (line dimension 0 of the arguments), along one chunk.
//
// Compile parameters: those of scan/ops.clh, PHASE, WIDTH.
#include "include/item_by_item.clh"
#include "scan/ops.clh"
#include "scan/geometry.clh"

#ifndef WIDTH
#define WIDTH 1
#endif

#if PHASE == PHASE_REDUCE
#define STORE_COLUMN(k)
#else
#define STORE_COLUMN(k) \
  store_state(states[k], out0 + (k) * args.out_stride[0][0], out1 + (k) * args.out_stride[1][0]);
#endif
#define NEXT                \
  in += args.in_step;       \
  out0 += args.out_step[0]; \
  out1 += args.out_step[1];

kernel ITEM_BY_ITEM void scan_columns(global const char* in, const ulong in_offset,
                                      global char* out0, const ulong out0_offset, global char* out1,
                                      const ulong out1_offset, global char* partial,
                                      const ulong partial_offset, const Arguments args) {
  const uint id = get_global_id(0);
  const uint blocks = args.lines / args.columns * args.tiles;
  const uint split = id / blocks;
  if (split >= args.splits) return;
  const uint block = id - split * blocks;
  const uint outer = block / args.tiles;
  const uint column = (block - outer * args.tiles) * WIDTH;
  const uint count = min(args.columns - column, (uint)WIDTH);
  const uint line = outer * args.columns + column;
  const ulong begin = split * args.chunk;
  const ulong end = min(begin + args.chunk, args.length);

  in += in_offset + (long)begin * args.in_step;
  out0 += out0_offset + (long)begin * args.out_step[0];
  out1 += out1_offset + (long)begin * args.out_step[1];
  partial += partial_offset;
  in += column * args.in_stride[0];
  out0 += column * args.out_stride[0][0];
  out1 += column * args.out_stride[1][0];
  DECODE_LINE(args, 1, outer, in, out0, out1);

  State states[WIDTH];
  for (uint k = 0; k < WIDTH; k++) states[k] = identity();
#if PHASE == PHASE_SCAN
  for (uint s = 0; s < split; s++) {
    const ulong index = (ulong)s * args.lines + line;
    for (uint k = 0; k < count; k++) {
      states[k] = combine(states[k], load_partial(partial, PARTIAL_STARTS(args), index + k));
    }
  }
#endif
  // A constant count lets the compiler keep the states in registers.
  bool any_nan = false;
  for (uint k = 0; k < count; k++) any_nan |= IS_NAN(states[k]);
  ulong i = begin;
  if (count == WIDTH) {
    for (; i < end && !any_nan; i++) {
      State next[WIDTH];
      for (uint k = 0; k < WIDTH; k++) {
        next[k] = load_state(in, k, i);
        any_nan |= IS_NAN(next[k]);
      }
      if (any_nan) break;
      for (uint k = 0; k < WIDTH; k++) states[k] = advance(states[k], next[k]);
      for (uint k = 0; k < WIDTH; k++) {
        STORE_COLUMN(k)
      }
      NEXT
    }
  }
  for (; i < end; i++) {
    for (uint k = 0; k < count; k++) {
      states[k] = combine(states[k], load_state(in, k, i));
      STORE_COLUMN(k)
    }
    NEXT
  }
#if PHASE == PHASE_REDUCE
  for (uint k = 0; k < count; k++) {
    store_partial(states[k], partial, PARTIAL_STARTS(args), (ulong)split * args.lines + line + k);
  }
#endif
}
