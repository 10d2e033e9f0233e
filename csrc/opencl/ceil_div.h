// Division that rounds up, and multiples.
#pragma once

#include <type_traits>

namespace ocl {

/// n / divisor, rounded up. n >= 0, divisor > 0.
template <class T, class Divisor>
constexpr auto ceil_div(T n, Divisor divisor) -> std::common_type_t<T, Divisor> {
  using Common = std::common_type_t<T, Divisor>;
  return (static_cast<Common>(n) + static_cast<Common>(divisor) - 1) / static_cast<Common>(divisor);
}

/// The least multiple of `multiple` that is not below n.
template <class T, class Multiple>
constexpr auto round_up(T n, Multiple multiple) -> std::common_type_t<T, Multiple> {
  return ceil_div(n, multiple) * static_cast<std::common_type_t<T, Multiple>>(multiple);
}

}  // namespace ocl
