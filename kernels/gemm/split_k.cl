// Split-K: adds up the sums of the parts of k and applies the epilogue. Global size: m * n, batch
// or more. Where an epilogue has lanes a work-item has that many columns of the result.
#include "gemm/gemm.clh"

#if EPILOGUE_LANES > 1
#include "include/item_by_item.clh"

kernel ITEM_BY_ITEM void gemm_split_k(OPERANDS) {
  const bool turned = (p.flags & kTransposed) != 0;
  const ulong rows = turned ? p.n : p.m, columns = turned ? p.m : p.n;
  const ulong vectors = (columns + EPILOGUE_LANES - 1) / EPILOGUE_LANES;
  const ulong row = get_global_id(0) / vectors, z = get_global_id(1);
  const ulong column = get_global_id(0) % vectors * EPILOGUE_LANES;
  if (row >= rows || z >= p.batch) return;
  ADVANCE_OPERANDS(z);
  const bool along = !turned || SUMS_TURNED;  // a row's sums are adjacent
  const ulong row_step = along ? columns : 1, column_step = along ? 1 : rows;
  const ulong c_row = turned ? p.c.column : p.c.row, c_column = turned ? p.c.row : p.c.column;
  const uint valid = min((ulong)EPILOGUE_LANES, columns - column);
  global const T* sums =
      (global const T*)workspace + z * p.m * p.n + row * row_step + column * column_step;
  T values[EPILOGUE_LANES];
  for (uint lane = 0; lane < EPILOGUE_LANES; lane++) values[lane] = (T)(0);
  for (ulong split = 0; split < p.splits; split++) {
    global const T* part = sums + split * p.batch * p.m * p.n;
    for (uint lane = 0; lane < valid; lane++) values[lane] += part[lane * column_step];
  }
  for (uint lane = 0; lane < valid; lane++) {
    values[lane] = SCALE(alpha, values[lane], (T)(0));
    if (p.flags & kAddend) {
      const T addend = LOAD_AS(C, OUT, c, row * c_row + (column + lane) * c_column);
      values[lane] = SCALE(beta, addend, values[lane]);
    }
  }
  const ulong row0 = turned ? p.column0 : p.row0, column0 = turned ? p.row0 : p.column0;
  if (valid == EPILOGUE_LANES) {
    epilogue_lanes(p.batch0 + z, row0 + row, column0 + column,
                   PASTE2(vload, EPILOGUE_LANES)(0, values) EPILOGUE_OPERANDS);
    return;
  }
  for (uint lane = 0; lane < valid; lane++) {
    epilogue(p.batch0 + z, row0 + row, column0 + column + lane, values[lane] EPILOGUE_OPERANDS);
  }
}
#else
kernel void gemm_split_k(OPERANDS) {
  const ulong i = get_global_id(0), z = get_global_id(1);
  if (i >= (ulong)p.m * p.n || z >= p.batch) return;
  ADVANCE_OPERANDS(z);
  global const T* sums = (global const T*)workspace;
  T total = (T)(0);
#ifdef OCL_DEVICE_GPU
#pragma unroll 8  // that many loads under way
#endif
  for (ulong split = 0; split < p.splits; split++) {
    total += sums[(split * p.batch + z) * p.m * p.n + i];
  }
  EPILOGUE(z, i / p.n, i % p.n, total);
}
#endif
