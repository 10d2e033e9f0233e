// Division that rounds up.
#pragma once

#include <type_traits>

namespace ocl {

/// n / divisor, rounded up. n >= 0, divisor > 0.
template <class T, class Divisor>
constexpr auto ceil_div(T n, Divisor divisor) -> std::common_type_t<T, Divisor> {
  using Common = std::common_type_t<T, Divisor>;
  return (static_cast<Common>(n) + static_cast<Common>(divisor) - 1) / static_cast<Common>(divisor);
}

}  // namespace ocl
