// Eigenvectors and singular vectors from the reflections of condensed.cl and the rotations of
// implicit_qr.cl. Both act on columns, so the rows of the result know nothing of each other: a
// work-item per row, no barriers.
//
// Compile parameters: C (matrix.clh), GROUP (the work-group's size).
#include "linalg/matrix.clh"

#ifndef GROUP
#define GROUP 16
#endif

typedef struct {
  uint n, ld, first, tau_stride, capacity, sweep_capacity, streams, stream, conjugate, negate;
} VectorShape;
#define NEGATED 0x80000000u

/// out: [batch, n, n], written only: H(0) H(1) ... G(0) G(1) ..., columns in the order of `orders`. The
/// reflections H are columns of [batch, n, ld] and begin with element k + first; rotations, sweeps,
/// orders: as implicit_qr.cl leaves them. scratch: n elements a work-item. A work-group per GROUP rows.
kernel void apply_to_rows(global const char *reflections, ulong reflections_offset,
                          global const char *tau, ulong tau_offset, global const char *rotations,
                          ulong rotations_offset, global const char *sweeps, ulong sweeps_offset,
                          global const char *orders, ulong orders_offset, global char *scratch,
                          ulong scratch_offset, global char *out, ulong out_offset,
                          const Strides so, const VectorShape shape) {
  const uint n = shape.n, tiles = (n + GROUP - 1) / GROUP;
  const ulong z = get_group_id(0) / tiles;
  const uint lane = get_local_id(0), row = get_group_id(0) % tiles * GROUP + lane;
  if (row >= n) return;
  // Element j of the row of every work-item, side by side.
  global T *x = (global T *)(scratch + scratch_offset) + get_group_id(0) * n * GROUP + lane;
#define X(j) x[(j)*GROUP]
  for (uint j = 0; j < n; j++) X(j) = FROM_REAL((R)(j == row));
  global const T *v = (global const T *)(reflections + reflections_offset) + z * n * shape.ld;
  global const T *taus = (global const T *)(tau + tau_offset) + z * shape.tau_stride;
  for (uint k = 0; k + shape.first < n; k++, v += shape.ld) {
    const uint begin = k + shape.first;
    T sum = X(begin);
    for (uint j = begin + 1; j < n; j++) sum = MAD(X(j), v[j], sum);
    sum = -MUL(sum, taus[k]);
    X(begin) += sum;
    for (uint j = begin + 1; j < n; j++) X(j) = MAD(sum, CONJ(v[j]), X(j));
  }
  global const uint *order = (global const uint *)(orders + orders_offset) + z * (n + 1);
  global const uint *range = (global const uint *)(sweeps + sweeps_offset) + z * 2 * shape.sweep_capacity;
  global const R *turn = (global const R *)(rotations + rotations_offset) +
                         2 * (z * shape.streams + shape.stream) * shape.capacity;
  for (uint sweep = 0; sweep < order[n]; sweep++, range += 2) {
    uint j = range[0];
    const uint end = j + range[1];
    T left = X(j);
    for (; j < end; j++, turn += 2) {
      const R c = turn[0], s = turn[1];
      const T right = X(j + 1);
      X(j) = c * left + s * right;
      left = c * right - s * left;
    }
    X(j) = left;
  }
  global T *to = MATRIX(out, out_offset, so, z);
  for (uint j = 0; j < n; j++) {
    T value = X(order[j] & ~NEGATED);
    if (shape.negate && (order[j] & NEGATED)) value = -value;
    AT(to, so, row, j) = shape.conjugate ? CONJ(value) : value;
  }
}
