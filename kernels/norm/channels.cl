// Batch norm, per channel: from partial sums, or running statistics, to the coefficients that the
// elements are computed with.
//
// PART_ITEMS: work-items that share the parts of a channel, along dimension 1 of a work-group. On
// CPUs one takes them all; a GPU has few channels and many parts. A work-group takes CHANNELS.
#ifndef PART_ITEMS
#define PART_ITEMS 1
#endif
#ifndef CHANNELS
#define CHANNELS 1
#endif
#include "include/item_by_item.clh"
#include "norm/channels.clh"
#ifndef VARIANCE
#define VARIANCE 0
#endif

#if PART_ITEMS > 1
#define SHARING kernel __attribute__((reqd_work_group_size(CHANNELS, PART_ITEMS, 1)))
#define FIND_CHANNEL                                                 \
  local SCALAR shared[CHANNELS * PART_ITEMS];                        \
  const uint own_channel = get_global_id(0), item = get_local_id(1); \
  const uint channel = min(own_channel, args.channels - 1); /* all meet at the barriers */
#define RETURN_UNLESS_FIRST \
  if (item > 0 || own_channel != channel) return

/// The sum over the work-items of a channel, in a fixed order.
static inline SCALAR sum_items(SCALAR value, uint item, local SCALAR* shared) {
  local SCALAR* own = shared + item * CHANNELS + get_local_id(0);
  *own = value;
  for (uint n = PART_ITEMS / 2; n > 0; n /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < n) *own += own[n * CHANNELS];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const SCALAR sum = shared[get_local_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}
#else
#define SHARING kernel ITEM_BY_ITEM
#define FIND_CHANNEL                     \
  const uint channel = get_global_id(0); \
  if (channel >= args.channels) return;  \
  const uint item = 0;
#define RETURN_UNLESS_FIRST
#define sum_items(value, item, shared) (value)
#endif

#define FOR_PARTS(p) _Pragma("unroll 4") for (uint p = item; p < args.parts; p += PART_ITEMS)
#define PART_SIZE(p) min(args.part, args.count - (p) * args.part)

// partial: [part][mean, m2][channels], then the origins that the parts' means are distances from.
// Gives the mean and 1 / deviation (VARIANCE: the variance), updates the running statistics, and
// gives the coefficients: mean, scale, shift.
//
// By two sums: of the parts' means, each weighed by its share of the positions, so that the sum
// does not overflow; then of their squared distances from that.
SHARING void channel_statistics(global const char* partial, const ulong partial_offset,
                                global char* mean_out, const ulong mean_out_offset,
                                global char* rstd_out, const ulong rstd_out_offset,
                                global char* running_mean, const ulong running_mean_offset,
                                global char* running_var, const ulong running_var_offset,
                                global const char* weight, const ulong weight_offset,
                                global const char* bias, const ulong bias_offset,
                                global char* coefficients, const ulong coefficients_offset,
                                const SCALAR momentum, const SCALAR eps,
                                const ChannelArguments args) {
  FIND_CHANNEL
  partial += partial_offset;
  const SCALAR origin = LOAD(ACC, CHANNEL_ARRAY(partial, 2 * args.parts), channel);
  SCALAR distance = 0, squares = 0;
  FOR_PARTS(p) {
    const SCALAR share = (SCALAR)PART_SIZE(p) / (SCALAR)args.count;
    distance += LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p), channel) * share;
  }
  distance = sum_items(distance, item, shared);
  const SCALAR mean = origin + distance;
  FOR_PARTS(p) {
    const SCALAR delta = LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p), channel) - distance;
    squares += LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p + 1), channel) + delta * delta * PART_SIZE(p);
  }
  const SCALAR m2 = sum_items(squares, item, shared);
  RETURN_UNLESS_FIRST;
  const SCALAR variance = m2 / args.count;
  const SCALAR rstd = 1 / sqrt(variance + eps);
  STORE_TO(STAT, mean_out + mean_out_offset, channel, mean);
  STORE_TO(STAT, rstd_out + rstd_out_offset, channel, (VARIANCE ? variance : rstd));

#define UPDATE(p, value) \
  STORE_TO(STAT, p, channel, momentum*(value) + (1 - momentum) * LOAD_OF(STAT, p, channel))
  if (args.flags & kRunningMean) UPDATE(running_mean + running_mean_offset, mean);
  if (args.flags & kRunningVar) {
    UPDATE(running_var + running_var_offset, m2 / ((SCALAR)args.count - 1));
  }
#if !VARIANCE
  coefficients += coefficients_offset;
  STORE(ACC, coefficients, channel, mean);
  STORE(ACC, CHANNEL_ARRAY(coefficients, 1), channel,
        rstd * WEIGHT_AT(weight + weight_offset, channel));
  STORE(ACC, CHANNEL_ARRAY(coefficients, 2), channel, BIAS_AT(bias + bias_offset, channel));
#endif
}

// The coefficients from given statistics: mean, scale, shift. A work-item per channel.
kernel ITEM_BY_ITEM void channel_given(global const char* mean, const ulong mean_offset,
                                       global const char* var, const ulong var_offset,
                                       global const char* weight, const ulong weight_offset,
                                       global const char* bias, const ulong bias_offset,
                                       global char* coefficients, const ulong coefficients_offset,
                                       const SCALAR eps, const ChannelArguments args) {
  const uint channel = get_global_id(0);
  if (channel >= args.channels) return;
  coefficients += coefficients_offset;
  const SCALAR rstd = 1 / sqrt(LOAD_OF(STAT, var + var_offset, channel) + eps);
  STORE(ACC, coefficients, channel, LOAD_OF(STAT, mean + mean_offset, channel));
  STORE(ACC, CHANNEL_ARRAY(coefficients, 1), channel,
        rstd * WEIGHT_AT(weight + weight_offset, channel));
  STORE(ACC, CHANNEL_ARRAY(coefficients, 2), channel, BIAS_AT(bias + bias_offset, channel));
}

// partial: [part][gradient, gradient * deviation][channels]. Gives the gradients of weight and
// bias, and the coefficients of the input's gradient: mean, scale, constant, slope. rstd: 1 /
// deviation with kTrain, else the running variance.
SHARING void channel_gradients(global const char* partial, const ulong partial_offset,
                               global const char* means, const ulong means_offset,
                               global const char* rstds, const ulong rstds_offset,
                               global const char* weight, const ulong weight_offset,
                               global char* dweight, const ulong dweight_offset, global char* dbias,
                               const ulong dbias_offset, global char* coefficients,
                               const ulong coefficients_offset, const SCALAR eps,
                               const ChannelArguments args) {
  FIND_CHANNEL
  partial += partial_offset;
  SCALAR sum = 0, product = 0;
  FOR_PARTS(p) {
    sum += LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p), channel);
    product += LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p + 1), channel);
  }
  sum = sum_items(sum, item, shared);
  product = sum_items(product, item, shared);
  RETURN_UNLESS_FIRST;
  const bool train = (args.flags & kTrain) != 0;
  const SCALAR given = LOAD_OF(STAT, rstds + rstds_offset, channel);
  const SCALAR rstd = train ? given : 1 / sqrt(given + eps);
  if (args.flags & kGradWeight) {
    STORE_TO(STAT, dweight + dweight_offset, channel, product * rstd);
  }
  if (args.flags & kGradBias) STORE_TO(STAT, dbias + dbias_offset, channel, sum);

  coefficients += coefficients_offset;
  const SCALAR scale = rstd * WEIGHT_AT(weight + weight_offset, channel);
  STORE(ACC, coefficients, channel, LOAD_OF(STAT, means + means_offset, channel));
  STORE(ACC, CHANNEL_ARRAY(coefficients, 1), channel, scale);
  STORE(ACC, CHANNEL_ARRAY(coefficients, 2), channel, train ? scale * sum / args.count : 0);
  STORE(ACC, CHANNEL_ARRAY(coefficients, 3), channel,
        train ? scale * rstd * rstd * product / args.count : 0);
}
