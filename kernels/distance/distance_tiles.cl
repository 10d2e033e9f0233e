// Distances by the p-norm between the rows of two matrices, or of one with itself, on CPUs: LANES
// rows of the second are transposed, so that vectors have a row per lane and each loaded vector
// serves ROWS rows of the first.
//
// Compile parameters: C (f32 or f64), NORM (0, 1 or 2: that p; 3: infinity), PDIST (1: the
// distances are those of all pairs of rows i < j of one matrix, in a vector), LANES.
#include "distance/arguments.clh"
#include "include/dtype.clh"
#include "include/item_by_item.clh"

#ifndef C
#define C f32
#endif
#ifndef NORM
#define NORM 2
#endif
#ifndef PDIST
#define PDIST 0
#endif
#ifndef LANES
#define LANES 4
#endif
#define TRANSPOSED 128  // elements of a row at a time; one long sum would be less exact
#define ROWS 4

typedef TYPE(C) T;
typedef TYPEV(C, LANES) V;

#if NORM == 0
#define ONE_UNLESS_0(x) select((x), (V)1, (x) > (V)0)  // NaN stays
#define COMBINE(sum, x) ((sum) + ONE_UNLESS_0(fabs(x)))
#define FINISH(sum) (sum)
#elif NORM == 1
#define COMBINE(sum, x) ((sum) + fabs(x))
#define FINISH(sum) (sum)
#elif NORM == 2
#define COMBINE(sum, x) fma(x, x, sum)
#define FINISH(sum) sqrt(sum)
#else
// A NaN stays, on either side.
#define LARGER(sum, x) select(sum, x, !((x) <= (sum)) && (sum) == (sum))
#define COMBINE(sum, x) LARGER(sum, fabs(x))
#define MERGE(sum, other) LARGER(sum, other)
#define FINISH(sum) (sum)
#endif
#ifndef MERGE
#define MERGE(sum, other) ((sum) + (other))
#endif

/// Stores the distances of row i to the rows from `first` on.
static inline void put(global T* out, const V sum, ulong i, uint first, uint rows_b) {
  const V distance = FINISH(sum);
#if PDIST
  // Where the pair (i, first) would stand: only what is past the diagonal is stored.
  const ulong at = i * (2 * (ulong)rows_b - i - 1) / 2 + first - i - 1;
  const bool whole = first > i && first + LANES <= rows_b;
#else
  const ulong at = i * rows_b + first;
  const bool whole = first + LANES <= rows_b;
#endif
  if (whole) {
    PASTE2(vstore, LANES)(distance, 0, out + at);
    return;
  }
  T lanes[LANES];
  PASTE2(vstore, LANES)(distance, 0, lanes);
  for (uint lane = 0; lane < LANES && first + lane < rows_b; lane++) {
    if (PDIST && first + lane <= i) continue;
    out[at + lane] = lanes[lane];
  }
}

/// a: [batch, rows_a, length], b: [batch, rows_b, length], out: [batch, rows_a, rows_b] or, for
/// PDIST, the vector; contiguous. Global size: (rows_b / LANES) and (rows_a / kRun), rounded up,
/// batch.
kernel ITEM_BY_ITEM void distance_tiles(global char* out, ulong out_offset, global const char* a,
                                        ulong a_offset, global const char* b, ulong b_offset,
                                        uint rows_a, uint rows_b, uint length) {
  const uint first = get_global_id(0) * LANES, from = get_global_id(1) * kRun;
  const ulong z = get_global_id(2);
#if PDIST
  // Rows from the last of these on have no pair here.
  const uint last = min(rows_a, first + LANES - 1);
#else
  const uint last = rows_a;
#endif
  if (from >= last) return;
  const uint count = min(last - from, (uint)kRun);
  global const T* x = (global const T*)(a + a_offset) + (z * rows_a + from) * length;
  global const T* y = (global const T*)(b + b_offset) + z * rows_b * length;
  global T* result = (global T*)(out + out_offset) + z * rows_a * rows_b;
  V transposed[TRANSPOSED];
  V sums[kRun];
  for (uint i = 0; i < count; i++) sums[i] = (V)0;
  for (uint start = 0; start < length; start += TRANSPOSED) {
    const uint elements = min(length - start, (uint)TRANSPOSED);
    for (uint lane = 0; lane < LANES; lane++) {
      // Past the end the last row again, whose distances aren't stored.
      global const T* row = y + (ulong)min(first + lane, rows_b - 1) * length + start;
      for (uint k = 0; k < elements; k++) ((T*)transposed)[k * LANES + lane] = row[k];
    }
    uint i = 0;
    for (; i + ROWS <= count; i += ROWS) {
      global const T* x0 = x + (ulong)i * length + start;
      global const T* x1 = x0 + length;
      global const T* x2 = x1 + length;
      global const T* x3 = x2 + length;
      V sum0 = (V)0;
      V sum1 = (V)0;
      V sum2 = (V)0;
      V sum3 = (V)0;
      for (uint k = 0; k < elements; k++) {
        const V other = transposed[k];
        const V d0 = (V)x0[k] - other;
        const V d1 = (V)x1[k] - other;
        const V d2 = (V)x2[k] - other;
        const V d3 = (V)x3[k] - other;
        sum0 = COMBINE(sum0, d0);
        sum1 = COMBINE(sum1, d1);
        sum2 = COMBINE(sum2, d2);
        sum3 = COMBINE(sum3, d3);
      }
      sums[i] = MERGE(sums[i], sum0);
      sums[i + 1] = MERGE(sums[i + 1], sum1);
      sums[i + 2] = MERGE(sums[i + 2], sum2);
      sums[i + 3] = MERGE(sums[i + 3], sum3);
    }
    for (; i < count; i++) {
      global const T* x0 = x + (ulong)i * length + start;
      V sum = (V)0;
      for (uint k = 0; k < elements; k++) {
        const V difference = (V)x0[k] - transposed[k];
        sum = COMBINE(sum, difference);
      }
      sums[i] = MERGE(sums[i], sum);
    }
  }
  for (uint i = 0; i < count; i++) put(result, sums[i], from + i, first, rows_b);
}
