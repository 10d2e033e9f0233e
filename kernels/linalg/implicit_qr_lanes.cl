// The implicit QR iterations of implicit_qr.cl for several matrices at a time, a CPU's way: a
// matrix alone is a chain of roots and quotients that wait for each other, and WIDTH chains in the
// lanes of a vector take hardly longer. All matrices sweep together, from the uppermost row that
// one of them has left to the lowest; a lane is at rest where its own block does not reach.
//
// Compile parameters: C, OUT, ROTATION (implicit_qr.clh), WIDTH (2, 4 or 8).
#ifndef WIDTH
#define WIDTH 8
#endif
#include "linalg/implicit_qr.clh"

#define INTEGER_f32 i32
#define INTEGER_f64 i64
typedef TYPEV(C, WIDTH) V;
typedef TYPEV(PASTE2(INTEGER_, C), WIDTH) M;
typedef TYPE(PASTE2(INTEGER_, C)) Row;

/// Lane `lane` of element `i` of an array of vectors.
#define LANE(array, i, lane) (((local R*)(array))[(i) * WIDTH + (lane)])

/// Rotations that take (x, y) to (r, 0): c x + s y = r, c y - s x = 0.
typedef struct {
  V c, s, r;
} Rotations;

static inline Rotations rotations_of(V x, V y) {
  const M small = fmax(fabs(x), fabs(y)) < (V)SMALL;
  const V factor = select((V)1, (V)RAISE, small);
  x *= factor;
  y *= factor;
  const V r = sqrt(fma(x, x, y * y));
  const M some = r > (V)0;
  Rotations result;
  result.c = select((V)1, x / r, some);
  result.s = select((V)0, y / r, some);
  result.r = r * select((V)1, (V)(1 / RAISE), small);
  return result;
}

/// The progress of a work-item's matrices, and where a sweep begins.
typedef struct {
  Row first[WIDTH], last[WIDTH];
  uint done[WIDTH], used[WIDTH];
} Progress;

/// Finds every lane's block, which ends with row `last`: elements beside the diagonal that are
/// nothing, beside their neighbours on it or the matrix (whose elements are near 1), are made 0,
/// and where that is the block's last, the row above becomes the last.
static inline void find_blocks(Progress* progress, local const V* d, local V* e) {
  M last = PASTE2(vload, WIDTH)(0, progress->last), first = (M)0, open = (M)-1;
  Row top = 0;
  for (uint l = 0; l < WIDTH; l++) top = max(top, progress->last[l]);
  V below = fabs(d[top]);
  for (Row k = top - 1; k >= 0; k--) {
    const V size = fabs(e[k]), at = fabs(d[k]);
    const M nothing = open & (last > (M)k) &
                      ((size <= (V)EPSILON * (at + below)) | (size <= (V)(EPSILON * EPSILON)));
    if (any(nothing)) {
      e[k] = select(e[k], (V)0, nothing);
      const M ends = nothing & (last == (M)(k + 1)), begins = nothing & ~ends;
      last = select(last, (M)k, ends);
      first = select(first, (M)(k + 1), begins);
      open &= ~begins;
    }
    below = at;
  }
  PASTE2(vstore, WIDTH)(last, 0, progress->last);
  PASTE2(vstore, WIDTH)(first, 0, progress->first);
}

#define DECLARE_OPERANDS                                                                    \
  const ulong base = get_global_id(0) * WIDTH;                                              \
  const uint matrices = (uint)min((ulong)WIDTH, batch - base), n = arguments.n;             \
  global R* diagonal = (global R*)(diagonals + diagonals_offset) + base * 2 * n;            \
  global uint* ranges =                                                                     \
      (global uint*)(sweeps + sweeps_offset) + base * 2 * arguments.sweep_capacity;         \
  global TYPE(ROTATION)* stream = (global TYPE(ROTATION)*)(rotations + rotations_offset) +  \
                                  base * 2 * arguments.streams * (ulong)arguments.capacity; \
  global int* failed = (global int*)(info + info_offset) + base;                            \
  local V* e = d + n;                                                                       \
  Progress progress;                                                                        \
  for (uint l = 0; l < WIDTH; l++) {                                                        \
    const bool idle = l >= matrices || failed[l] != 0;                                      \
    progress.last[l] = idle ? 0 : n - 1;                                                    \
    progress.done[l] = progress.used[l] = 0;                                                \
    for (uint i = 0; i < 2 * n; i++) LANE(d, i, l) = idle ? 0 : diagonal[l * 2 * n + i];    \
  }

/// Begins a sweep of the rows bottom ... top, or ends the loop. `start` is done for every lane `l`
/// that takes part; one that would write down too much gives up: LAPACK's info counts what didn't
/// converge.
#define BEGIN_SWEEP(start)                                                              \
  find_blocks(&progress, d, e);                                                         \
  Row bottom = n, top = 0;                                                              \
  for (uint l = 0; l < WIDTH; l++) {                                                    \
    const Row last = progress.last[l], first = progress.first[l];                       \
    if (last == 0) continue;                                                            \
    if (progress.done[l] == arguments.sweep_capacity ||                                 \
        progress.used[l] + last - first > arguments.capacity) {                         \
      failed[l] = (int)last + 1;                                                        \
      progress.last[l] = 0;                                                             \
      continue;                                                                         \
    }                                                                                   \
    if (arguments.streams > 0) {                                                        \
      ranges[2 * (l * arguments.sweep_capacity + progress.done[l])] = first;            \
      ranges[2 * (l * arguments.sweep_capacity + progress.done[l]) + 1] = last - first; \
    }                                                                                   \
    bottom = min(bottom, first);                                                        \
    top = max(top, last);                                                               \
    start                                                                               \
  }                                                                                     \
  if (top == 0) break;                                                                  \
  const M first = PASTE2(vload, WIDTH)(0, progress.first),                              \
          last = PASTE2(vload, WIDTH)(0, progress.last)

#define END_SWEEP                                             \
  for (uint l = 0; l < WIDTH; l++) {                          \
    if (progress.last[l] == 0) continue;                      \
    progress.used[l] += progress.last[l] - progress.first[l]; \
    progress.done[l]++;                                       \
  }

/// Writes down the active lanes' rotations of row `k`.
static inline void record(const Progress* progress, global TYPE(ROTATION) * stream,
                          const IterationArguments arguments, uint which, Row k, const M active,
                          const Rotations turn) {
  if (arguments.streams == 0) return;
  R c[WIDTH], s[WIDTH];
  Row taken[WIDTH];
  PASTE2(vstore, WIDTH)(active, 0, taken);
  PASTE2(vstore, WIDTH)(turn.c, 0, c);
  PASTE2(vstore, WIDTH)(turn.s, 0, s);
  for (uint l = 0; l < WIDTH; l++) {
    if (taken[l] == 0) continue;
    global TYPE(ROTATION)* to =
        stream + 2 * ((l * arguments.streams + which) * (ulong)arguments.capacity +
                      progress -> used[l] + (k - progress->first[l]));
    to[0] = c[l];
    to[1] = s[l];
  }
}

/// Values by size, and the columns' order.
static inline void finish(const Progress* progress, local const V* d, global R* diagonal,
                          global TYPE(OUT) * result, global uint* order, global const int* failed,
                          uint matrices, uint n, bool falling) {
  for (uint l = 0; l < matrices; l++) {
    global R* sorted = diagonal + l * 2 * n;
    global uint* columns = order + l * (n + 1);
    for (uint i = 0; i < n; i++) {
      const R value = failed[l] ? sorted[i] : LANE(d, i, l);
      const bool negated = falling && value < 0;
      sorted[i] = negated ? -value : value;
      columns[i] = negated ? i | NEGATED : i;
    }
    sort_values(sorted, columns, n, falling);
    for (uint i = 0; i < n; i++)
      result[l * n + i] = failed[l] ? (R)NAN : sorted[i] / sorted[2 * n - 1];
    columns[n] = progress->done[l];
  }
}

#define STORE_VALUES(falling)                                                            \
  finish(&progress, d, diagonal, (global TYPE(OUT)*)(values + values_offset) + base * n, \
         (global uint*)(orders + orders_offset) + base * (n + 1), failed, matrices, n, falling)

/// tridiagonal_qr of implicit_qr.cl. Global size: batch / WIDTH, rounded up; d: 2 n vectors.
kernel ITEM_BY_ITEM void tridiagonal_qr_lanes(QR_PARAMETERS, local V* d) {
  DECLARE_OPERANDS
  while (true) {
    R starts[2 * WIDTH];
    // Wilkinson's shift: the eigenvalue of the last two rows that is nearer the last element.
    BEGIN_SWEEP({
      const R beside = LANE(e, last - 1, l);
      const R end = LANE(d, last, l);
      const R half_difference = (LANE(d, last - 1, l) - end) / 2;
      const R root = sqrt(fma(half_difference, half_difference, beside * beside));
      const R beyond = half_difference + copysign(root, half_difference);
      starts[l] = LANE(d, first, l) - end + beside / beyond * beside;
      starts[WIDTH + l] = LANE(e, first, l);
    });
    const V first_x = PASTE2(vload, WIDTH)(0, starts), first_y = PASTE2(vload, WIDTH)(1, starts);
    V x = (V)0, y = (V)0;
    for (Row k = bottom; k < top; k++) {
      const M active = (first <= (M)k) & (last > (M)k), begins = first == (M)k;
      x = select(x, first_x, begins);
      y = select(y, first_y, begins);
      const Rotations turn = rotations_of(x, y);
      record(&progress, stream, arguments, 0, k, active, turn);
      if (k > bottom) e[k - 1] = select(e[k - 1], turn.r, active & ~begins);
      const V off = e[k], here = d[k], next = d[k + 1], beyond = e[k + 1];
      const V two = turn.s * (next - here) + 2 * turn.c * off;
      d[k] = select(here, here + turn.s * two, active);
      d[k + 1] = select(next, next - turn.s * two, active);
      x = turn.c * two - off;
      e[k] = select(off, x, active);
      y = turn.s * beyond;
      e[k + 1] = select(beyond, beyond * turn.c, active & (last > (M)(k + 1)));
    }
    END_SWEEP
  }
  STORE_VALUES(false);
}

/// bidiagonal_qr of implicit_qr.cl. Global size and d: as above.
kernel ITEM_BY_ITEM void bidiagonal_qr_lanes(QR_PARAMETERS, local V* d) {
  DECLARE_OPERANDS
  while (true) {
    R starts[2 * WIDTH];
    Row shifts[WIDTH];
    for (uint l = 0; l < WIDTH; l++) shifts[l] = 0;
    // The smaller singular value of the last two rows, by the sum and difference of both. One that
    // is nothing beside the first element is left out: without a shift nothing cancels, so that
    // small values stay accurate (Demmel and Kahan).
    BEGIN_SWEEP({
      const R upper = fabs(LANE(d, last - 1, l));
      const R lower = fabs(LANE(d, last, l));
      const R beside = LANE(e, last - 1, l);
      const R start = LANE(d, first, l);
      const R sum = sqrt(fma(upper + lower, upper + lower, beside * beside));
      const R difference = sqrt(fma(upper - lower, upper - lower, beside * beside));
      const R shift = upper * lower / ((sum + difference) / 2);
      shifts[l] = shift * shift > EPSILON * start * start ? -1 : 0;
      starts[l] = (fabs(start) - shift) * (copysign((R)1, start) + shift / start);
      starts[WIDTH + l] = LANE(e, first, l);
    });
    const V first_x = PASTE2(vload, WIDTH)(0, starts), first_y = PASTE2(vload, WIDTH)(1, starts);
    M shifted = PASTE2(vload, WIDTH)(0, shifts);
    // So are shifts of blocks with a zero on the diagonal.
    for (Row k = bottom; k <= top; k++) {
      const M within = (first <= (M)k) & (last >= (M)k);
      shifted &= ~within | (fabs(d[k]) > (V)(EPSILON * EPSILON));
    }
    if (any(shifted)) {
      V x = (V)0, y = (V)0;
      for (Row k = bottom; k < top; k++) {
        const M active = shifted & (first <= (M)k) & (last > (M)k), begins = first == (M)k;
        x = select(x, first_x, begins);
        y = select(y, first_y, begins);
        const V here = d[k], off = e[k], next = d[k + 1], beyond = e[k + 1];
        const Rotations right = rotations_of(x, y);
        if (k > bottom) e[k - 1] = select(e[k - 1], right.r, active & ~begins);
        x = right.c * here + right.s * off;
        const V turned = right.c * off - right.s * here, below = right.c * next;
        y = right.s * next;
        const Rotations left = rotations_of(x, y);
        x = left.c * turned + left.s * below;
        y = left.s * beyond;
        d[k] = select(here, left.r, active);
        d[k + 1] = select(next, left.c * below - left.s * turned, active);
        e[k] = select(off, x, active);
        e[k + 1] = select(beyond, beyond * left.c, active & (last > (M)(k + 1)));
        record(&progress, stream, arguments, 0, k, active, right);
        record(&progress, stream, arguments, 1, k, active, left);
      }
    }
    const M rest = ~shifted;
    if (any(rest)) {
      V right_c = (V)1, left_c = (V)1, left_s = (V)0;
      for (Row k = bottom; k <= top; k++) {
        const M active = rest & (first <= (M)k) & (last > (M)k), begins = first == (M)k;
        const M inner = rest & (first < (M)k) & (last >= (M)k), ends = inner & (last == (M)k);
        right_c = select(right_c, (V)1, begins);
        left_c = select(left_c, (V)1, begins);
        const V here = d[k], end = here * right_c;
        const Rotations right = rotations_of(end, e[k]);
        if (k > bottom) e[k - 1] = select(e[k - 1], left_s * select(right.r, end, ends), inner);
        const V last_here = end * left_c;
        right_c = right.c;
        const Rotations left = rotations_of(left_c * right.r, d[k + 1] * right.s);
        left_c = left.c;
        left_s = left.s;
        d[k] = select(select(here, left.r, active), last_here, ends);
        record(&progress, stream, arguments, 0, k, active, right);
        record(&progress, stream, arguments, 1, k, active, left);
      }
    }
    END_SWEEP
  }
  STORE_VALUES(true);
}
