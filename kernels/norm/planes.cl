// Batch norm where the positions of a channel are next to each other: a work-item, or a work-group
// of GROUP, per channel and part for the sums, per stretch of elements for the result.
#include "include/item_by_item.clh"
#include "norm/channels.clh"

#define ELEMENT(position)                                                      \
  (((ulong)((position) / args.inner) * args.channels + channel) * args.inner + \
   (position) % args.inner)
#define POINTER(p, element) ((p) + (ulong)(element) * STORAGE_SIZE(IN))

// Positions whose moments are taken in two passes, the second from the cache, before they are
// merged.
#define BLOCK (256 * WIDTH * GROUP)

#define FIND_CHANNEL                                       \
  const uint item = GROUP > 1 ? (uint)get_local_id(0) : 0; \
  const uint group = get_global_id(0) / GROUP;             \
  const uint channel = group % args.channels;              \
  const uint part = group / args.channels;                 \
  if (part >= args.parts) return; /* the whole group */    \
  const uint first = part * args.part;                     \
  const uint last = args.count - first > args.part ? first + args.part : args.count;

// Runs `vector`, which sees `count` elements from `start`, on each contiguous stretch of positions
// [begin, end). In a group neighbours take neighbouring vectors instead, whatever plane they are
// in, for a plane may be smaller than the group. Planes and parts are then whole vectors.
#if GROUP > 1
#define FOR_STRETCHES(begin, end, action)                                \
  for (uint p = (begin) + item * WIDTH; p < (end); p += GROUP * WIDTH) { \
    const ulong start = ELEMENT(p);                                      \
    const uint item = 0, count = WIDTH;                                  \
    action                                                               \
  }
#else
#define FOR_STRETCHES(begin, end, action)                \
  for (uint p = (begin), count; p < (end); p += count) { \
    const ulong start = ELEMENT(p);                      \
    count = min(args.inner - p % args.inner, (end) - p); \
    action                                               \
  }
#endif

kernel ITEM_BY_ITEM void plane_moments(global const char* x, const ulong x_offset,
                                       global char* partial, const ulong partial_offset,
                                       const ChannelArguments args) {
  DECLARE_SHARED;
  FIND_CHANNEL
  x += x_offset;
  const SCALAR one = LOAD_OF(IN, POINTER(x, ELEMENT(0)), 0);
  const SCALAR origin = ORIGIN_AT(SCALAR, one);
  Moments total = {0, 0};
  for (uint begin = first; begin < last; begin += BLOCK) {
    const uint end = last - begin > BLOCK ? begin + BLOCK : last;
    SCALAR sum = 0, squares = 0;
    FOR_STRETCHES(begin, end, sum += stretch_sum(POINTER(x, start), count, item, origin);)
    const SCALAR mean = group_sum(sum, item, SHARED) / (end - begin), centre = origin + mean;
    FOR_STRETCHES(begin, end,
                  { squares += stretch_squares(POINTER(x, start), count, item, centre); })
    const Moments own = {mean, group_sum(squares, item, SHARED)};
    total = begin == first ? own : merge(total, begin - first, own, end - begin);
  }
  if (item == 0) {
    partial += partial_offset;
    global char* sums = CHANNEL_ARRAY(partial, 2 * part);
    STORE(ACC, sums, channel, total.mean);
    STORE(ACC, sums, args.channels + channel, total.m2);
    if (part == 0) STORE(ACC, ORIGINS(partial), channel, origin);
  }
}

kernel ITEM_BY_ITEM void plane_gradient_sums(global const char* grad, const ulong grad_offset,
                                             global const char* x, const ulong x_offset,
                                             global const char* means, const ulong means_offset,
                                             global char* partial, const ulong partial_offset,
                                             const ChannelArguments args) {
  DECLARE_SHARED;
  FIND_CHANNEL
  grad += grad_offset;
  x += x_offset;
  const SCALAR mean = LOAD_OF(STAT, means + means_offset, channel);
  SCALAR total = 0, total_product = 0;
  for (uint begin = first; begin < last; begin += BLOCK) {
    const uint end = last - begin > BLOCK ? begin + BLOCK : last;
    SCALAR sum = 0, product = 0;
    FOR_STRETCHES(begin, end, {
      stretch_products(POINTER(grad, start), POINTER(x, start), count, item, mean, &sum, &product);
    })
    total += sum;
    total_product += product;
  }
  total = group_sum(total, item, SHARED);
  total_product = group_sum(total_product, item, SHARED);
  if (item == 0) {
    global char* sums = CHANNEL_ARRAY(partial + partial_offset, 2 * part);
    STORE(ACC, sums, channel, total);
    STORE(ACC, sums, args.channels + channel, total_product);
  }
}

// Below, `part` elements per work-item, of count * channels in all.
#if GROUP > 1
// GPUs divide numbers of 64 bits slowly.
static inline uint channel_of(ulong element, ulong elements, uint inner, uint channels) {
  if (elements <= UINT_MAX) return (uint)element / inner % channels;
  return element / inner % channels;
}
#define FOR_PLANES(action)                                                       \
  const ulong start = (ulong)get_global_id(0) * WIDTH;                           \
  const ulong elements = (ulong)args.count * args.channels;                      \
  if (start < elements) {                                                        \
    const uint channel = channel_of(start, elements, args.inner, args.channels); \
    const uint count = WIDTH, item = 0;                                          \
    action                                                                       \
  }
#else
#define FOR_PLANES(action)                                                         \
  const uint item = 0;                                                             \
  ulong start = (ulong)get_global_id(0) * args.part;                               \
  const ulong end = min(start + args.part, (ulong)args.count * args.channels);     \
  while (start < end) {                                                            \
    const uint channel = start / args.inner % args.channels;                       \
    const uint count = min((ulong)(args.inner - start % args.inner), end - start); \
    action start += count;                                                         \
  }
#endif

kernel ITEM_BY_ITEM void plane_normalize(global const char* x, const ulong x_offset, global char* y,
                                         const ulong y_offset, global const char* coefficients,
                                         const ulong coefficients_offset,
                                         const ChannelArguments args) {
  x += x_offset;
  y += y_offset;
  coefficients += coefficients_offset;
  FOR_PLANES({
    stretch_normalize(POINTER(x, start), POINTER(y, start), count, item,
                      LOAD(ACC, coefficients, channel),
                      LOAD(ACC, CHANNEL_ARRAY(coefficients, 1), channel),
                      LOAD(ACC, CHANNEL_ARRAY(coefficients, 2), channel));
  })
}

kernel ITEM_BY_ITEM void plane_gradient(global const char* grad, const ulong grad_offset,
                                        global const char* x, const ulong x_offset,
                                        global char* out, const ulong out_offset,
                                        global const char* coefficients,
                                        const ulong coefficients_offset,
                                        const ChannelArguments args) {
  grad += grad_offset;
  x += x_offset;
  out += out_offset;
  coefficients += coefficients_offset;
  FOR_PLANES({
    stretch_gradient(POINTER(grad, start), POINTER(x, start), POINTER(out, start), count, item,
                     LOAD(ACC, coefficients, channel),
                     LOAD(ACC, CHANNEL_ARRAY(coefficients, 1), channel),
                     LOAD(ACC, CHANNEL_ARRAY(coefficients, 2), channel),
                     LOAD(ACC, CHANNEL_ARRAY(coefficients, 3), channel));
  })
}
