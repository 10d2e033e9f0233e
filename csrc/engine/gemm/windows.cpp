#include "engine/gemm/windows.h"

#include <algorithm>
#include <bit>

#include "engine/gemm/plan.h"
#include "opencl/ceil_div.h"

namespace ocl::gemm {

using c10::ScalarType;

const char* refuse_windows(ScalarType dtype, bool tf32, bool tiles) {
  if (!c10::isFloatingType(dtype) || !takes(dtype)) return "not a floating-point type";
  // Neither small nor out of line, so that nothing but its dtype and the device is in question.
  constexpr int64_t kSize = 64;
  Windows windows;
  windows.side = Windows::a;
  Description description;
  description.m = description.n = description.k = kSize;
  description.a = {nullptr, dtype, kSize, 1};
  description.b = {nullptr, dtype, 1, kSize};
  description.out = {nullptr, dtype, kSize, 1};
  description.tf32 = tf32;
  description.windows = &windows;
  const Plan plan = make_plan(description);
  const auto refuse = [&](const Implementation& implementation) {
    const char* const reason = implementation.refuse(plan);
    return reason != nullptr ? reason : engine.reason_to_leave_out(implementation.name);
  };
  const auto* const forced = forced_among(engine, all_implementations_of_windows());
  if (forced != nullptr) return refuse(*forced);
  const bool takes_tiles = tiles && !plan.device.is_cpu() && dtype != ScalarType::Double;
  const char* first = nullptr;
  for (const Implementation* implementation : implementations_of_windows(plan.device)) {
    if (implementation == &tiled && !takes_tiles) continue;
    const char* const reason = refuse(*implementation);
    if (reason == nullptr) return nullptr;
    if (first == nullptr) first = reason;
  }
  return first;
}

bool Windows::rows_are_multiples(uint64_t elements) const {
  if (side != a) return true;
  const WindowArguments& w = arguments;
  return w.out_image % elements == 0 &&
         std::ranges::all_of(w.out_stride, [&](uint32_t each) { return each % elements == 0; });
}

void Windows::set_axis(size_t axis, const Axis& values) {
  WindowArguments& w = arguments;
  w.step[axis] = static_cast<int32_t>(values.step);
  w.origin[axis] = static_cast<int32_t>(values.origin);
  w.taps[axis] = static_cast<uint32_t>(values.taps);
  w.tap_step[axis] = static_cast<int32_t>(values.tap_step);
  const auto positions = static_cast<uint32_t>(values.positions);
  // The reciprocal for numbers below 2^31 is ceil(2^(31 + s) / d), with 2^s >= d.
  const uint32_t shift = positions <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(positions - 1));
  w.grid[axis] = positions;
  w.shift[axis] = shift;
  w.reciprocal[axis] =
      shift == 0
          ? 0
          : static_cast<uint32_t>(ceil_div(uint64_t{1} << (31 + shift), uint64_t{positions}));
}

}  // namespace ocl::gemm
