// The observer of quantisation-aware training: moving averages of a tensor's extremes, and the
// scale and zero point that cover them. One work-item per channel (one in all if the grid is per
// tensor).
#include "include/dtype.clh"
#include "quantize/arguments.clh"

#define AT(type, operand) ((global type*)(operand + operand##_offset))

kernel void observe(global const char* lows, const ulong lows_offset, global const char* highs,
                    const ulong highs_offset, global char* running_lows,
                    const ulong running_lows_offset, global char* running_highs,
                    const ulong running_highs_offset, global char* scales,
                    const ulong scales_offset, global char* zeros, const ulong zeros_offset,
                    global const char* observes, const ulong observes_offset,
                    global const char* quantises, const ulong quantises_offset,
                    const ObserverArguments args) {
  const uint i = get_global_id(0);
  if (i >= args.channels) return;
  const float seen_low = AT(const float, lows)[i];
  const float seen_high = AT(const float, highs)[i];
  global float* running_low = AT(float, running_lows) + i;
  global float* running_high = AT(float, running_highs) + i;
  float low = *running_low, high = *running_high;
  if (*AT(const long, observes) != 0) {
    // Infinite: nothing was seen yet.
    low = isinf(low) ? seen_low : low + args.rate * (seen_low - low);
    high = isinf(high) ? seen_high : high + args.rate * (seen_high - high);
    *running_low = low;
    *running_high = high;
  }
  if (*AT(const long, quantises) == 0) return;

  // Zero is a point of the grid.
  low = fmin(low, 0.0f);
  high = fmax(high, 0.0f);
  const float levels = args.highest - args.lowest;
  if (args.symmetric && low < 0 && high > 0) {
    const float below = floor(levels / 2) + 1, above = floor(levels / 2);
    const float step = fmax(low / -below, high / above);
    low = -step * below;
    high = step * above;
  }
  float scale = (high - low) / levels;
  // A scale too small for its inverse to be finite quantises nothing.
  if (scale == 0 || isinf(1 / scale)) scale = 0.1f;
  const float smallest = 6.1e-5f;
  if (scale < smallest) {
    if (low == 0) {
      high = smallest * levels;
    } else if (high == 0) {
      low = -smallest * levels;
    } else {
      low *= smallest / scale;
      high *= smallest / scale;
    }
    scale = smallest;
  }
  // From the end whose rounding error is smaller.
  const float from_low = args.lowest - low / scale, from_high = args.highest - high / scale;
  const float low_error = fabs(args.lowest) + fabs(low / scale);
  const float high_error = fabs(args.highest) + fabs(high / scale);
  float zero = low_error < high_error ? from_low : from_high;
  if (args.symmetric && low < 0 && high > 0) zero = (args.lowest + args.highest) / 2;
  AT(float, scales)[i] = scale;
  AT(int, zeros)[i] = (int)rint(clamp(zero, args.lowest, args.highest));
}
