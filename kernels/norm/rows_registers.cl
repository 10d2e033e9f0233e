// Layer norm and RMS norm, forward, for GPUs, rows in registers: a work-group of GROUP holds one or
// two whole rows.
//
// ROW_VECTORS: of a row, at most, to a work-item. ROWS: 1 or 2 at a time. Two of the half types are
// as many bytes under way as one of floats, and meet at the same barriers.
#ifndef GROUP
#define GROUP 64
#endif
#include "norm/rows.clh"
#ifndef ROW_VECTORS
#define ROW_VECTORS 1
#endif
#ifndef ROWS
#define ROWS 1
#endif
#define SHARED_SIZE (ROWS * (GROUP + SIDE))

// Replaces each of `sums`, one per row, by its sum over the group.
static inline void sum_rows(SCALAR* sums, uint item, local SCALAR* shared) {
#if ROWS == 2
  group_sums(&sums[0], &sums[1], item, shared);
#else
  sums[0] = group_sum(sums[0], item, shared);
#endif
}

#define FOR_ROWS(t) _Pragma("unroll") for (uint t = 0; t < ROWS; t++)

kernel void norm_rows_registers(global const char* x, const ulong x_offset, global char* y,
                                const ulong y_offset, global char* means, const ulong means_offset,
                                global char* rstds, const ulong rstds_offset,
                                global const char* weight, const ulong weight_offset,
                                global const char* bias, const ulong bias_offset, const SCALAR eps,
                                const RowArguments args) {
  local SCALAR shared[SHARED_SIZE];
  const uint item = get_local_id(0), vectors = args.length / WIDTH;
  x += x_offset;
  y += y_offset;
  means += means_offset;
  rstds += rstds_offset;
  weight += weight_offset;
  bias += bias_offset;
  // Past the last row that one is normalized again.
  uint row[ROWS];
  FOR_ROWS(t) row[t] = min((uint)get_group_id(0) * ROWS + t, args.rows - 1);

  // Weight and bias are on their way while the rows are summed.
  VECTOR rows[ROWS][ROW_VECTORS], scale[ROW_VECTORS], shift[ROW_VECTORS];
  FOR_ROWS(t)
  FOR_ROW_VECTORS(j) rows[t][j] = LOADV_OF(IN, ROW_START(x, IN, row[t]), item + j * GROUP);
#if WEIGHT
  FOR_ROW_VECTORS(j) scale[j] = LOADV_OF(PARAM, weight, item + j * GROUP);
#endif
#if BIAS
  FOR_ROW_VECTORS(j) shift[j] = LOADV_OF(PARAM, bias, item + j * GROUP);
#endif
  SCALAR mean[ROWS], rstd[ROWS];
#if RMS
  FOR_ROWS(t) mean[t] = 0;
#else
  SCALAR origin[ROWS];
  FOR_ROWS(t) {
    const SCALAR first = LOAD_OF(IN, ROW_START(x, IN, row[t]), 0);
    origin[t] = ORIGIN_OF_ROW(first);
    VECTOR sum = ZERO;
    FOR_ROW_VECTORS(j) {
      rows[t][j] -= origin[t];
      sum += rows[t][j];
    }
    mean[t] = sum_lanes(sum);
  }
  sum_rows(mean, item, shared);
  FOR_ROWS(t) mean[t] /= args.length;
#endif
  FOR_ROWS(t) {
    VECTOR squares = ZERO;
    FOR_ROW_VECTORS(j) {
      rows[t][j] -= mean[t];
      squares += rows[t][j] * rows[t][j];
    }
    rstd[t] = sum_lanes(squares);
  }
  sum_rows(rstd, item, shared);
  FOR_ROWS(t) {
    rstd[t] = 1 / sqrt(rstd[t] / args.length + eps);
    FOR_ROW_VECTORS(j) {
      VECTOR result = rows[t][j] * rstd[t];
#if WEIGHT
      result *= scale[j];
#endif
#if BIAS
      result += shift[j];
#endif
      STOREV_TO(IN, ROW_START(y, IN, row[t]), item + j * GROUP, result);
    }
    if (item == 0) {
#if !RMS
      STORE_TO(STAT, means, row[t], origin[t] + mean[t]);
#endif
      STORE_TO(STAT, rstds, row[t], rstd[t]);
    }
  }
}
