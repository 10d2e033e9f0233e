// Reductions whose work-items walk across the reduced dimension: each owns UNROLL vectors of adjacent
// columns, which are contiguous in the input. The last tile is moved back to end with the row, so
// columns in the overlap are reduced twice, to the same bits.
#include "include/item_by_item.clh"
#include "reduce/defaults.clh"

#define TILE (WIDTH * UNROLL)
// A work-item with one vector per row has several rows under way, to hide the memory's latency. Not
// where the first of equal values must win.
#if UNROLL == 1 && FORM != FORM_ARG
#define ROWS_AT_ONCE 4
#else
#define ROWS_AT_ONCE 1
#endif

kernel ITEM_BY_ITEM void reduce_columns(global const char* in_base, global char* out0_base,
                                        global char* out1_base, global char* partial,
                                        const ReduceArgs args, const TYPE(S) s0, const TYPE(S) s1) {
  const uint id = get_global_id(0);
  const uint tile = id % args.tiles;
  const uint outers = args.outputs / args.columns;
  const uint outer = id / args.tiles % outers;
  const uint split = id / args.tiles / outers;
  if (split >= args.splits) return;
  const uint column = min(tile * TILE, args.columns - TILE);
  const uint first_chunk = (ulong)args.chunks * split / args.splits;
  const uint end_chunk = (ulong)args.chunks * (split + 1) / args.splits;

  global const char* in = in_base + args.in_offset + (ulong)column * STORAGE_SIZE(IN);
  const long out0_step = args.out_stride[0][args.reduced_dims];
  const long out1_step = args.out_stride[1][args.reduced_dims];
  global char* out0 = out0_base + args.out_offset[0] + column * out0_step;
  global char* out1 = out1_base + args.out_offset[1] + column * out1_step;
  DECODE_OUTPUT(args, 1, outer, in, out0, out1);

  Columns states[UNROLL];
  for (uint u = 0; u < UNROLL; u++) states[u] = columns_identity();
  for (uint c = first_chunk; c < end_chunk; c++) {
    global const char* row = in;
    const uint index = c / args.chunks_per_row;
    const ulong first = (ulong)(c - index * args.chunks_per_row) * args.chunk;
    DECODE_ROW(args, index, row);
    row += (long)first * args.step;
    const uint count = min((ulong)args.chunk, args.length - first);
    Columns block[UNROLL];
    for (uint u = 0; u < UNROLL; u++) block[u] = columns_identity();
    uint i = 0;
#if ROWS_AT_ONCE > 1
    if (count >= ROWS_AT_ONCE) {
      Columns rows[ROWS_AT_ONCE];
#pragma unroll
      for (uint r = 0; r < ROWS_AT_ONCE; r++) rows[r] = columns_identity();
      for (; i + ROWS_AT_ONCE <= count; i += ROWS_AT_ONCE) {
#pragma unroll
        for (uint r = 0; r < ROWS_AT_ONCE; r++) {
          rows[r] = columns_step(rows[r], row + r * args.step, first + i + r, s0);
        }
        row += ROWS_AT_ONCE * args.step;
      }
#pragma unroll
      for (uint r = 0; r < ROWS_AT_ONCE; r++) block[0] = columns_combine(block[0], rows[r]);
    }
#endif
    for (; i < count; i++) {
#pragma unroll
      for (uint u = 0; u < UNROLL; u++) {
        block[u] = columns_step(block[u], row + u * (WIDTH * STORAGE_SIZE(IN)), first + i, s0);
      }
      row += args.step;
    }
    for (uint u = 0; u < UNROLL; u++) states[u] = columns_combine(states[u], block[u]);
  }

  for (uint u = 0; u < UNROLL; u++) {
    if (args.splits > 1) {
      const ulong slot = (ulong)split * args.outputs + outer * args.columns + column + u * WIDTH;
      store_partial_columns(states[u], partial, PARTIAL_OFFSETS(args), slot);
    } else {
      store_columns(states[u], out0 + u * WIDTH * out0_step, out0_step,
                    out1 + u * WIDTH * out1_step, out1_step, s0, s1);
    }
  }
}
