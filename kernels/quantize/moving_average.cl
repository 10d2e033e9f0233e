// The observer of quantisation-aware training: moving averages of a tensor's extremes, and the
// scale and zero point that cover them. One work-item per channel (one in all if the grid is per
// tensor).
#include "include/dtype.clh"

typedef struct {
  ulong low_offset, high_offset, running_low_offset, running_high_offset, scale_offset, zero_offset,
      observes_offset, quantises_offset;  // bytes
  uint channels;
  uint symmetric;
  float rate;
  float lowest, highest;  // of the grid
  uint unused;
} ObserverArgs;

#define AT(type, base, offset) ((global type*)((base) + args.offset))

kernel void observe(global const char* low_base, global const char* high_base,
                    global char* running_low_base, global char* running_high_base,
                    global char* scale_base, global char* zero_base,
                    global const char* observes_base, global const char* quantises_base,
                    const ObserverArgs args) {
  const uint i = get_global_id(0);
  if (i >= args.channels) return;
  const float seen_low = AT(const float, low_base, low_offset)[i];
  const float seen_high = AT(const float, high_base, high_offset)[i];
  global float* running_low = AT(float, running_low_base, running_low_offset) + i;
  global float* running_high = AT(float, running_high_base, running_high_offset) + i;
  float low = *running_low, high = *running_high;
  if (*AT(const long, observes_base, observes_offset) != 0) {
    // Infinite: nothing was seen yet.
    low = isinf(low) ? seen_low : low + args.rate * (seen_low - low);
    high = isinf(high) ? seen_high : high + args.rate * (seen_high - high);
    *running_low = low;
    *running_high = high;
  }
  if (*AT(const long, quantises_base, quantises_offset) == 0) return;

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
  // What is too small for its inverse to be finite quantises nothing.
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
  AT(float, scale_base, scale_offset)[i] = scale;
  AT(int, zero_base, zero_offset)[i] = (int)rint(clamp(zero, args.lowest, args.highest));
}
