// Symmetric and Hermitian indefinite matrices: factors L D L^T (or L D L^H) with blocks of one or
// two rows on D's diagonal, by Bunch and Kaufman's pivoting, and systems solved with them.
//
// Compile parameters: C (matrix.clh), GROUP (the work-group's size), HERMITIAN (0: symmetric).
#include "include/always_inline.clh"
#include "include/assert.clh"
#include "include/reduce.clh"
#include "linalg/matrix.clh"
#include "linalg/pivot.clh"

#ifndef GROUP
#define GROUP 16
#endif
#ifndef HERMITIAN
#define HERMITIAN 0
#endif

#if HERMITIAN
#define TURNED(x) CONJ(x)
#define DIAGONAL(x) FROM_REAL(REAL_OF(x))
#else
#define TURNED(x) (x)
#define DIAGONAL(x) (x)
#endif

/// The smallest bound on the growth of elements: (1 + sqrt(17)) / 8.
#define ALPHA ((R)0.64038820320220756872767623199676)

/// A block of two rows [[a, transposed b], [b, c]] of D, ready to be divided by: everything is
/// scaled by b, which is the largest.
typedef struct {
  T a, c, phase, factor;
} Block;

static inline Block block_of(T a, T b, T c) {
#if HERMITIAN
  const T scale = FROM_REAL(hypot(REAL_OF(b), IMAG_OF(b)));
  const T phase = DIV(b, scale);
#else
  const T scale = b, phase = FROM_REAL((R)1);
#endif
  Block block;
  block.a = DIV(DIAGONAL(a), scale);
  block.c = DIV(DIAGONAL(c), scale);
  block.phase = phase;
  block.factor = DIV(DIV(FROM_REAL((R)1), MUL(block.a, block.c) - FROM_REAL((R)1)), scale);
  return block;
}

/// The row (x, y) times the block's inverse.
#define DIVIDED_FIRST(block, x, y) MUL((block).factor, MUL((block).c, x) - MUL((block).phase, y))
#define DIVIDED_SECOND(block, x, y) \
  MUL((block).factor, MUL((block).a, y) - MUL(TURNED((block).phase), x))

/// Swaps rows and columns `from` and `with`, below it, of the lower triangle, in a block that
/// begins at row k.
static ALWAYS_INLINE void swap_with(global T* matrix, const Strides sa, uint n, uint k, uint from,
                                    uint with, uint lane) {
  for (uint i = from + 1 + lane; i < n; i += GROUP) {
    if (i == with) continue;
    const T value = AT(matrix, sa, i, from);
    if (i > with) {
      AT(matrix, sa, i, from) = AT(matrix, sa, i, with);
      AT(matrix, sa, i, with) = value;
    } else {
      AT(matrix, sa, i, from) = TURNED(AT(matrix, sa, with, i));
      AT(matrix, sa, with, i) = TURNED(value);
    }
  }
  if (lane == 0) {
    const T value = AT(matrix, sa, from, from);
    AT(matrix, sa, from, from) = AT(matrix, sa, with, with);
    AT(matrix, sa, with, with) = value;
    AT(matrix, sa, with, from) = TURNED(AT(matrix, sa, with, from));
    if (from > k) {
      const T other = AT(matrix, sa, from, k);
      AT(matrix, sa, from, k) = AT(matrix, sa, with, k);
      AT(matrix, sa, with, k) = other;
    }
  }
}

/// Takes L D times the transposed columns of the block at row k, which are read by all, off what is
/// below and to the right. LAPACK takes nothing off for a factor of 0, an infinity's inverse,
/// though its products may be NaN.
static ALWAYS_INLINE void subtract_block(global T* matrix, const Strides sa, uint n, uint k,
                                         uint step, const T inverse, const Block block, uint lane) {
  for (uint i = k + step + lane; i < n; i += GROUP) {
    const T x = AT(matrix, sa, i, k);
    if (step == 1) {
      const T l = -MUL(x, inverse);
      for (uint j = SIZE1(inverse) != 0 ? k + 1 : n; j <= i; j++)
        AT(matrix, sa, i, j) = MAD(l, TURNED(AT(matrix, sa, j, k)), AT(matrix, sa, i, j));
    } else {
      const T y = AT(matrix, sa, i, k + 1);
      const T l = -DIVIDED_FIRST(block, x, y), m = -DIVIDED_SECOND(block, x, y);
      for (uint j = k + 2; j <= i; j++) {
        const T updated = MAD(l, TURNED(AT(matrix, sa, j, k)), AT(matrix, sa, i, j));
        AT(matrix, sa, i, j) = MAD(m, TURNED(AT(matrix, sa, j, k + 1)), updated);
      }
    }
    AT(matrix, sa, i, i) = DIAGONAL(AT(matrix, sa, i, i));
  }
}

/// a: [batch, n, n], lower triangle: D's blocks and, below them, L replace it, as LAPACK's sytf2
/// leaves them. pivots: [batch, n] ints, LAPACK's: row k was swapped with pivots[k] - 1, or, in a
/// block of two rows, whose pivots are equal and negative, row k + 1 with -pivots[k] - 1. info:
/// [batch] ints, the number of the first block that is 0. A work-group per matrix.
kernel void ldl_factor(global char* a, ulong a_offset, global char* pivots, ulong pivots_offset,
                       global char* info, ulong info_offset, const Strides sa, uint n) {
  const ulong z = get_group_id(0);
  const uint lane = get_local_id(0);
  global T* matrix = MATRIX(a, a_offset, sa, z);
  global int* pivot = (global int*)(pivots + pivots_offset) + z * n;
  local Candidate scratch[GROUP];
  int failed = 0;
  uint step = 1;
  for (uint k = 0; k < n; k += step) {
    Candidate below = {(R)-1, UINT_MAX};
    for (uint i = k + 1 + lane; i < n; i += GROUP)
      TAKE_LARGER(below, SIZE1(AT(matrix, sa, i, k)), i);
    WORK_GROUP_REDUCE(scratch, lane, GROUP, below, LARGER);
    const R diagonal = SIZE1(DIAGONAL(AT(matrix, sa, k, k))), column = fmax(below.size, (R)0);
    const bool nothing = !(fmax(diagonal, column) > 0) || isnan(diagonal);
    // The row of the largest element, within the lower triangle. All barriers stand where every
    // work-item passes, whatever the pivot.
    const bool search = !nothing && diagonal < ALPHA * column;
    const uint row = search ? below.row : k;
    Candidate beside = {(R)-1, UINT_MAX};
    for (uint i = k + lane; i < n && search; i += GROUP) {
      if (i != row) {
        const T element = i < row ? AT(matrix, sa, row, i) : AT(matrix, sa, i, row);
        TAKE_LARGER(beside, SIZE1(element), i);
      }
    }
    WORK_GROUP_REDUCE(scratch, lane, GROUP, beside, LARGER);
    uint with = k;
    step = 1;
    // Beside infinities these quotients may be NaN: then, as in LAPACK, the bounds aren't reached.
    if (search && !(diagonal >= ALPHA * column * (column / beside.size))) {
      with = row;
      if (!(SIZE1(DIAGONAL(AT(matrix, sa, row, row))) >= ALPHA * beside.size)) step = 2;
    }
    if (nothing && failed == 0) failed = (int)k + 1;
    const uint from = k + step - 1;
    // Between the two calls PoCL 3.1 would leave this out.
    if (lane == 0) {
      pivot[k] = step == 1 ? (int)with + 1 : -(int)with - 1;
      if (step == 2) pivot[k + 1] = pivot[k];
    }
    // Everything above has been read.
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (with != from) swap_with(matrix, sa, n, k, from, with, lane);
    barrier(CLK_GLOBAL_MEM_FENCE);
    const T first = DIAGONAL(AT(matrix, sa, k, k));
    const T inverse = nothing ? FROM_REAL((R)0) : DIV(FROM_REAL((R)1), first);
    Block block = {first, first, first, first};
    if (step == 2) block = block_of(first, AT(matrix, sa, k + 1, k), AT(matrix, sa, k + 1, k + 1));
    if (!nothing) subtract_block(matrix, sa, n, k, step, inverse, block, lane);
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (uint i = k + step + lane; i < n && !nothing; i += GROUP) {
      const T x = AT(matrix, sa, i, k);
      if (step == 1) {
        AT(matrix, sa, i, k) = MUL(x, inverse);
      } else {
        const T y = AT(matrix, sa, i, k + 1);
        AT(matrix, sa, i, k) = DIVIDED_FIRST(block, x, y);
        AT(matrix, sa, i, k + 1) = DIVIDED_SECOND(block, x, y);
      }
    }
    if (lane == 0 && step == 2)
      AT(matrix, sa, k + 1, k + 1) = DIAGONAL(AT(matrix, sa, k + 1, k + 1));
    if (lane == 0) AT(matrix, sa, k, k) = first;
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
  if (lane == 0) ((global int*)(info + info_offset))[z] = failed;
}

#define SWAP_ROWS(to, s, column, i, j)           \
  if ((i) != (j)) {                              \
    const T value_ = AT(to, s, i, column);       \
    AT(to, s, i, column) = AT(to, s, j, column); \
    AT(to, s, j, column) = value_;               \
  }

// Whether pivots are as ldl_factor() leaves them, so that rows taken by them are the matrix's; the
// first that isn't is recorded.
static inline bool check_pivots(global const int* pivot, uint n, global int* asserts, uint site) {
  for (uint k = 0; k < n; k++) {
    const int first = pivot[k];
    if (!check_index((long)abs(first) - 1, n, asserts, site)) return false;
    if (first > 0) continue;
    if (k + 1 == n || pivot[k + 1] != first) {
      record_failure(first, n, asserts, site);
      return false;
    }
    k++;
  }
  return true;
}

/// Solves with the factors above in place of b: [batch, n, columns]. The pivots may be a caller's:
/// wrong ones are recorded. Work-groups: see COLUMN_OF_GROUP.
kernel void ldl_solve(global const char* a, ulong a_offset, global const char* pivots,
                      ulong pivots_offset, global char* b, ulong b_offset, const Strides sa,
                      const Strides sb, uint n, uint columns, global int* asserts, uint site) {
  COLUMN_OF_GROUP(z, column, columns);
  if (column >= columns) return;
  global const T* factor = (global const T*)(a + a_offset) + z * sa.batch;
  global T* to = MATRIX(b, b_offset, sb, z);
  global const int* pivot = (global const int*)(pivots + pivots_offset) + z * n;
  if (!check_pivots(pivot, n, asserts, site)) return;
  // L, and D after it.
  for (uint k = 0; k < n;) {
    if (pivot[k] > 0) {
      SWAP_ROWS(to, sb, column, k, (uint)pivot[k] - 1)
      const T x = AT(to, sb, k, column);
      for (uint i = k + 1; i < n; i++)
        AT(to, sb, i, column) = MAD(-x, AT(factor, sa, i, k), AT(to, sb, i, column));
      AT(to, sb, k, column) = DIV(x, DIAGONAL(AT(factor, sa, k, k)));
      k++;
    } else {
      SWAP_ROWS(to, sb, column, k + 1, (uint)(-pivot[k]) - 1)
      const T x = AT(to, sb, k, column), y = AT(to, sb, k + 1, column);
      for (uint i = k + 2; i < n; i++) {
        const T rest = MAD(-x, AT(factor, sa, i, k), AT(to, sb, i, column));
        AT(to, sb, i, column) = MAD(-y, AT(factor, sa, i, k + 1), rest);
      }
      // The block's inverse times a column, which is what transposed rows times it are.
      const Block block =
          block_of(AT(factor, sa, k, k), AT(factor, sa, k + 1, k), AT(factor, sa, k + 1, k + 1));
      AT(to, sb, k, column) = TURNED(DIVIDED_FIRST(block, TURNED(x), TURNED(y)));
      AT(to, sb, k + 1, column) = TURNED(DIVIDED_SECOND(block, TURNED(x), TURNED(y)));
      k += 2;
    }
  }
  // L, transposed.
  for (uint k = n; k > 0;) {
    const uint last = k - 1, rows = pivot[last] > 0 ? 1 : 2;
    k -= rows;
    for (uint j = k; j <= last; j++) {
      T x = AT(to, sb, j, column);
      for (uint i = last + 1; i < n; i++)
        x = MAD(-TURNED(AT(factor, sa, i, j)), AT(to, sb, i, column), x);
      AT(to, sb, j, column) = x;
    }
    SWAP_ROWS(to, sb, column, last, (uint)abs(pivot[last]) - 1)
  }
}
