// Samples whose distribution has parameters of its own for each element, by rejection.
//
// Element i takes its numbers from Philox subsequence i, as many as it needs: neither strides nor
// the launch shape change the stream. Operands are contiguous. Compile parameters: E (tag of
// parameters and results), C (f32 or f64, computed with). Global size: n or more.
#ifndef E
#define E f32
#endif
#ifndef C
#define C f32
#endif
#include "include/assert.clh"
#include "include/dtype.clh"
#include "include/philox.clh"

typedef TYPE(C) real;

/// Attempts are accepted with a probability of about 0.7 or more: this many never fail.
#define ATTEMPTS 200

/// Two uniform numbers in (0, 1] and a normal one.
typedef struct {
  real u, v, normal;
} Draw;

#define IS_f32 1
#define IS_f64 2
#if PASTE2(IS_, C) == 2
static inline Draw draw(ulong seed, ulong i, ulong counter) {
  const uint4 a = philox4x32(seed, i, 2 * counter);
  const uint4 b = philox4x32(seed, i, 2 * counter + 1);
  Draw result = {uniform_double_open(a.xy), uniform_double_open(a.zw), box_muller_double(b).x};
  return result;
}
#else
static inline Draw draw(ulong seed, ulong i, ulong counter) {
  const uint4 a = philox4x32(seed, i, counter);
  Draw result = {uniform_float_open(a.x), uniform_float_open(a.y), box_muller_float(a.zw).x};
  return result;
}
#endif

/// value * e^log_factor, whose product may be too small for the type.
typedef struct {
  real value, log_factor;
} Scaled;

/// Gamma of shape `a`: Marsaglia and Tsang, "A simple method for generating gamma variables". A
/// shape below 1 is raised by 1 and the sample multiplied by u^(1/a).
static inline Scaled sample_gamma(real a, ulong seed, ulong i, ulong counter) {
  Scaled result = {NAN, 0};
  if (!(a >= 0)) return result;
  result.value = 0;
  if (a == 0) return result;
  if (a < 1) {
    result.log_factor = log(draw(seed, i, counter++).u) / a;
    a += 1;
  }
  const real d = a - (real)1 / 3, c = 1 / sqrt(9 * d);
  result.value = d;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    const Draw drawn = draw(seed, i, counter + attempt);
    const real x = drawn.normal, root = 1 + c * x;
    if (root <= 0) continue;
    const real v = root * root * root;
    result.value = d * v;
    if (log(drawn.u) < x * x / 2 + d * (1 - v + log(v))) break;
  }
  return result;
}

/// log(1 + x) - x without cancellation.
static inline real log1p_minus(real x) {
  if (fabs(x) > (real)0.3f) return log1p(x) - x;
  const real s = x / (2 + x), square = s * s;
  real sum = 0;
  for (int k = 21; k >= 3; k -= 2) sum = sum * square + (real)1 / k;
  return s * (2 * square * sum - x);
}
/// log(k!) less Stirling's formula, for k from 1 on.
static inline real stirling_error(real k) {
  const real square = k * k;
  return ((real)1 / 12 -
          ((real)1 / 360 - ((real)1 / 1260 - (real)1 / 1680 / square) / square) / square) /
         k;
}
/// k log(k / mean) + mean - k: how far k is off (Loader, "Fast and accurate computation of binomial
/// probabilities"). Differences of large logarithms would lose a float's digits.
static inline real deviance(real k, real mean) { return -k * log1p_minus((mean - k) / k); }
#define LOG_TWO_PI ((real)1.83787706640934548356)

static inline real poisson_log_probability(real k, real mean) {
  if (k == 0) return -mean;
  return -stirling_error(k) - deviance(k, mean) - (LOG_TWO_PI + log(k)) / 2;
}

/// Small means: how many uniform factors keep a product above e^-mean. Others: Hoermann, "The
/// transformed rejection method for generating Poisson random variables" (PTRS).
static inline real sample_poisson(real mean, ulong seed, ulong i, ulong counter) {
  if (mean < 10) {
    const real floor_ = exp(-mean);
    real product = 1, count = 0;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      const Draw drawn = draw(seed, i, counter + attempt);
      product *= drawn.u;
      if (product <= floor_) break;
      count += 1;
      product *= drawn.v;
      if (product <= floor_) break;
      count += 1;
    }
    return mean == 0 ? 0 : count;
  }
  const real b = (real)0.931 + (real)2.53 * sqrt(mean);
  const real a = (real)-0.059 + (real)0.02483 * b;
  const real inverse_alpha = (real)1.1239 + (real)1.1328 / (b - (real)3.4);
  const real quick = (real)0.9277 - (real)3.6224 / (b - 2);
  real k = floor(mean);
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    const Draw drawn = draw(seed, i, counter + attempt);
    const real u = drawn.u - (real)0.5, v = drawn.v, us = (real)0.5 - fabs(u);
    k = floor((2 * a / us + b) * u + mean + (real)0.43);
    if (us >= (real)0.07 && v <= quick) break;
    if (k < 0 || (us < (real)0.013 && v > us)) continue;
    if (log(v * inverse_alpha / (a / (us * us) + b)) <= poisson_log_probability(k, mean)) break;
  }
  return k;
}

static inline real binomial_log_probability(real k, real n, real p) {
  if (k == 0) return n * log1p(-p);
  if (k == n) return n * log(p);
  return stirling_error(n) - stirling_error(k) - stirling_error(n - k) - deviance(k, n * p) -
         deviance(n - k, n * (1 - p)) + (log(n / k / (n - k)) - LOG_TWO_PI) / 2;
}

/// For p up to 0.5. Small means: sums of geometric waiting times. Others: Hoermann, "The generation
/// of binomial random variates" (BTRS).
static inline real sample_half_binomial(real n, real p, ulong seed, ulong i, ulong counter) {
  if (n * p < 10) {
    const real scale = 1 / log1p(-p);
    real waited = 0, count = 0;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      const Draw drawn = draw(seed, i, counter + attempt);
      waited += max(ceil(log(drawn.u) * scale), (real)1);
      if (waited > n) break;
      count += 1;
      waited += max(ceil(log(drawn.v) * scale), (real)1);
      if (waited > n) break;
      count += 1;
    }
    return count;
  }
  const real deviation = sqrt(n * p * (1 - p));
  const real b = (real)1.15 + (real)2.53 * deviation;
  const real a = (real)-0.0873 + (real)0.0248 * b + (real)0.01 * p;
  const real center = n * p + (real)0.5;
  const real quick = (real)0.92 - (real)4.2 / b;
  const real alpha = ((real)2.83 + (real)5.1 / b) * deviation;
  const real most = binomial_log_probability(floor((n + 1) * p), n, p);
  real k = floor(n * p);
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    const Draw drawn = draw(seed, i, counter + attempt);
    const real u = drawn.u - (real)0.5, v = drawn.v, us = (real)0.5 - fabs(u);
    k = floor((2 * a / us + b) * u + center);
    if (us >= (real)0.07 && v <= quick) break;
    if (k < 0 || k > n) continue;
    const real ratio = binomial_log_probability(k, n, p) - most;
    if (log(v * alpha / (a / (us * us) + b)) <= ratio) break;
  }
  return clamp(k, (real)0, n);
}

#define SAMPLE_PARAMETERS global char *out, ulong out_offset, ulong n, ulong seed, ulong counter
#define SAMPLE_BEGIN()              \
  const ulong i = get_global_id(0); \
  if (i >= n) return

/// `smallest`: no sample is 0, whose logarithm would be infinite.
kernel void gamma_samples(SAMPLE_PARAMETERS, global const char* shapes, ulong shapes_offset,
                          real smallest) {
  SAMPLE_BEGIN();
  const Scaled drawn = sample_gamma(LOAD_AS(C, E, shapes + shapes_offset, i), seed, i, counter);
  const real sample = drawn.value * exp(drawn.log_factor);
  const real result = sample < smallest ? smallest : sample;
  STORE_FROM(E, C, out + out_offset, i, result);
}

/// Logarithms, which are told apart where most samples of a small shape would be too small for the
/// type. Results are of type C, and finite, so that their differences are numbers.
kernel void log_gamma_samples(SAMPLE_PARAMETERS, global const char* shapes, ulong shapes_offset,
                              real lowest) {
  SAMPLE_BEGIN();
  const Scaled drawn = sample_gamma(LOAD_AS(C, E, shapes + shapes_offset, i), seed, i, counter);
  const real sample = log(drawn.value) + drawn.log_factor;
  const real result = sample < lowest ? lowest : sample;
  STORE_FROM(C, C, out + out_offset, i, result);
}

/// A negative rate, or NaN, fails.
kernel void poisson_samples(SAMPLE_PARAMETERS, global const char* rates, ulong rates_offset,
                            global int* asserts, uint site) {
  SAMPLE_BEGIN();
  const real rate = LOAD_AS(C, E, rates + rates_offset, i);
  real result = NAN;
  if (rate >= 0) {
    result = rate < INFINITY ? sample_poisson(rate, seed, i, counter) : rate;
  } else {
    record_failure(0, 0, asserts, site);
  }
  STORE_FROM(E, C, out + out_offset, i, result);
}

kernel void binomial_samples(SAMPLE_PARAMETERS, global const char* counts, ulong counts_offset,
                             global const char* probabilities, ulong probabilities_offset) {
  SAMPLE_BEGIN();
  const real count = LOAD_AS(C, E, counts + counts_offset, i);
  const real p = LOAD_AS(C, E, probabilities + probabilities_offset, i);
  real result;
  if (count != count || p != p) {
    result = NAN;
  } else if (count <= 0 || p <= 0) {
    result = 0;
  } else if (p >= 1) {
    result = count;
  } else if (p <= (real)0.5) {
    result = sample_half_binomial(count, p, seed, i, counter);
  } else {
    result = count - sample_half_binomial(count, 1 - p, seed, i, counter);
  }
  STORE_FROM(E, C, out + out_offset, i, result);
}
