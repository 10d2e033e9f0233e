// Distances by the p-norm between the rows of two matrices, or of one with itself, and gradients.
//
// Compile parameters: C (f32 or f64), NORM (0, 1 or 2: that p; 3: infinity; 4: any other), PDIST
// (1: the distances are those of all pairs of rows i < j of one matrix, in a vector).
#include "include/dtype.clh"
#include "include/reduce.clh"

#ifndef C
#define C f32
#endif
#ifndef NORM
#define NORM 2
#endif
#ifndef PDIST
#define PDIST 0
#endif

typedef TYPE(C) T;

#if NORM == 0
#define COMBINE(sum, x, p) ((sum) + ((x) > 0 ? (T)1 : (x)))  // NaN stays
#define FINISH(sum, p) (sum)
#elif NORM == 1
#define COMBINE(sum, x, p) ((sum) + (x))
#define FINISH(sum, p) (sum)
#elif NORM == 2
#define COMBINE(sum, x, p) fma(x, x, sum)
#define FINISH(sum, p) sqrt(sum)
#elif NORM == 3
#define COMBINE(sum, x, p) COMBINE_MAX(sum, x)
#define FINISH(sum, p) (sum)
#else
#define COMBINE(sum, x, p) ((sum) + pow(x, p))
#define FINISH(sum, p) pow(sum, (T)1 / (p))
#endif

// A distance of row i to another row adds this to the gradient of its element, by the difference of
// the two elements: a distance of 0 has the gradient 0.
#define SIGN(x) ((T)(((x) > 0) - ((x) < 0)))
#if NORM == 0
#define SLOPE(difference, distance, p) ((T)0)
#elif NORM == 1
#define SLOPE(difference, distance, p) SIGN(difference)
#elif NORM == 2
#define SLOPE(difference, distance, p) ((distance) == 0 ? (T)0 : (difference) / (distance))
#elif NORM == 3
#define SLOPE(difference, distance, p) (fabs(difference) == (distance) ? SIGN(difference) : (T)0)
#else
#define SLOPE(difference, distance, p)  \
  ((distance) == 0 || (difference) == 0 \
       ? (T)0                           \
       : SIGN(difference) * pow(fabs(difference) / (distance), (p) - 1))
#endif

/// Where the pair i < j of n rows stands.
#define PAIR(i, j, n) ((i) * (2 * (ulong)(n) - (i) - 1) / 2 + (j) - (i) - 1)

/// a: [batch, rows_a, length], b: [batch, rows_b, length], out: [batch, rows_a, rows_b] or, for
/// PDIST, the vector; contiguous. Global size: rows_b or more, rows_a, batch.
kernel void distance_forward(global char* out, ulong out_offset, global const char* a,
                             ulong a_offset, global const char* b, ulong b_offset, uint rows_a,
                             uint rows_b, uint length, const T p) {
  const ulong j = get_global_id(0), i = get_global_id(1), z = get_global_id(2);
  if (j >= rows_b) return;
#if PDIST
  if (j <= i) return;
  const ulong at = PAIR(i, j, rows_b);
#else
  const ulong at = (z * rows_a + i) * rows_b + j;
#endif
  global const T* x = (global const T*)(a + a_offset) + (z * rows_a + i) * length;
  global const T* y = (global const T*)(b + b_offset) + (z * rows_b + j) * length;
  T sum = 0;
  for (uint k = 0; k < length; k++) {
    const T size = fabs(x[k] - y[k]);
    sum = COMBINE(sum, size, p);
  }
  ((global T*)(out + out_offset))[at] = FINISH(sum, p);
}

/// out: [batch, rows_a, length], the gradient of a; gradient and distance as distance_forward's
/// out. Global size: length or more, rows_a, batch.
kernel void distance_backward(global char* out, ulong out_offset, global const char* gradient,
                              ulong gradient_offset, global const char* a, ulong a_offset,
                              global const char* b, ulong b_offset, global const char* distance,
                              ulong distance_offset, uint rows_a, uint rows_b, uint length,
                              const T p) {
  const ulong k = get_global_id(0), i = get_global_id(1), z = get_global_id(2);
  if (k >= length) return;
  const ulong element = (z * rows_a + i) * length + k;
  global const T* slopes = (global const T*)(gradient + gradient_offset);
  global const T* sizes = (global const T*)(distance + distance_offset);
  global const T* y = (global const T*)(b + b_offset) + z * rows_b * (ulong)length + k;
  const T x = ((global const T*)(a + a_offset))[element];
  T sum = 0;
  for (ulong j = 0; j < rows_b; j++) {
#if PDIST
    if (j == i) continue;
    const ulong at = PAIR(min(i, j), max(i, j), rows_b);
#else
    const ulong at = (z * rows_a + i) * rows_b + j;
#endif
    const T difference = x - y[j * length];
    sum = fma(slopes[at], SLOPE(difference, sizes[at], p), sum);
  }
  ((global T*)(out + out_offset))[element] = sum;
}
