// How a transform's length is taken apart.
//
// Offers: Step, Plan, make_plan(), next_smooth(), Schedule, schedule().
#pragma once

#include <array>
#include <cstdint>

namespace ocl::fft {

/// Primes up to this are transformed by definition; lengths with larger ones by Bluestein's
/// algorithm.
inline constexpr uint32_t kMaxPrime = 61;

/// Lengths whose product is n: the lines of one kernel launch each.
struct Plan {
  static constexpr int kMaxSteps = 8;
  std::array<uint32_t, kMaxSteps> length{};
  int steps = 0;  // 0: n has a prime factor that is too large
};

/// The fewest steps of at most `longest` elements, of like lengths, or `least_steps` if that can be
/// done.
Plan make_plan(uint32_t n, uint32_t longest, int least_steps);

/// The smallest of 2^k, 3 2^k and 5 2^k that is at least n, k > 3.
uint32_t next_smooth(uint32_t n);

/// The radices of the passes over a line. `length` has no prime factor past kMaxPrime.
struct Schedule {
  static constexpr int kMaxPasses = 16;
  std::array<uint8_t, kMaxPasses> radix{};
  int passes = 0;
};
Schedule schedule(uint32_t length);

/// Whether the kernels have a pass of their own for the radix; else it takes a table of its roots.
constexpr bool has_own_pass(uint32_t radix) { return radix <= 5 || radix == 8; }

}  // namespace ocl::fft
