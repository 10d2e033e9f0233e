// The kernels before and after implicit GEMM in local-memory tiles (conv/tiled.cl) for some sums: a
// table of k's places, and the sum of split-K's parts. One program serves all tiles.
//
// Compile parameters: those of conv/conv.clh, and OUT_BY_ROW (1: neighbouring work-items store
// along rows). Totals are [split][z][m][n].
#include "conv/conv.clh"
#include "conv/epilogue.clh"

#ifndef OUT_BY_ROW
#define OUT_BY_ROW 1
#endif

/// The places of k's elements in a and b. Global size: k.
kernel void conv_table(global char* table, const ulong table_offset, const ContractionArguments p) {
  const uint k = get_global_id(0);
  if (k >= p.k) return;
  const uint4 d = digits_of(k, SIZES(p.k_size));
  vstore2((int2)((int)place_of(d, STRIDES(p.k_a)), (int)place_of(d, STRIDES(p.k_b))), k,
          (global int*)(table + table_offset));
}

/// Adds up the totals of the parts of k, in order. Global size: m * n, groups.
kernel void conv_tiled_finish(global const char* bias, const ulong bias_offset, global char* out,
                              const ulong out_offset, global const char* sums,
                              const ulong sums_offset,
                              const ContractionArguments p EPILOGUE_PARAMETERS) {
  const ulong e = get_global_id(0);
  const uint z = get_global_id(1);
  if (e >= (ulong)p.m * p.n) return;
#if OUT_BY_ROW
  const uint row = e % p.m, column = e / p.m;
#else
  const uint row = e / p.n, column = e % p.n;
#endif
  global const T* totals = (global const T*)(sums + sums_offset);
  T sum = (T)(0);
  for (uint split = 0; split < p.splits; split++) {
    sum += totals[(((ulong)split * p.groups + z) * p.m + row) * p.n + column];
  }
  if (p.flags & kConvBias) sum += LOAD_AS(C, OUT, bias + bias_offset, (ulong)z * p.n + column);
  const long at = z * p.out_group +
                  place_of(digits_of(row, SIZES(p.row_size)), STRIDES(p.row_out)) +
                  column * p.column_out;
  STORE_RESULT(RESULT_ROW(p.plane, p.all, p.position0 + row, z * p.n + column),
               RESULT_COLUMN(p.plane, p.position0 + row, z * p.n + column), out + out_offset, at,
               sum);
}
