#include "engine/fft_plan.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ocl::fft {

namespace {

/// Divisors of n up to `longest`, the one that splits n most evenly into `steps` first. Multiples
/// of 16 go before others that are as good: they keep vectors of lines within one run.
std::vector<uint32_t> candidates(uint32_t n, uint32_t longest, int steps) {
  const double ideal = std::pow(static_cast<double>(n), 1.0 / steps);
  std::vector<uint32_t> divisors;
  for (uint32_t d = 2; d <= longest && d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  const auto cost = [&](uint32_t d) {
    return std::abs(std::log2(d / ideal)) + (d % 16 == 0 ? 0 : 2);
  };
  std::stable_sort(divisors.begin(), divisors.end(),
                   [&](uint32_t a, uint32_t b) { return cost(a) < cost(b); });
  return divisors;
}

bool split(uint32_t n, uint32_t longest, int steps, Plan& plan) {
  if (steps == 1) {
    if (n > longest) return false;
    plan.length[plan.steps++] = n;
    return true;
  }
  for (const uint32_t d : candidates(n, longest, steps)) {
    plan.length[plan.steps++] = d;
    if (split(n / d, longest, steps - 1, plan)) return true;
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
  if (least_steps > 1 && split(n, longest, least_steps, plan)) return plan;
  for (int steps = 1; steps <= Plan::kMaxSteps; ++steps) {
    plan.steps = 0;
    if (split(n, longest, steps, plan)) return plan;
  }
  return plan;
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

}  // namespace ocl::fft
