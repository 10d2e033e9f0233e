// Batch norm where the channels of a position are next to each other. A work-item owns WIDTH
// adjacent channels; those past the last whole vector are taken one by one.
#include "include/item_by_item.clh"
#include "norm/channels.clh"

#define TILES ((args.channels + WIDTH - 1) / WIDTH)
#define POINTER(p, position) \
  ((p) + ((ulong)(position) * args.channels + channel) * STORAGE_SIZE(IN))
#define NEXT ((ulong)args.channels * STORAGE_SIZE(IN))

#define FIND_TILE                             \
  const uint tile = get_global_id(0) % TILES; \
  const uint part = get_global_id(0) / TILES; \
  if (part >= args.parts) return;             \
  const uint first = part * args.part;        \
  const uint n = min(args.count - first, args.part);

// Runs body(T, load, store) with the tile's channel.
#define FOR_CHANNELS(body)                                                  \
  if ((tile + 1) * WIDTH <= args.channels) {                                \
    const uint channel = tile * WIDTH;                                      \
    body(VECTOR, LOADV_OF, STOREV_TO)                                       \
  } else {                                                                  \
    for (uint channel = tile * WIDTH; channel < args.channels; channel++) { \
      body(SCALAR, LOAD_OF, STORE_TO)                                       \
    }                                                                       \
  }

// Eight positions' moments, from registers, are merged with what came before by Chan's formula.
// Past an infinite mean there are no distances.
#define MOMENTS(T, load, store)                                                               \
  global const char* row = POINTER(x, first);                                                 \
  const T start = load(IN, POINTER(x, 0), 0), origin = ORIGIN_AT(T, start);                   \
  T mean = (T)(0), m2 = (T)(0);                                                               \
  uint i = 0;                                                                                 \
  for (; i + 8 <= n; i += 8) {                                                                \
    T v[8], squares = (T)(0);                                                                 \
    for (uint k = 0; k < 8; k++) v[k] = load(IN, row + k * NEXT, 0) - origin;                 \
    const T own =                                                                             \
        (((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))) * (SCALAR)0.125f; \
    for (uint k = 0; k < 8; k++) squares += (v[k] - own) * (v[k] - own);                      \
    const SCALAR share = (SCALAR)8 / (i + 8);                                                 \
    const T delta = own - mean;                                                               \
    mean = fabs(mean) == INFINITY ? mean + own : mean + delta * share;                        \
    m2 += squares + delta * delta * (i * share);                                              \
    row += 8 * NEXT;                                                                          \
  }                                                                                           \
  for (; i < n; i++) {                                                                        \
    const T v = load(IN, row, 0) - origin;                                                    \
    const T delta = v - mean;                                                                 \
    mean = fabs(mean) == INFINITY ? mean + v : mean + delta / (i + 1);                        \
    m2 += delta * (v - mean);                                                                 \
    row += NEXT;                                                                              \
  }                                                                                           \
  store(ACC, sums + (ulong)channel * STORAGE_SIZE(ACC), 0, mean);                             \
  store(ACC, sums + (ulong)(args.channels + channel) * STORAGE_SIZE(ACC), 0, m2);             \
  if (part == 0) store(ACC, ORIGINS(partial) + (ulong)channel * STORAGE_SIZE(ACC), 0, origin);

kernel ITEM_BY_ITEM void column_moments(global const char* x, const ulong x_offset,
                                        global char* partial, const ulong partial_offset,
                                        const ChannelArguments args) {
  FIND_TILE
  x += x_offset;
  partial += partial_offset;
  global char* sums = CHANNEL_ARRAY(partial, 2 * part);
  FOR_CHANNELS(MOMENTS)
}

// Positions summed one after the other before the sum goes to the total: bounds the rounding error.
#define BLOCK 64

#define PRODUCTS(T, load, store)                                             \
  global const char* grads = POINTER(grad, first);                           \
  global const char* row = POINTER(x, first);                                \
  const T mean = load(STAT, means + (ulong)channel * STORAGE_SIZE(STAT), 0); \
  T total = (T)(0), total_product = (T)(0);                                  \
  for (uint begin = 0; begin < n; begin += BLOCK) {                          \
    T sum = (T)(0), product = (T)(0);                                        \
    for (uint i = begin; i < min(begin + BLOCK, n); i++) {                   \
      const T g = load(IN, grads + i * NEXT, 0);                             \
      sum += g;                                                              \
      product += g * (load(IN, row + i * NEXT, 0) - mean);                   \
    }                                                                        \
    total += sum;                                                            \
    total_product += product;                                                \
  }                                                                          \
  store(ACC, sums + (ulong)channel * STORAGE_SIZE(ACC), 0, total);           \
  store(ACC, sums + (ulong)(args.channels + channel) * STORAGE_SIZE(ACC), 0, total_product);

kernel ITEM_BY_ITEM void column_gradient_sums(global const char* grad, const ulong grad_offset,
                                              global const char* x, const ulong x_offset,
                                              global const char* means, const ulong means_offset,
                                              global char* partial, const ulong partial_offset,
                                              const ChannelArguments args) {
  FIND_TILE
  grad += grad_offset;
  x += x_offset;
  means += means_offset;
  global char* sums = CHANNEL_ARRAY(partial + partial_offset, 2 * part);
  FOR_CHANNELS(PRODUCTS)
}

// Below, a work-item of a CPU takes whole positions, `part` of them, so that it reads in order; one
// of a GPU takes one tile of each.
#ifdef OCL_DEVICE_CPU
#define FOR_TILES                                                   \
  const uint first = get_global_id(0) * args.part;                  \
  for (uint i = first; i < min(first + args.part, args.count); i++) \
    for (uint tile = 0; tile < TILES; tile++)
#else
#define FOR_TILES                                          \
  const uint tile = get_global_id(0) % TILES;              \
  const uint first = get_global_id(0) / TILES * args.part; \
  for (uint i = first; i < min(first + args.part, args.count); i++)
#endif

#define COEFFICIENT(load, k) \
  load(ACC, CHANNEL_ARRAY(coefficients, k) + (ulong)channel * STORAGE_SIZE(ACC), 0)

#define NORMALIZE(T, load, store)                                    \
  const T mean = COEFFICIENT(load, 0), scale = COEFFICIENT(load, 1); \
  const T shift = COEFFICIENT(load, 2);                              \
  store(IN, POINTER(y, i), 0, NORMALIZED(load(IN, POINTER(x, i), 0)));

kernel ITEM_BY_ITEM void column_normalize(global const char* x, const ulong x_offset,
                                          global char* y, const ulong y_offset,
                                          global const char* coefficients,
                                          const ulong coefficients_offset,
                                          const ChannelArguments args) {
  x += x_offset;
  y += y_offset;
  coefficients += coefficients_offset;
  FOR_TILES { FOR_CHANNELS(NORMALIZE) }
}

#define GRADIENT(T, load, store)                                          \
  const T mean = COEFFICIENT(load, 0), scale = COEFFICIENT(load, 1);      \
  const T constant_ = COEFFICIENT(load, 2), slope = COEFFICIENT(load, 3); \
  store(IN, POINTER(out, i), 0,                                           \
        INPUT_GRADIENT(load(IN, POINTER(grad, i), 0), load(IN, POINTER(x, i), 0)));

kernel ITEM_BY_ITEM void column_gradient(global const char* grad, const ulong grad_offset,
                                         global const char* x, const ulong x_offset,
                                         global char* out, const ulong out_offset,
                                         global const char* coefficients,
                                         const ulong coefficients_offset,
                                         const ChannelArguments args) {
  grad += grad_offset;
  x += x_offset;
  out += out_offset;
  coefficients += coefficients_offset;
  FOR_TILES { FOR_CHANNELS(GRADIENT) }
}
