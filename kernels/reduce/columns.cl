// Reductions whose work-items walk across the reduced dimension: each owns a tile of adjacent
// columns, which are contiguous in the input, of up to VECTORS vectors. The last tile is moved back
// to end with the row, so columns in the overlap are reduced twice, to the same bits.
#include "include/item_by_item.clh"
#include "reduce/defaults.clh"

// Rows under way at a time. A single vector of each needs them to hide the memory's latency; not
// where the first of equal values must win. A tile of many vectors has its states in the first
// cache, and is loaded and stored once for so many rows.
#if VECTORS > 1
#define ROWS_AT_ONCE 8
#elif STATE != STATE_ARG
#if defined(OCL_DEVICE_GPU) && STATE == STATE_MOMENTS && STORAGE_SIZE(ACC) == 8
#define ROWS_AT_ONCE 2  // a state of four columns has 26 registers of 64 bits
#elif defined(OCL_DEVICE_GPU)
#define ROWS_AT_ONCE 8
#else
#define ROWS_AT_ONCE 4
#endif
#else
#define ROWS_AT_ONCE 1
#endif
#define VECTOR_BYTES (WIDTH * STORAGE_SIZE(IN))

kernel ITEM_BY_ITEM void reduce_columns(global const char* in, const ulong in_offset,
                                        global char* out0, const ulong out0_offset,
                                        global char* out1, const ulong out1_offset,
                                        global char* partial, const ulong partial_offset,
                                        const Arguments args, const TYPE(S) s0, const TYPE(S) s1) {
  const uint id = get_global_id(0);
  const uint tile = id % args.tiles;
  const uint outers = args.outputs / args.columns;
  const uint outer = id / args.tiles % outers;
  const uint split = id / args.tiles / outers;
  if (split >= args.splits) return;
  const uint vectors = VECTORS > 1 ? args.tile_vectors : 1;
  const uint column = min(tile * vectors * WIDTH, args.columns - vectors * WIDTH);
  const uint first_chunk = (ulong)args.chunks * split / args.splits;
  const uint end_chunk = (ulong)args.chunks * (split + 1) / args.splits;

  in += in_offset + (ulong)column * STORAGE_SIZE(IN);
  long out0_step = 0, out1_step = 0;
  FOR_DIMENSIONS(d, args.reduced_dims, args.reduced_dims + 1, args.size) {
    out0_step = args.out_stride[0][d];
    out1_step = args.out_stride[1][d];
  }
  out0 += out0_offset + column * out0_step;
  out1 += out1_offset + column * out1_step;
  partial += partial_offset;
  DECODE_OUTPUT(args, 1, outer, in, out0, out1);

  Columns states[VECTORS];
  for (uint v = 0; v < vectors; v++) states[v] = columns_identity();
  for (uint c = first_chunk; c < end_chunk; c++) {
    global const char* row = in;
    const uint index = c / args.chunks_per_row;
    const ulong first = (ulong)(c - index * args.chunks_per_row) * args.chunk;
    DECODE_ROW(args, index, row);
    row += (long)first * args.step;
    const uint count = min((ulong)args.chunk, args.length - first);
#if VECTORS > 1
    Block block[VECTORS];
    for (uint v = 0; v < vectors; v++) {
      block[v] = block_start(row + v * VECTOR_BYTES, args.step, min(count, (uint)ROWS_AT_ONCE));
    }
    uint i = 0;
    for (; i + ROWS_AT_ONCE <= count; i += ROWS_AT_ONCE) {
      for (uint v = 0; v < vectors; v++) {
        Block own = block[v];
#pragma unroll
        for (uint r = 0; r < ROWS_AT_ONCE; r++) {
          own = block_step(own, row + v * VECTOR_BYTES + r * args.step, first + i + r, s0);
        }
        block[v] = own;
      }
      row += ROWS_AT_ONCE * args.step;
    }
    for (; i < count; i++) {
      for (uint v = 0; v < vectors; v++) {
        block[v] = block_step(block[v], row + v * VECTOR_BYTES, first + i, s0);
      }
      row += args.step;
    }
    for (uint v = 0; v < vectors; v++) {
      states[v] = columns_combine(states[v], block_state(block[v], count));
    }
#else
    Columns block = columns_identity();
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
      for (uint r = 0; r < ROWS_AT_ONCE; r++) block = columns_combine(block, rows[r]);
    }
#endif
    for (; i < count; i++, row += args.step) block = columns_step(block, row, first + i, s0);
    states[0] = columns_combine(states[0], block);
#endif
  }

  for (uint v = 0; v < vectors; v++) {
    if (args.splits > 1) {
      const ulong slot = (ulong)split * args.outputs + outer * args.columns + column + v * WIDTH;
      store_partial_columns(states[v], partial, PARTIAL_STARTS(args), slot);
    } else {
      store_columns(states[v], out0 + v * WIDTH * out0_step, out0_step,
                    out1 + v * WIDTH * out1_step, out1_step, s0, s1);
    }
  }
}
