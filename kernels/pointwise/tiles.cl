// Pointwise where inputs are transposed against the outputs: tiles over x, along which the outputs
// are contiguous, and y, along which some inputs are. Those are read along y and transposed
// in registers (CPU) or local memory (GPU), so that all memory is touched in whole cache lines.
//
// Further compile parameters: STEP_OUT_<k>, STEP_IN_<k> as in rows.cl, and for inputs 3: contiguous
// along y. CPU: a work-item takes kTilesPerItem tiles of SIDE x SIDE one above the other, SIDE
// being WIDTH or, where vectors can't be used, 8; global size ceil(size[0] / SIDE), ceil(size[1] /
// (SIDE * kTilesPerItem)), outer. GPU: a work-group of 32 x 8 takes a tile of 32 x 32; global size
// ceil(size[0] / 32) * 32, ceil(size[1] / 32) * 8, outer.
#include "pointwise/operands.clh"
#include "include/indexing.clh"
#include "pointwise/arguments.clh"

#ifndef STEP_OUT_0
#define STEP_OUT_0 1
#endif
#ifndef STEP_IN_0
#define STEP_IN_0 3
#endif

#define STRIDE(k, d) arguments.stride[k][d]
// Element (x, y) of an operand: a byte pointer.
#define AT(p, k, x, y) ((p) + (x) * STRIDE(k, 0) + (y) * STRIDE(k, 1))
#define LOAD_ONE(k, name, tag) const T a##k = LOAD_AS(C, tag, AT(name, BUFFER_OF_IN(k), x, y), 0);
#define STORE_ONE(k, name, tag) STORE_FROM(tag, C, AT(name, k, x, y), 0, r##k);
#define ADD_OUTER_OUT(k, name, tag) name += at[k];
#define ADD_OUTER_IN(k, name, tag) name += at[BUFFER_OF_IN(k)];
#define ADD_OUTER()                                                                               \
  uint at[NOPS] = {0};                                                                            \
  DECODE_OFFSETS_BY(at, NOPS, (uint)get_global_id(2), 2, arguments.dims, arguments.size, STRIDE); \
  ADD_OFFSETS()                                                                                   \
  FOR_OUTS(ADD_OUTER_OUT)                                                                         \
  FOR_INS(ADD_OUTER_IN)

#ifdef OCL_DEVICE_CPU

#if !VECTOR_PATH
#define SIDE kScalarTile
#else
#define SIDE WIDTH
#define T TYPEV(C, WIDTH)
#define T_SUFFIX SUFFIX(WIDTH)
#include "include/transpose.clh"

#define DECLARE_TILE_0(k, name, tag)
#define DECLARE_TILE_1(k, name, tag)
#define DECLARE_TILE_2(k, name, tag)
#define DECLARE_TILE_3(k, name, tag)                                               \
  T tile##k[WIDTH];                                                                \
  for (uint i = 0; i < WIDTH; i++)                                                 \
    tile##k[i] = LOADV_AS(C, tag, WIDTH, AT(name, BUFFER_OF_IN(k), x + i, y0), 0); \
  transpose(tile##k);
#define DECLARE_TILE(k, name, tag) PASTE2(DECLARE_TILE_, STEP_IN_##k)(k, name, tag)

#define LOAD_VECTOR_0(k, name, tag) \
  const T a##k = (T)(LOAD_AS(C, tag, AT(name, BUFFER_OF_IN(k), x, y), 0));
#define LOAD_VECTOR_1(k, name, tag) \
  const T a##k = LOADV_AS(C, tag, WIDTH, AT(name, BUFFER_OF_IN(k), x, y), 0);
#define LOAD_VECTOR_2(k, name, tag)                                              \
  TYPE(C) lanes##k[WIDTH];                                                       \
  for (uint lane = 0; lane < WIDTH; lane++)                                      \
    lanes##k[lane] = LOAD_AS(C, tag, AT(name, BUFFER_OF_IN(k), x + lane, y), 0); \
  const T a##k = PASTE2(vload, WIDTH)(0, lanes##k);
#define LOAD_VECTOR_3(k, name, tag) const T a##k = tile##k[row];
#define LOAD_VECTOR(k, name, tag) PASTE2(LOAD_VECTOR_, STEP_IN_##k)(k, name, tag)
#define STORE_VECTOR(k, name, tag) STOREV_FROM(tag, C, WIDTH, AT(name, k, x, y), 0, r##k);
#endif

kernel ITEM_BY_ITEM void pointwise_tiles(PARAMETERS(const Arguments arguments)) {
  ADD_OUTER()
  const uint x0 = get_global_id(0) * SIDE;
  for (uint step = 0; step < kTilesPerItem; step++) {
    const uint y0 = (get_global_id(1) * kTilesPerItem + step) * SIDE;
    if (x0 >= arguments.size[0] || y0 >= arguments.size[1]) return;
#if VECTOR_PATH
    if (x0 + WIDTH <= arguments.size[0] && y0 + WIDTH <= arguments.size[1]) {
      const uint x = x0;
      FOR_INS(DECLARE_TILE)
      for (uint row = 0; row < WIDTH; row++) {
        const uint y = y0 + row;
        LOAD_INS(LOAD_VECTOR)
        FOR_OUTS(DECLARE_RESULT)
        APPLY();
        FOR_OUTS(STORE_VECTOR)
      }
      continue;
    }
#undef T
#undef T_SUFFIX
#endif
#define T TYPE(C)
#define T_SUFFIX
    for (uint y = y0; y < min(y0 + SIDE, arguments.size[1]); y++) {
      for (uint x = x0; x < min(x0 + SIDE, arguments.size[0]); x++) {
        LOAD_INS(LOAD_ONE)
        FOR_OUTS(DECLARE_RESULT)
        APPLY();
        FOR_OUTS(STORE_ONE)
      }
    }
  }
}

#else

#define T TYPE(C)
#define T_SUFFIX
// One element of padding puts a column's elements in different banks.
#define LOCAL_TILE_0(k, name, tag)
#define LOCAL_TILE_1(k, name, tag)
#define LOCAL_TILE_2(k, name, tag)
#define LOCAL_TILE_3(k, name, tag) local T tile##k[kGpuTile][kGpuTile + 1];
#define LOCAL_TILE(k, name, tag) PASTE2(LOCAL_TILE_, STEP_IN_##k)(k, name, tag)
#define FILL_TILE_0(k, name, tag)
#define FILL_TILE_1(k, name, tag)
#define FILL_TILE_2(k, name, tag)
#define FILL_TILE_3(k, name, tag)                                                                  \
  for (uint i = get_local_id(1); i < kGpuTile && y0 + lane < arguments.size[1]; i += kGpuTileRows) \
    if (x0 + i < arguments.size[0])                                                                \
      tile##k[i][lane] = LOAD_AS(C, tag, AT(name, BUFFER_OF_IN(k), x0 + i, y0 + lane), 0);
#define FILL_TILE(k, name, tag) PASTE2(FILL_TILE_, STEP_IN_##k)(k, name, tag)
#define LOAD_CELL_0(k, name, tag) LOAD_ONE(k, name, tag)
#define LOAD_CELL_1(k, name, tag) LOAD_ONE(k, name, tag)
#define LOAD_CELL_2(k, name, tag) LOAD_ONE(k, name, tag)
#define LOAD_CELL_3(k, name, tag) const T a##k = tile##k[lane][i];
#define LOAD_CELL(k, name, tag) PASTE2(LOAD_CELL_, STEP_IN_##k)(k, name, tag)

kernel void pointwise_tiles(PARAMETERS(const Arguments arguments)) {
  ADD_OUTER()
  FOR_INS(LOCAL_TILE)
  const uint lane = get_local_id(0);
  const uint x0 = get_group_id(0) * kGpuTile, y0 = get_group_id(1) * kGpuTile;
  FOR_INS(FILL_TILE)
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint x = x0 + lane;
  if (x >= arguments.size[0]) return;
  for (uint i = get_local_id(1); i < kGpuTile && y0 + i < arguments.size[1]; i += kGpuTileRows) {
    const uint y = y0 + i;
    LOAD_INS(LOAD_CELL)
    FOR_OUTS(DECLARE_RESULT)
    APPLY();
    FOR_OUTS(STORE_ONE)
  }
}

#endif
