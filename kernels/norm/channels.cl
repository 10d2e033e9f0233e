// Batch norm, a work-item per channel: from partial sums, or running statistics, to the
// coefficients that the elements are computed with.
#include "include/item_by_item.clh"
#include "norm/channels.clh"
#ifndef VARIANCE
#define VARIANCE 0
#endif

// partial: [part][mean, m2][channels]. Gives the mean and 1 / deviation (VARIANCE: the variance),
// updates the running statistics, and gives the coefficients: mean, scale, shift.
kernel ITEM_BY_ITEM void channel_statistics(global const char* partial_base, global char* mean_base,
                                            global char* rstd_base, global char* running_mean_base,
                                            global char* running_var_base,
                                            global const char* weight_base,
                                            global const char* bias_base,
                                            global char* coefficient_base, const SCALAR momentum,
                                            const SCALAR eps, const ChannelArgs args) {
  const uint channel = get_global_id(0);
  if (channel >= args.channels) return;
  global const char* partial = partial_base + args.offset[0];
  Moments total = {0, 0};
  for (uint p = 0; p < args.parts; p++) {
    const uint begin = p * args.part;
    const uint n = min(args.part, args.count - begin);
    const Moments own = {LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p), channel),
                         LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p + 1), channel)};
    total = p == 0 ? own : merge(total, begin, own, n);
  }
  const SCALAR variance = total.m2 / args.count;
  const SCALAR rstd = 1 / sqrt(variance + eps);
  STORE_TO(STAT, mean_base + args.offset[1], channel, total.mean);
  STORE_TO(STAT, rstd_base + args.offset[2], channel, (VARIANCE ? variance : rstd));

#define UPDATE(p, value) \
  STORE_TO(STAT, p, channel, momentum*(value) + (1 - momentum) * LOAD_OF(STAT, p, channel))
  if (args.flags & RUNNING_MEAN) UPDATE(running_mean_base + args.offset[3], total.mean);
  if (args.flags & RUNNING_VAR) {
    UPDATE(running_var_base + args.offset[4], total.m2 / ((SCALAR)args.count - 1));
  }
#if !VARIANCE
  global char* coefficients = coefficient_base + args.offset[7];
  STORE(ACC, coefficients, channel, total.mean);
  STORE(ACC, CHANNEL_ARRAY(coefficients, 1), channel,
        rstd * WEIGHT_AT(weight_base + args.offset[5], channel));
  STORE(ACC, CHANNEL_ARRAY(coefficients, 2), channel, BIAS_AT(bias_base + args.offset[6], channel));
#endif
}

// The coefficients from given statistics: mean, scale, shift.
kernel ITEM_BY_ITEM void channel_given(global const char* mean_base, global const char* var_base,
                                       global const char* weight_base, global const char* bias_base,
                                       global char* coefficient_base, const SCALAR eps,
                                       const ChannelArgs args) {
  const uint channel = get_global_id(0);
  if (channel >= args.channels) return;
  global char* coefficients = coefficient_base + args.offset[4];
  const SCALAR rstd = 1 / sqrt(LOAD_OF(STAT, var_base + args.offset[1], channel) + eps);
  STORE(ACC, coefficients, channel, LOAD_OF(STAT, mean_base + args.offset[0], channel));
  STORE(ACC, CHANNEL_ARRAY(coefficients, 1), channel,
        rstd * WEIGHT_AT(weight_base + args.offset[2], channel));
  STORE(ACC, CHANNEL_ARRAY(coefficients, 2), channel, BIAS_AT(bias_base + args.offset[3], channel));
}

// partial: [part][gradient, gradient * deviation][channels]. Gives the gradients of weight and
// bias, and the coefficients of the input's gradient: mean, scale, constant, slope. rstd: 1 /
// deviation with TRAIN, else the running variance.
kernel ITEM_BY_ITEM void channel_gradients(
    global const char* partial_base, global const char* mean_base, global const char* rstd_base,
    global const char* weight_base, global char* dweight_base, global char* dbias_base,
    global char* coefficient_base, const SCALAR eps, const ChannelArgs args) {
  const uint channel = get_global_id(0);
  if (channel >= args.channels) return;
  global const char* partial = partial_base + args.offset[0];
  SCALAR sum = 0, product = 0;
  for (uint p = 0; p < args.parts; p++) {
    sum += LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p), channel);
    product += LOAD(ACC, CHANNEL_ARRAY(partial, 2 * p + 1), channel);
  }
  const bool train = (args.flags & TRAIN) != 0;
  const SCALAR given = LOAD_OF(STAT, rstd_base + args.offset[2], channel);
  const SCALAR rstd = train ? given : 1 / sqrt(given + eps);
  if (args.flags & GRAD_WEIGHT) {
    STORE_TO(STAT, dweight_base + args.offset[4], channel, product * rstd);
  }
  if (args.flags & GRAD_BIAS) STORE_TO(STAT, dbias_base + args.offset[5], channel, sum);

  global char* coefficients = coefficient_base + args.offset[6];
  const SCALAR scale = rstd * WEIGHT_AT(weight_base + args.offset[3], channel);
  STORE(ACC, coefficients, channel, LOAD_OF(STAT, mean_base + args.offset[1], channel));
  STORE(ACC, CHANNEL_ARRAY(coefficients, 1), channel, scale);
  STORE(ACC, CHANNEL_ARRAY(coefficients, 2), channel, train ? scale * sum / args.count : 0);
  STORE(ACC, CHANNEL_ARRAY(coefficients, 3), channel,
        train ? scale * rstd * rstd * product / args.count : 0);
}
