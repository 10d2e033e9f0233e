// Bags of embeddings: the sum, mean or maximum of the rows that a stretch of indices names, and
// what their gradients need. Every result belongs to one work-item, which adds in the order of the
// indices.
//
// Compile parameters: E (tag of weights, results and gradients), C (computed with), POSITION (tag
// that counts rows beside C: i32 for f32, i64 for f64), INDEX (tag of indices and offsets), MODE (0
// sum, 1 mean, 2 maximum), WEIGHTED (each row has a factor), WIDTH (columns at a time), VECTORS (of
// them that bag_forward takes).
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#ifndef POSITION
#define POSITION i32
#endif
#ifndef INDEX
#define INDEX i64
#endif
#ifndef MODE
#define MODE 0
#endif
#ifndef WEIGHTED
#define WEIGHTED 0
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef VECTORS
#define VECTORS 1
#endif
#include "include/assert.clh"
#include "include/dtype.clh"
#include "include/item_by_item.clh"
#include "index/embedding_bag_arguments.clh"

#define OFFSET(b) LOAD_AS(i64, INDEX, offsets + offsets_offset, b)
#define INDEX_AT(i) LOAD_AS(i64, INDEX, index + index_offset, i)
#define WEIGHT_ROW(row) \
  (weight + weight_offset + ((row) * args.weight_step + column) * STORAGE_SIZE(E))
#if WEIGHTED
#define FACTOR(i) LOAD_AS(C, E, factors + factors_offset, (i) * args.factor_step)
#else
#define FACTOR(i) ((TYPE(C))1)
#endif

/// The stretch of indices of a bag, within bounds whatever the offsets say.
#define DECLARE_BAG(b)                                                                             \
  const long begin_ = OFFSET(b);                                                                   \
  const long end_ = (b) + 1 < args.bags || args.last_given ? OFFSET((b) + 1) : (long)args.indices; \
  const ulong begin = clamp(begin_, 0l, (long)args.indices);                                       \
  const ulong end = clamp(end_, (long)begin, (long)args.indices)

#if MODE == 2
#define COMBINE(width)                                            \
  if (count == 0) {                                               \
    best = (TYPEV(POSITION, width))(row);                         \
    result = value;                                               \
  } else {                                                        \
    best = value > result ? (TYPEV(POSITION, width))(row) : best; \
    result = value > result ? value : result;                     \
  }
#define STORE_POSITIONS(width)                                                                    \
  STOREV_FROM(INDEX, POSITION, width,                                                             \
              positions + positions_offset + (bag * args.columns + column) * STORAGE_SIZE(INDEX), \
              0, best)
#else
#define COMBINE(width) result += value * FACTOR(i);
#define STORE_POSITIONS(width)
#endif

#define REDUCE_BAG(width)                                                                        \
  {                                                                                              \
    TYPEV(C, width) result = (TYPEV(C, width))((TYPE(C))0);                                      \
    TYPEV(POSITION, width) best = (TYPEV(POSITION, width))((TYPE(POSITION))0);                   \
    ulong count = 0;                                                                             \
    for (ulong i = begin; i < end; i++) {                                                        \
      const long row = INDEX_AT(i);                                                              \
      if (!check_index(row, args.rows, asserts, args.site) || row == args.skipped) continue;     \
      const TYPEV(C, width) value = LOADV_AS(C, E, width, WEIGHT_ROW(row), 0);                   \
      COMBINE(width)                                                                             \
      count++;                                                                                   \
    }                                                                                            \
    if (MODE == 1 && count > 0) result /= (TYPE(C))count;                                        \
    STOREV_FROM(E, C, width, out + out_offset + (bag * args.columns + column) * STORAGE_SIZE(E), \
                0, result);                                                                      \
    STORE_POSITIONS(width);                                                                      \
    (void)best;                                                                                  \
  }

#if MODE != 2
/// VECTORS vectors of columns at a time, so that an index is read once for all of them.
#define SUM_BAG_VECTORS                                                                            \
  {                                                                                                \
    TYPEV(C, WIDTH) results[VECTORS];                                                              \
    _Pragma("unroll") for (uint v = 0; v < VECTORS; v++) {                                         \
      results[v] = (TYPEV(C, WIDTH))((TYPE(C))0);                                                  \
    }                                                                                              \
    ulong count = 0;                                                                               \
    for (ulong i = begin; i < end; i++) {                                                          \
      const long row = INDEX_AT(i);                                                                \
      if (!check_index(row, args.rows, asserts, args.site) || row == args.skipped) continue;       \
      const TYPE(C) factor = FACTOR(i);                                                            \
      _Pragma("unroll") for (uint v = 0; v < VECTORS; v++) {                                       \
        const TYPEV(C, WIDTH) value = LOADV_AS(C, E, WIDTH, WEIGHT_ROW(row), v);                   \
        results[v] += value * factor;                                                              \
      }                                                                                            \
      count++;                                                                                     \
    }                                                                                              \
    _Pragma("unroll") for (uint v = 0; v < VECTORS; v++) {                                         \
      if (MODE == 1 && count > 0) results[v] /= (TYPE(C))count;                                    \
      STOREV_FROM(E, C, WIDTH, out + out_offset + (bag * args.columns + column) * STORAGE_SIZE(E), \
                  v, results[v]);                                                                  \
    }                                                                                              \
  }
#endif

/// One work-item per bag and VECTORS * WIDTH columns.
kernel void bag_forward(global const char* weight, const ulong weight_offset,
                        global const char* index, const ulong index_offset,
                        global const char* offsets, const ulong offsets_offset,
                        global const char* factors, const ulong factors_offset, global char* out,
                        const ulong out_offset, global char* positions,
                        const ulong positions_offset, const BagArguments args,
                        global int* asserts) {
  const ulong item = get_global_id(0);
  const ulong bag = item / args.chunks;
  if (bag >= args.bags) return;
  uint column = (uint)(item - bag * args.chunks) * (VECTORS * WIDTH);
  DECLARE_BAG(bag);
#if MODE != 2
  if (column + VECTORS * WIDTH <= args.columns) {
    SUM_BAG_VECTORS
    return;
  }
#endif
  const uint last = min(args.columns, column + VECTORS * WIDTH);
  for (; column + WIDTH <= last; column += WIDTH) REDUCE_BAG(WIDTH)
  for (; column < last; column++) REDUCE_BAG(1)
}

/// map: the bag of each index, -1 past the last; size: indices per bag but for the skipped ones.
/// One work-item per bag. Checks the offsets.
kernel void bag_map(global const char* index, const ulong index_offset, global const char* offsets,
                    const ulong offsets_offset, global char* map, const ulong map_offset,
                    global char* sizes, const ulong sizes_offset, const BagArguments args,
                    global int* asserts) {
  const ulong bag = get_global_id(0);
  if (bag >= args.bags) return;
  DECLARE_BAG(bag);
  if ((bag == 0 && begin_ != 0) || begin_ < 0 || begin_ > end_ || end_ > (long)args.indices) {
    record_failure(begin_, args.indices, asserts, args.offset_site);
  }
  map += map_offset;
  long count = 0;
  for (ulong i = begin; i < end; i++) {
    STORE_FROM(INDEX, i64, map, i, (long)bag);
    count += INDEX_AT(i) != args.skipped;
  }
  STORE_FROM(INDEX, i64, sizes + sizes_offset, bag, count);
  if (bag + 1 == args.bags) {
    for (ulong i = end; i < args.indices; i++) STORE_FROM(INDEX, i64, map, i, -1l);
  }
}

#define SPREAD_GRADIENT(width)                                                                    \
  {                                                                                               \
    TYPEV(C, width) value = (TYPEV(C, width))((TYPE(C))0);                                        \
    if (bag >= 0 && bag < (long)args.bags) {                                                      \
      value = LOADV_AS(                                                                           \
          C, E, width,                                                                            \
          weight + weight_offset + (bag * args.weight_step + column) * STORAGE_SIZE(E), 0);       \
      value *= factor;                                                                            \
    }                                                                                             \
    STOREV(C, width, out + out_offset + (i * args.columns + column) * STORAGE_SIZE(C), 0, value); \
  }

/// out[i] = gradient of the row that index i names: that of its bag (at weight), times the
/// row's factor, over the bag's size for a mean; out is of C. One work-item per index and WIDTH
/// columns.
kernel void bag_rows(global const char* weight, const ulong weight_offset, global const char* map,
                     const ulong map_offset, global const char* sizes, const ulong sizes_offset,
                     global const char* factors, const ulong factors_offset, global char* out,
                     const ulong out_offset, const BagArguments args) {
  const ulong item = get_global_id(0);
  const ulong i = item / args.chunks;
  if (i >= args.indices) return;
  uint column = (uint)(item - i * args.chunks) * WIDTH;
  const long bag = LOAD_AS(i64, INDEX, map + map_offset, i);
  TYPE(C) factor = FACTOR(i);
#if MODE == 1
  if (bag >= 0 && bag < (long)args.bags) {
    const long size = LOAD_AS(i64, INDEX, sizes + sizes_offset, bag);
    factor /= (TYPE(C))max(size, 1l);
  }
#endif
  if (column + WIDTH <= args.columns) {
    SPREAD_GRADIENT(WIDTH)
  } else {
    for (; column < args.columns; column++) SPREAD_GRADIENT(1)
  }
}

/// out[index[i]] += gradient of that row, for all i in order: what bag_rows and then a sum through
/// the indices make, for CPUs; out is of C. A work-item takes `chunks` vectors of columns and the
/// rows whose hash falls into its part. Global size: ceil(columns / (chunks * WIDTH)) by parts.
kernel ITEM_BY_ITEM void bag_sums(global const char* weight, const ulong weight_offset,
                                  global const char* index, const ulong index_offset,
                                  global const char* map, const ulong map_offset,
                                  global const char* sizes, const ulong sizes_offset,
                                  global const char* factors, const ulong factors_offset,
                                  global char* out, const ulong out_offset, const BagArguments args,
                                  global int* asserts) {
  const uint first = get_global_id(0) * args.chunks * WIDTH;
  if (first >= args.columns) return;
  const uint count = min(args.columns - first, args.chunks * WIDTH);
  for (ulong i = 0; i < args.indices; i++) {
    const long row = INDEX_AT(i);
    if (row == args.skipped && row >= 0) continue;
    if (!check_index(row, args.rows, asserts, args.site)) continue;
    if (mul_hi((uint)row * 0x9e3779b1u, args.parts) != get_global_id(1)) continue;
    const long bag = LOAD_AS(i64, INDEX, map + map_offset, i);
    if (bag < 0 || bag >= (long)args.bags) continue;
    TYPE(C) factor = FACTOR(i);
#if MODE == 1
    const long size = LOAD_AS(i64, INDEX, sizes + sizes_offset, bag);
    factor /= (TYPE(C))max(size, 1l);
#endif
    global const char* from =
        weight + weight_offset + (bag * args.weight_step + first) * STORAGE_SIZE(E);
    global char* to = out + out_offset + (row * args.columns + first) * STORAGE_SIZE(C);
    uint c = 0;
#if WIDTH > 1
    for (; c + WIDTH <= count; c += WIDTH) {
      const TYPEV(C, WIDTH) value = LOADV_AS(C, E, WIDTH, from, c / WIDTH);
      const TYPEV(C, WIDTH) sum = LOADV_AS(C, C, WIDTH, to, c / WIDTH) + value * factor;
      STOREV_FROM(C, C, WIDTH, to, c / WIDTH, sum);
    }
#endif
    for (; c < count; c++) {
      const TYPE(C) sum = LOAD_AS(C, C, to, c) + LOAD_AS(C, E, from, c) * factor;
      STORE_FROM(C, C, to, c, sum);
    }
  }
}

/// out[i] = product of the row that index i names and the gradient of its bag. One work-item per
/// index.
kernel void bag_factors(global const char* weight, const ulong weight_offset,
                        global const char* index, const ulong index_offset, global const char* map,
                        const ulong map_offset, global const char* grads, const ulong grads_offset,
                        global char* out, const ulong out_offset, const BagArguments args,
                        global int* asserts) {
  const ulong i = get_global_id(0);
  if (i >= args.indices) return;
  const long row = INDEX_AT(i);
  const long bag = LOAD_AS(i64, INDEX, map + map_offset, i);
  TYPE(C) sum = 0;
  const bool valid = check_index(row, args.rows, asserts, args.site);
  if (valid && row != args.skipped && bag >= 0 && bag < (long)args.bags) {
    const uint column = 0;
    global const char* values = WEIGHT_ROW(row);
    global const char* own_grads = grads + grads_offset + bag * args.factor_step * STORAGE_SIZE(E);
    for (uint j = 0; j < args.columns; j++) {
      sum += LOAD_AS(C, E, values, j) * LOAD_AS(C, E, own_grads, j);
    }
  }
  STORE_FROM(E, C, out + out_offset, i, sum);
}
