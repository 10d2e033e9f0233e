// Eigenvectors and singular vectors from the reflections of condensed.cl and the rotations of
// implicit_qr.cl. Both act on columns, so the rows of the result know nothing of each other: a
// work-item takes WIDTH rows, a vector's lanes, and there are no barriers.
//
// Compile parameters: C (matrix.clh), computed in; OUT, of the result: C or its single precision;
// WIDTH (1, or a vector's lanes), GROUP (the work-group's size).
#include "include/item_by_item.clh"
#include "linalg/matrix.clh"

#ifndef OUT
#define OUT f32
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef GROUP
#define GROUP 16
#endif

#if WIDTH > 1
typedef PASTE2(PASTE2(REAL_TYPE_, C), WIDTH) V;
#else
typedef R V;
#endif

// Element j of the work-item's rows, real and imaginary parts apart: rotations are real. Those of
// the work-items of a group lie side by side.
#define PARTS_real 1
#define PARTS_complex 2
#define PARTS OF_KIND(PARTS_)
#define PART(j, part) x[((j) * PARTS + (part)) * GROUP]
#define LANE(j, part, lane) ((global R*)&PART(j, part))[lane]
#define ELEMENT_real(j, lane) LANE(j, 0, lane)
#define ELEMENT_complex(j, lane) ((T)(LANE(j, 0, lane), LANE(j, 1, lane)))

// sum -= x[j] times the number w, and x[j] += sum times its conjugate.
#define SUBTRACT_PRODUCT_real(j, w) sum[0] = fma(-PART(j, 0), (V)(w), sum[0])
#define SUBTRACT_PRODUCT_complex(j, w)                             \
  do {                                                             \
    const V re = PART(j, 0), im = PART(j, 1);                      \
    sum[0] = fma(im, (V)((w).s1), fma(-re, (V)((w).s0), sum[0]));  \
    sum[1] = fma(-im, (V)((w).s0), fma(-re, (V)((w).s1), sum[1])); \
  } while (0)
#define ADD_MULTIPLE_real(j, w) PART(j, 0) = fma(sum[0], (V)(w), PART(j, 0))
#define ADD_MULTIPLE_complex(j, w)                                                \
  do {                                                                            \
    PART(j, 0) = fma(sum[0], (V)((w).s0), fma(sum[1], (V)((w).s1), PART(j, 0)));  \
    PART(j, 1) = fma(sum[1], (V)((w).s0), fma(-sum[0], (V)((w).s1), PART(j, 1))); \
  } while (0)
#define TIMES_real(w) sum[0] *= (w)
#define TIMES_complex(w)                    \
  do {                                      \
    const V re = sum[0];                    \
    sum[0] = re * (w).s0 - sum[1] * (w).s1; \
    sum[1] = re * (w).s1 + sum[1] * (w).s0; \
  } while (0)

#define NEGATED 0x80000000u

/// out: [batch, n, n], written only: H(0) H(1) ... G(0) G(1) ..., columns in the order of `orders`.
/// The reflections H are columns of [batch, n, ld] and begin with element k + first; rotations G,
/// sweeps, orders: as implicit_qr.cl leaves them. scratch: WIDTH * n elements a work-item. A
/// work-group per WIDTH * GROUP rows.
kernel ITEM_BY_ITEM void apply_to_rows(global const char* reflections, ulong reflections_offset,
                                       global const char* tau, ulong tau_offset,
                                       global const char* rotations, ulong rotations_offset,
                                       global const char* sweeps, ulong sweeps_offset,
                                       global const char* orders, ulong orders_offset,
                                       global char* scratch, ulong scratch_offset, global char* out,
                                       ulong out_offset, const Strides so,
                                       const VectorArguments arguments) {
  const uint n = arguments.n, tiles = (n + WIDTH * GROUP - 1) / (WIDTH * GROUP);
  const ulong z = get_group_id(0) / tiles;
  const uint lane = get_local_id(0);
  const uint row = (get_group_id(0) % tiles * GROUP + lane) * WIDTH;
  if (row >= n) return;
  const uint rows = min((uint)WIDTH, n - row);
  global V* x = (global V*)(scratch + scratch_offset) + get_group_id(0) * n * PARTS * GROUP + lane;
  for (uint j = 0; j < n * PARTS; j++) x[j * GROUP] = (V)(0);
  for (uint i = 0; i < rows; i++) LANE(row + i, 0, i) = 1;
  global const T* v = (global const T*)(reflections + reflections_offset) + z * n * arguments.ld;
  global const T* taus = (global const T*)(tau + tau_offset) + z * arguments.tau_stride;
  for (uint k = 0; k + arguments.first < n; k++, v += arguments.ld) {
    const uint begin = k + arguments.first;
    V sum[PARTS];
    for (uint part = 0; part < PARTS; part++) sum[part] = -PART(begin, part);
    for (uint j = begin + 1; j < n; j++) OF_KIND(SUBTRACT_PRODUCT_)(j, v[j]);
    OF_KIND(TIMES_)(taus[k]);
    for (uint part = 0; part < PARTS; part++) PART(begin, part) += sum[part];
    for (uint j = begin + 1; j < n; j++) OF_KIND(ADD_MULTIPLE_)(j, v[j]);
  }
  global const uint* order = (global const uint*)(orders + orders_offset) + z * (n + 1);
  global const uint* range =
      (global const uint*)(sweeps + sweeps_offset) + z * 2 * arguments.sweep_capacity;
  global const R* turn = (global const R*)(rotations + rotations_offset) +
                         2 * (z * arguments.streams + arguments.stream) * arguments.capacity;
  for (uint sweep = 0; sweep < order[n]; sweep++, range += 2) {
    const uint begin = range[0], count = range[1];
    for (uint part = 0; part < PARTS; part++) {
      V left = PART(begin, part);
      for (uint k = 0; k < count; k++) {
        const R c = turn[2 * k], s = turn[2 * k + 1];
        const V right = PART(begin + k + 1, part);
        PART(begin + k, part) = fma((V)(c), left, s * right);
        // The sum that the next rotation waits for, last.
        left = fma((V)(-s), left, c * right);
      }
      PART(begin + count, part) = left;
    }
    turn += 2 * count;
  }
  global TYPE(OUT)* to = (global TYPE(OUT)*)(out + out_offset) + z * so.batch;
  for (uint j = 0; j < n; j++) {
    const uint column = order[j] & ~NEGATED;
    const bool negated = arguments.negate && (order[j] & NEGATED);
    for (uint i = 0; i < rows; i++) {
      T value = OF_KIND(ELEMENT_)(column, i);
      if (negated) value = -value;
      if (arguments.conjugate) value = CONJ(value);
      AT(to, so, row + i, j) = CONVERT(OUT, C, value);
    }
  }
}
