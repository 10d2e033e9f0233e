#include "engine/fft/plan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "opencl/ceil_div.h"

namespace ocl::fft {

namespace {

// No kernel takes longer lines.
constexpr uint32_t kLongestLine = 8192;

using Fits = std::function<bool(uint32_t)>;

/// Divisors of n that fit, the one that splits n most evenly into `steps` first. Multiples of 16 go
/// before others that are as good: they keep vectors of lines within one run.
std::vector<uint32_t> candidates(uint32_t n, const Fits& fits, int steps) {
  const double ideal = std::pow(static_cast<double>(n), 1.0 / steps);
  std::vector<uint32_t> divisors;
  for (uint32_t d = 2; d <= kLongestLine && d <= n; ++d) {
    if (n % d == 0 && fits(d)) divisors.push_back(d);
  }
  const auto cost = [&](uint32_t d) {
    return std::abs(std::log2(d / ideal)) + (d % 16 == 0 ? 0 : 2);
  };
  std::stable_sort(divisors.begin(), divisors.end(),
                   [&](uint32_t a, uint32_t b) { return cost(a) < cost(b); });
  return divisors;
}

bool split(uint32_t n, const Fits& fits, int steps, Plan& plan) {
  if (steps == 1) {
    if (!fits(n)) return false;
    plan.length[plan.steps++] = n;
    return true;
  }
  for (const uint32_t d : candidates(n, fits, steps)) {
    plan.length[plan.steps++] = d;
    if (split(n / d, fits, steps - 1, plan)) return true;
    --plan.steps;
  }
  return false;
}

uint32_t largest_prime_factor(uint32_t n) {
  uint32_t largest = 1;
  for (uint32_t p = 2; p * p <= n && p <= kMaxPrime; ++p) {
    for (; n % p == 0; n /= p) largest = p;
  }
  return std::max(largest, n);
}

}  // namespace

Plan make_plan(uint32_t n, uint32_t longest, int least_steps) {
  Plan plan;
  if (largest_prime_factor(n) > kMaxPrime) return plan;
  const Fits fits = [=](uint32_t length) { return length <= longest; };
  if (least_steps > 1 && split(n, fits, least_steps, plan)) return plan;
  for (int steps = 1; steps <= Plan::kMaxSteps; ++steps) {
    plan.steps = 0;
    if (split(n, fits, steps, plan)) return plan;
  }
  return plan;
}

Plan make_register_plan(uint32_t n, const Fits& fits_alone, const Fits& fits) {
  Plan plan;
  if (largest_prime_factor(n) > 7) return plan;
  plan.in_registers = true;
  if (fits_alone(n)) {
    plan.length[plan.steps++] = n;
    return plan;
  }
  for (int steps = 2; steps <= Plan::kMaxSteps; ++steps) {
    plan.steps = 0;
    if (split(n, fits, steps, plan)) return plan;
  }
  return {};
}

uint32_t next_smooth(uint32_t n) {
  uint32_t best = UINT32_MAX;
  for (const uint32_t odd : {1u, 3u, 5u}) {
    uint64_t m = uint64_t{odd} << 4;
    while (m < n) m *= 2;
    best = static_cast<uint32_t>(std::min<uint64_t>(best, m));
  }
  return best;
}

Schedule schedule(uint32_t length) {
  Schedule result;
  const auto take = [&](uint32_t radix) {
    for (; length % radix == 0; length /= radix) {
      result.radix[result.passes++] = static_cast<uint8_t>(radix);
    }
  };
  // Passes by definition first: the first pass needs no twiddle factors.
  for (uint32_t p = kMaxPrime; p > 5; p -= 2) take(p);
  take(5);
  take(3);
  // 4 4 rather than 8 2.
  uint32_t exponent = 0;
  while ((length >> exponent) > 1) ++exponent;
  for (; exponent % 3 != 0 && exponent >= 2; exponent -= 2) {
    result.radix[result.passes++] = 4;
  }
  for (; exponent >= 3; exponent -= 3) result.radix[result.passes++] = 8;
  if (exponent == 1) result.radix[result.passes++] = 2;
  return result;
}

RegisterSchedule register_schedule(uint32_t length) {
  static constexpr std::array<uint32_t, 11> kRadices{16, 14, 10, 9, 8, 7, 6, 5, 4, 3, 2};
  struct Search {
    RegisterSchedule radices, best;
    double least = INFINITY;

    /// Tries all passes of radices up to `most` that the rest of the length allows. The cost of one
    /// is what its busiest work-items do, beside what they would do if all were busy.
    void go(uint32_t rest, uint32_t most, int pass, double cost) {
      if (rest == 1 && pass > 1 && cost < least) {
        least = cost;
        best = radices;
      }
      if (rest == 1 || pass == RegisterSchedule::kMaxPasses) return;
      for (const uint32_t radix : kRadices) {
        if (radix > most || rest % radix != 0) continue;
        const uint32_t first = pass == 0 ? radix : radices.radix[0];
        const uint32_t share = ceil_div(first, radix);
        radices.radix[pass] = radix;
        // Fewer elements to a work-item mean more work-items to hide latencies; of equals the
        // smaller radices.
        const double more = (pass == 0 ? 0.05 : 0.001) * radix;
        go(rest / radix, radix, pass + 1, cost + share * radix / static_cast<double>(first) + more);
        radices.radix[pass] = 1;
      }
    }
  };
  Search search;
  search.go(length, length, 0, 0);
  if (search.least < INFINITY) search.best.items = length / search.best.radix[0];
  return search.best;
}

}  // namespace ocl::fft
