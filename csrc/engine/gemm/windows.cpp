#include "engine/gemm/windows.h"

#include <algorithm>
#include <bit>

#include "engine/dtype.h"
#include "engine/gemm/fragments.h"
#include "engine/gemm/plan.h"
#include "opencl/ceil_div.h"
#include "runtime/stream.h"

namespace ocl::gemm {

using c10::ScalarType;

const char* refuse_windows(ScalarType dtype, bool tf32, bool tiles) {
  const Device& device = ocl::device(current_device());
  const DeviceProperties& p = device.properties();
  const bool halves = dtype == ScalarType::Half || dtype == ScalarType::BFloat16;
  const Implementation* const forced = forced_among(engine, all_implementations_of_windows());
  if (forced == &tiled) return c10::isFloatingType(dtype) ? nullptr : "not a floating-point type";
  if (forced == &subgroup_matrix && p.required_sub_group_sizes != 0) {
    return halves ? nullptr : "not of 16 bits";
  }
  if (halves && (p.has_tensor_cores || p.subgroup_matrix_size != 0)) return nullptr;
  if (forced == &wave_matrix || (amd_target(device) != 0 && !device.is_cpu() && !tiles)) {
    const WaveAnswer answer = wave_unit(current_queue(current_device()), tag(dtype));
    if (answer.unit != nullptr) return nullptr;
    if (forced == &wave_matrix) return answer.reason;
  }
  if (dtype == ScalarType::Float && p.has_tensor_cores && tf32) return nullptr;
  if (tiles && !device.is_cpu() && (halves || dtype == ScalarType::Float)) return nullptr;
  if (halves) return "the device has neither NVIDIA's tensor cores nor Intel's matrix units";
  return dtype == ScalarType::Float ? "single precision, where TF32 isn't there or allowed"
                                    : "neither of 16 bits nor TF32";
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
