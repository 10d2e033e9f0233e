// Eigenvalues of symmetric tridiagonal and singular values of bidiagonal matrices by the implicit
// QR iteration. A work-item per matrix: the iteration is a chain of rotations, each of which needs
// the one before. It writes them down, and vectors.cl applies them to the vectors' rows, all at
// once.
//
// Compile parameters: C (f32 or f64), of the diagonals and computed in; OUT and ROTATION, the same
// or f32, of values and of rotations.
#include "linalg/implicit_qr.clh"

/// The rotation that takes (x, y) to (r, 0): c x + s y = r, c y - s x = 0.
typedef struct {
  R c, s, r;
} Rotation;

static inline Rotation rotation_of(R x, R y) {
  Rotation result = {1, 0, 0};
  const R squares = fma(x, x, y * y);
  // A branch, since what is rare must not lengthen the chain.
  if (squares >= SMALL * SMALL) {
    result.r = sqrt(squares);
    result.c = x / result.r;
    result.s = y / result.r;
    return result;
  }
  const R factor = fmax(fabs(x), fabs(y)) < SMALL ? RAISE : (R)1;
  x *= factor;
  y *= factor;
  const R r = sqrt(fma(x, x, y * y));
  if (r > 0) {
    result.c = x / r;
    result.s = y / r;
    result.r = r / factor;
  }
  return result;
}

/// The first row of the block that ends with row `last`: elements beside the diagonal that are
/// nothing, beside their neighbours on it or the matrix (whose elements are near 1), are made 0.
static inline uint first_of_block(global const R* d, global R* e, uint last) {
  uint first = last;
  while (first > 0) {
    const R size = fabs(e[first - 1]);
    if (size <= EPSILON * (fabs(d[first - 1]) + fabs(d[first])) || size <= EPSILON * EPSILON) {
      e[first - 1] = 0;
      break;
    }
    first--;
  }
  return first;
}

#define DECLARE_OPERANDS                                                                           \
  const ulong z = get_global_id(0);                                                                \
  if (z >= batch) return;                                                                          \
  const uint n = arguments.n;                                                                      \
  global R *d = (global R*)(diagonals + diagonals_offset) + z * 2 * n, *e = d + n;                 \
  global TYPE(OUT)* result = (global TYPE(OUT)*)(values + values_offset) + z * n;                  \
  global TYPE(ROTATION)* stream = (global TYPE(ROTATION)*)(rotations + rotations_offset) +         \
                                  z * 2 * arguments.streams * (ulong)arguments.capacity;           \
  global uint* ranges = (global uint*)(sweeps + sweeps_offset) + z * 2 * arguments.sweep_capacity; \
  global uint* order = (global uint*)(orders + orders_offset) + z * (n + 1);                       \
  global int* failed = (global int*)(info + info_offset) + z;                                      \
  const R scale = e[n - 1];                                                                        \
  uint done = 0, used = 0;                                                                         \
  for (uint i = 0; i < n; i++) order[i] = i

/// Writes down the rotation `k` of a sweep.
#define RECORD(which, k, rotation)                                                               \
  if (arguments.streams > 0) {                                                                   \
    global TYPE(ROTATION)* to = stream + 2 * ((which) * (ulong)arguments.capacity + used + (k)); \
    to[0] = (rotation).c;                                                                        \
    to[1] = (rotation).s;                                                                        \
  }

/// Begins a sweep of the block first ... last, which is shortened if its end is done, or gives up:
/// LAPACK's info counts what didn't converge.
#define BEGIN_SWEEP                                                                   \
  const uint first = first_of_block(d, e, last);                                      \
  if (first == last) {                                                                \
    last--;                                                                           \
    continue;                                                                         \
  }                                                                                   \
  if (done == arguments.sweep_capacity || used + last - first > arguments.capacity) { \
    *failed = (int)last + 1;                                                          \
    break;                                                                            \
  }                                                                                   \
  if (arguments.streams > 0) {                                                        \
    ranges[2 * done] = first;                                                         \
    ranges[2 * done + 1] = last - first;                                              \
  }

#define STORE_VALUES(falling)                                               \
  sort_values(d, order, n, falling);                                        \
  for (uint i = 0; i < n; i++) result[i] = *failed ? (R)NAN : d[i] / scale; \
  order[n] = done

/// diagonals: as condensed.cl leaves them, used up. values: [batch, n], rising. info: [batch] ints;
/// a matrix whose info isn't 0 is left, and one that doesn't converge sets it.
kernel ITEM_BY_ITEM void tridiagonal_qr(QR_PARAMETERS) {
  DECLARE_OPERANDS;
  uint last = *failed ? 0 : n - 1;
  while (last > 0) {
    BEGIN_SWEEP
    // Wilkinson's shift: the eigenvalue of the last two rows that is nearer the last element.
    const R half_difference = (d[last - 1] - d[last]) / 2, beside = e[last - 1];
    const R root = sqrt(fma(half_difference, half_difference, beside * beside));
    const R beyond = half_difference + copysign(root, half_difference);
    R x = d[first] - d[last] + beside / beyond * beside;
    R y = e[first];
    for (uint k = first; k < last; k++) {
      const Rotation turn = rotation_of(x, y);
      RECORD(0, k - first, turn)
      if (k > first) e[k - 1] = turn.r;
      const R off = e[k], two = turn.s * (d[k + 1] - d[k]) + 2 * turn.c * off;
      d[k] += turn.s * two;
      d[k + 1] -= turn.s * two;
      x = turn.c * two - off;
      e[k] = x;
      if (k + 1 < last) {
        y = turn.s * e[k + 1];
        e[k + 1] *= turn.c;
      }
    }
    used += last - first;
    done++;
  }
  STORE_VALUES(false);
}

/// Implicit QR for singular values, which fall; two streams: of the columns' vectors (v), of the
/// rows' (u).
kernel ITEM_BY_ITEM void bidiagonal_qr(QR_PARAMETERS) {
  DECLARE_OPERANDS;
  uint last = *failed ? 0 : n - 1;
  while (last > 0) {
    BEGIN_SWEEP
    // The smaller singular value of the last two rows, by the sum and difference of both.
    const R upper = fabs(d[last - 1]), lower = fabs(d[last]), beside = e[last - 1];
    const R sum = sqrt(fma(upper + lower, upper + lower, beside * beside));
    const R difference = sqrt(fma(upper - lower, upper - lower, beside * beside));
    const R shift = upper * lower / ((sum + difference) / 2);
    // One that is nothing beside the first element is left out: without a shift nothing cancels, so
    // that small values stay accurate (Demmel and Kahan), and zeros on the diagonal do no harm.
    bool shifted = shift * shift > EPSILON * d[first] * d[first];
    for (uint k = first; k <= last; k++) shifted = shifted && fabs(d[k]) > EPSILON * EPSILON;
    if (shifted) {
      R x = (fabs(d[first]) - shift) * (copysign((R)1, d[first]) + shift / d[first]), y = e[first];
      for (uint k = first; k < last; k++) {
        const Rotation right = rotation_of(x, y);
        if (k > first) e[k - 1] = right.r;
        x = right.c * d[k] + right.s * e[k];
        e[k] = right.c * e[k] - right.s * d[k];
        y = right.s * d[k + 1];
        d[k + 1] *= right.c;
        const Rotation left = rotation_of(x, y);
        d[k] = left.r;
        x = left.c * e[k] + left.s * d[k + 1];
        d[k + 1] = left.c * d[k + 1] - left.s * e[k];
        e[k] = x;
        if (k + 1 < last) {
          y = left.s * e[k + 1];
          e[k + 1] *= left.c;
        }
        RECORD(0, k - first, right)
        RECORD(1, k - first, left)
      }
    } else {
      Rotation right = {1, 0, 0}, left = {1, 0, 0};
      for (uint k = first; k < last; k++) {
        right = rotation_of(d[k] * right.c, e[k]);
        if (k > first) e[k - 1] = left.s * right.r;
        left = rotation_of(left.c * right.r, d[k + 1] * right.s);
        d[k] = left.r;
        RECORD(0, k - first, right)
        RECORD(1, k - first, left)
      }
      const R end = d[last] * right.c;
      d[last] = end * left.c;
      e[last - 1] = end * left.s;
    }
    used += last - first;
    done++;
  }
  for (uint i = 0; i < n; i++) {
    if (d[i] < 0) {
      d[i] = -d[i];
      order[i] |= NEGATED;
    }
  }
  STORE_VALUES(true);
}
