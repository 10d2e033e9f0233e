// How a transform's length is taken apart.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

namespace ocl::fft {

/// Primes up to this are transformed by definition; lengths with larger ones by Bluestein's
/// algorithm.
inline constexpr uint32_t kMaxPrime = 61;

/// Lengths whose product is n: the lines of one kernel launch each.
struct Plan {
  static constexpr int kMaxSteps = 8;
  std::array<uint32_t, kMaxSteps> length{};
  int steps = 0;              // 0: n has a prime factor that is too large
  bool in_registers = false;  // lines that kernels/fft/registers.cl takes
};

/// The fewest steps of at most `longest` elements, of like lengths, or `least_steps` if that can be
/// done.
Plan make_plan(uint32_t n, uint32_t longest, int least_steps);

/// How a GPU's work-items share a line whose elements they hold in registers.
struct RegisterSchedule {
  static constexpr int kMaxPasses = 6;
  std::array<uint32_t, kMaxPasses> radix{1, 1, 1, 1, 1, 1};  // the largest first; 1: no pass
  uint32_t items = 0;  // that share a line; 0: there are no radices for the length
};
RegisterSchedule register_schedule(uint32_t length);

/// The fewest steps of lines in registers: of n elements if `fits_alone`, else of like lengths that
/// `fits`. None if there are no radices for n.
Plan make_register_plan(uint32_t n, const std::function<bool(uint32_t)>& fits_alone,
                        const std::function<bool(uint32_t)>& fits);

/// The smallest of 2^k, 3 2^k and 5 2^k that is at least n, k > 3.
uint32_t next_smooth(uint32_t n);

/// The radices of the passes over a line. `length` has no prime factor past kMaxPrime. The shortest
/// line of nine passes has 2 x 4 x 4 x 3^6 elements, which is longer than any.
struct Schedule {
  static constexpr int kMaxPasses = 8;
  std::array<uint8_t, kMaxPasses> radix{};
  int passes = 0;
};
Schedule schedule(uint32_t length);

/// Whether the kernels have a pass of their own for the radix; else it takes a table of its roots.
constexpr bool has_own_pass(uint32_t radix) { return radix <= 5 || radix == 8; }

}  // namespace ocl::fft
