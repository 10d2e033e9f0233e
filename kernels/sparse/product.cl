// A compressed sparse matrix times a dense one, and other reductions over the entries of its rows:
// out = alpha * sum + beta * out, or the mean, maximum or minimum of the products.
//
// A work-item has `span` rows and `stretch` columns of them. On CPUs these are all columns, so that
// a row of the dense matrix is read in one go, VECTORS * WIDTH sums in registers at a time; on GPUs
// neighbours have neighbouring columns, of which WIDTH is a divisor.
//
// Compile parameters: E (tag of values, dense matrix and result), C (computed with), I (tag of
// indices), POSITION (integer tag as wide as C), REDUCE (0 sum, 1 mean, 2 maximum, 3 minimum),
// WIDTH, VECTORS, BETA (0: what out holds isn't read), POSITIONS (1: the entry of each maximum is
// stored, or the number of all where a row has none).
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#ifndef I
#define I i64
#endif
#ifndef POSITION
#define POSITION i32
#endif
#ifndef REDUCE
#define REDUCE 0
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef VECTORS
#define VECTORS 1
#endif
#ifndef BETA
#define BETA 0
#endif
#ifndef POSITIONS
#define POSITIONS 0
#endif
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "sparse/arguments.clh"
#include "sparse/arithmetic.clh"

#define DENSE_AT(p) (dense + (LOAD_AS(i64, I, indices, p) * dense_step + column) * STORAGE_SIZE(E))
#define OUT_AT (out + (row * args.columns + column) * STORAGE_SIZE(E))

#if REDUCE < 2
#define START(width) ((TYPEV(C, width))((TYPE(C))0))
#define DECLARE_PLACES(width, count)
#define COMBINE(width, value, factor) sums[v] = MUL_ADD(width, value, factor, sums[v]);
#define STORE_PLACES(width)
#if REDUCE == 1
// A row without entries has the mean 0.
#define FINISH(width) sums[v] /= (TYPE(C))max(end - begin, 1l);
#elif BETA
#define FINISH(width)                                                 \
  {                                                                   \
    const TYPEV(C, width) before_ = LOADV_AS(C, E, width, OUT_AT, v); \
    SCALE(sums[v], alpha);                                            \
    sums[v] = MUL_ADD(width, before_, beta, sums[v]);                 \
  }
#else
#define FINISH(width) SCALE(sums[v], alpha);
#endif
#else
#define START(width) ((TYPEV(C, width))((TYPE(C))0))
#if REDUCE == 2
#define BETTER(a, b) ((a) > (b))
#else
#define BETTER(a, b) ((a) < (b))
#endif
// A NaN is taken, and stays.
#define IS_TAKEN(product) (p == begin || BETTER(product, sums[v]) || (product) != (product))
#if POSITIONS
#define DECLARE_PLACES(width, count) TYPEV(POSITION, width) places[count];
#define KEEP_PLACE(width, product) \
  places[v] = IS_TAKEN(product) ? (TYPEV(POSITION, width))((TYPE(POSITION))(p - begin)) : places[v];
#define STORE_PLACES(width)                                                                      \
  STOREV_FROM(I, i64, width, positions + (row * args.columns + column) * STORAGE_SIZE(I), v,     \
              begin < end ? CONVERTV(i64, POSITION, width, places[v]) + (TYPEV(i64, width))begin \
                          : (TYPEV(i64, width))((long)args.entries));
#else
#define DECLARE_PLACES(width, count)
#define KEEP_PLACE(width, product)
#define STORE_PLACES(width)
#endif
#define COMBINE(width, value, factor)                    \
  {                                                      \
    const TYPEV(C, width) product_ = (value) * (factor); \
    KEEP_PLACE(width, product_)                          \
    sums[v] = IS_TAKEN(product_) ? product_ : sums[v];   \
  }
#define FINISH(width)
#endif

/// `count` vectors of `width` columns, from `column`.
#define REDUCE_ROW(width, count)                                               \
  {                                                                            \
    TYPEV(C, width) sums[count];                                               \
    DECLARE_PLACES(width, count)                                               \
    _Pragma("unroll") for (uint v = 0; v < count; v++) sums[v] = START(width); \
    for (long p = begin; p < end; p++) {                                       \
      global const char* from = DENSE_AT(p);                                   \
      const TYPE(C) factor = LOAD_AS(C, E, values, p);                         \
      _Pragma("unroll") for (uint v = 0; v < count; v++) {                     \
        const TYPEV(C, width) value = LOADV_AS(C, E, width, from, v);          \
        COMBINE(width, value, factor)                                          \
      }                                                                        \
    }                                                                          \
    _Pragma("unroll") for (uint v = 0; v < count; v++) {                       \
      FINISH(width)                                                            \
      STOREV_FROM(E, C, width, OUT_AT, v, sums[v]);                            \
      STORE_PLACES(width)                                                      \
    }                                                                          \
    column += width * count;                                                   \
  }

kernel ITEM_BY_ITEM void sparse_product(global const char* offsets, const ulong offsets_offset,
                                        global const char* indices, const ulong indices_offset,
                                        global const char* values, const ulong values_offset,
                                        global const char* dense, const ulong dense_offset,
                                        global char* out, const ulong out_offset,
                                        global char* positions, const ulong positions_offset,
                                        const ProductArguments args, const TYPE(C) alpha,
                                        const TYPE(C) beta) {
  offsets += offsets_offset;
  indices += indices_offset;
  values += values_offset;
  dense += dense_offset;
  out += out_offset;
  positions += positions_offset;
  const long dense_step = (long)args.dense_step;
  const ulong item = get_global_id(0);
  const ulong block = item / args.chunks;
  const ulong start = (item - block * args.chunks) * args.stretch;
  const ulong stop = min(start + args.stretch, args.columns);
  const ulong last = min((block + 1) * args.span, args.rows);
  for (ulong row = block * args.span; row < last; row++) {
    const long begin = LOAD_AS(i64, I, offsets, row), end = LOAD_AS(i64, I, offsets, row + 1);
    ulong column = start;
#if VECTORS > 1
    while (column + VECTORS * WIDTH <= stop) REDUCE_ROW(WIDTH, VECTORS)
#endif
    while (column + WIDTH <= stop) REDUCE_ROW(WIDTH, 1)
#ifdef OCL_DEVICE_CPU
#if WIDTH > 8
    if (column + 8 <= stop) REDUCE_ROW(8, 1)
#endif
#if WIDTH > 4
    if (column + 4 <= stop) REDUCE_ROW(4, 1)
#endif
#if WIDTH > 2
    if (column + 2 <= stop) REDUCE_ROW(2, 1)
#endif
#endif
#if WIDTH > 1
    while (column < stop) REDUCE_ROW(1, 1)
#endif
  }
}

#if REDUCE == 0
// A sum's terms are added in turns, so that they needn't wait for each other.
#define TURNS 4

/// A product with a single column, of rows `dense_step` apart. A work-item has `span` rows.
kernel ITEM_BY_ITEM void sparse_vector_product(
    global const char* offsets, const ulong offsets_offset, global const char* indices,
    const ulong indices_offset, global const char* values, const ulong values_offset,
    global const char* dense, const ulong dense_offset, global char* out, const ulong out_offset,
    const ProductArguments args, const TYPE(C) alpha, const TYPE(C) beta) {
  offsets += offsets_offset;
  indices += indices_offset;
  values += values_offset;
  dense += dense_offset;
  out += out_offset;
  const long dense_step = (long)args.dense_step;
  const ulong column = 0;
  const ulong last = min((get_global_id(0) + 1) * args.span, args.rows);
  for (ulong row = get_global_id(0) * args.span; row < last; row++) {
    const long end = LOAD_AS(i64, I, offsets, row + 1);
    TYPE(C) turns[TURNS];
    for (uint t = 0; t < TURNS; t++) turns[t] = START(1);
    long p = LOAD_AS(i64, I, offsets, row);
    for (; p + TURNS <= end; p += TURNS) {
      _Pragma("unroll") for (uint t = 0; t < TURNS; t++) {
        turns[t] =
            MUL_ADD(1, LOAD_AS(C, E, DENSE_AT(p + t), 0), LOAD_AS(C, E, values, p + t), turns[t]);
      }
    }
    for (; p < end; p++) {
      turns[0] = MUL_ADD(1, LOAD_AS(C, E, DENSE_AT(p), 0), LOAD_AS(C, E, values, p), turns[0]);
    }
    TYPE(C) sums[1];
    sums[0] = (turns[0] + turns[1]) + (turns[2] + turns[3]);
    const uint v = 0;
    FINISH(1)
    STORE_FROM(E, C, OUT_AT, 0, sums[0]);
  }
}
#endif
