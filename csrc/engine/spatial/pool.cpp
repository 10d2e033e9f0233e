#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/spatial/pool.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <span>

#include "engine/dtype.h"
#include "engine/spatial/spatial.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"

namespace ocl {

namespace {

using c10::ScalarType;

const KernelFamily average{"spatial/average_pool.cl", "average_pool"};
const KernelFamily average_backward{"spatial/average_pool.cl", "average_pool_backward"};
const KernelFamily max{"spatial/max_pool.cl", "max_pool"};
const KernelFamily max_lines{"spatial/max_pool_lines.cl", "max_pool_lines"};
const KernelFamily max_adaptive{"spatial/max_pool_adaptive.cl", "max_pool_adaptive"};
const KernelFamily max_backward{"spatial/max_pool.cl", "max_pool_backward"};
const KernelFamily average_lines{"spatial/average_pool.cl", "average_pool_lines"};
const KernelFamily average_planes{"spatial/average_pool.cl", "average_pool_planes"};
const KernelFamily max_channels{"spatial/max_pool.cl", "max_pool_channels"};
const KernelFamily max_planes{"spatial/max_pool.cl", "max_pool_planes"};
const KernelFamily fractional{"spatial/max_pool.cl", "fractional_max_pool"};
const KernelFamily fractional_backward{"spatial/max_pool.cl", "fractional_max_pool_backward"};

/// The longest row of the input that average_pool_lines and max_pool_adaptive take;
/// average_pool_planes takes a row in such parts.
constexpr int kLine = 512;
/// Lanes of max_pool_lines, of lines long enough for many of them or not.
constexpr int kLeastLanes = 8, kMostLanes = 16;

/// The dtype values are compared or summed in: positions have to fit an integer of its size.
ScalarType accumulator(ScalarType dtype) {
  const ScalarType compute = compute_dtype(dtype);
  return c10::elementSize(compute) < 4 ? ScalarType::Int : compute;
}

spatial::Access access(const at::Tensor& out, const at::Tensor& in, const PoolWindow& window) {
  // Elements looked at for each one written.
  int64_t taps = 1;
  if (window.adaptive) {
    taps = in.numel() / std::max<int64_t>(out.numel(), 1);
  } else {
    for (const int32_t size : window.kernel) taps *= size;
  }
  return {.channel_lanes = static_cast<int>(64 / c10::elementSize(accumulator(out.scalar_type()))),
          .cost = static_cast<int>(std::clamp<int64_t>(taps, 1, 4096))};
}

void check_plane(const at::Tensor& in, int axes) {
  int64_t plane = 1;
  for (int axis = 1; axis <= axes; ++axis) plane *= in.size(-axis);
  TORCH_CHECK_NOT_IMPLEMENTED(plane < INT32_MAX, "ocl: max pooling of planes past 2^31 elements");
}

const char* index_tag(ScalarType acc) { return c10::elementSize(acc) == 8 ? "i64" : "i32"; }

/// Whether products of sizes pass 32 bits.
bool wide(const at::Tensor& a, const at::Tensor& b, const PoolWindow& window) {
  if (!window.adaptive) return false;
  for (int axis = 1; axis <= window.axes; ++axis) {
    if ((a.size(-axis) + 1) * (b.size(-axis) + 1) > INT32_MAX) return true;
  }
  return false;
}

spatial::PoolArguments arguments_of(const PoolWindow& window) {
  spatial::PoolArguments arguments{};
  for (int axis = 0; axis < 3; ++axis) {
    arguments.kernel_size[axis] = window.kernel[axis];
    arguments.stride[axis] = window.stride[axis];
    arguments.pad[axis] = window.pad[axis];
    arguments.dilation[axis] = window.dilation[axis];
  }
  arguments.divisor = window.divisor;
  arguments.count_pad = window.count_pad;
  arguments.axes = window.axes;
  return arguments;
}

spatial::PoolArguments with_plane(const PoolWindow& window, const spatial::Operand& in) {
  spatial::PoolArguments arguments = arguments_of(window);
  for (int axis = 0; axis < 3; ++axis) {
    arguments.size[axis] = static_cast<int32_t>(in.size[2 + axis]);
  }
  return arguments;
}

/// The gradient of any max pooling by planes; false where that is not the way.
bool max_by_plane(const at::Tensor& grad_in, const at::Tensor& grad_out, const at::Tensor& indices,
                  const PoolWindow& window) {
  if (!spatial::sums_by_plane(grad_in, window.axes)) return false;
  const ScalarType dtype = grad_in.scalar_type();
  const spatial::Operand to = spatial::operand(grad_in, window.axes);
  spatial::run(max_planes, {{"IN", tag(dtype)}, {"ACC", tag(dtype)}, {"INDEX", index_tag(dtype)}},
               {spatial::planes_of(to), spatial::operand(grad_out, window.axes),
                spatial::operand(indices, window.axes)},
               {.cost = spatial::kPlaneCost}, with_plane(window, to));
  return true;
}

/// The same where channels lie innermost in all tensors.
bool max_by_channels(const at::Tensor& grad_in, const at::Tensor& grad_out,
                     const at::Tensor& indices, const PoolWindow& window) {
  const ScalarType dtype = grad_in.scalar_type();
  const spatial::Operand to = spatial::operand(grad_in, window.axes);
  const spatial::Operand from = spatial::operand(grad_out, window.axes);
  const spatial::Operand chosen = spatial::operand(indices, window.axes);
  const int lanes = static_cast<int>(64 / c10::elementSize(dtype));
  if (!spatial::sums_by_channels(grad_in, window.axes, lanes) || from.stride[1] != 1 ||
      chosen.stride[1] != 1) {
    return false;
  }
  spatial::Operand planes = spatial::planes_of(to);
  planes.stride[4] = to.stride[4];
  spatial::run(max_channels, {{"IN", tag(dtype)}, {"ACC", tag(dtype)}, {"INDEX", index_tag(dtype)}},
               {planes, from, chosen}, {.channel_lanes = lanes, .cost = spatial::kPlaneCost},
               with_plane(window, to));
  return true;
}

/// Maxima of windows, next to each other along the width; false where that is not the way.
/// `indices` may be null.
bool max_by_line(const at::Tensor& out, const at::Tensor* indices, const at::Tensor& in,
                 const PoolWindow& window) {
  if (window.adaptive || !ocl::device(in.device().index()).is_cpu()) return false;
  std::array<spatial::Operand, 3> operands{spatial::operand(out, window.axes),
                                           spatial::operand(in, window.axes)};
  if (indices != nullptr) operands[2] = spatial::operand(*indices, window.axes);
  const size_t count = indices != nullptr ? 3 : 2;
  for (size_t k = 0; k < count; ++k) {
    if (operands[k].stride[4] != 1) return false;
  }
  const int64_t width = operands[0].size[4];
  if (width < kLeastLanes) return false;
  const ScalarType dtype = in.scalar_type(), acc = accumulator(dtype);
  const bool long_line = width >= 4 * kMostLanes && c10::elementSize(acc) == 4;
  spatial::Access how = access(out, in, window);
  how.along_width = true;
  how.cost = std::max(1, how.cost / kLeastLanes);
  const int32_t step = window.stride[2];
  const spatial::PoolArguments arguments = arguments_of(window);
  spatial::run(max_lines,
               {{"IN", tag(dtype)},
                {"ACC", tag(acc)},
                {"INDEX", index_tag(acc)},
                {"LINE", long_line ? kMostLanes : kLeastLanes},
                {"STEP", step <= 2 ? step : 0},
                {"POSITIONS", indices != nullptr}},
               std::span<const spatial::Operand>(operands.data(), count), how, &arguments,
               sizeof arguments);
  return true;
}

/// Adaptive pooling by the maxima of columns; false where that is not the way.
bool max_by_column(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& in,
                   const PoolWindow& window) {
  if (!window.adaptive || !ocl::device(in.device().index()).is_cpu()) return false;
  const spatial::Operand from = spatial::operand(in, window.axes);
  if (from.stride[4] != 1 || from.size[4] > kLine) return false;
  const ScalarType dtype = in.scalar_type(), acc = accumulator(dtype);
  spatial::Access how = access(out, in, window);
  how.along_width = true;
  how.cost = std::max(1, how.cost / kLeastLanes);
  spatial::run(max_adaptive,
               {{"IN", tag(dtype)},
                {"ACC", tag(acc)},
                {"INDEX", index_tag(acc)},
                {"ADAPTIVE", 1},
                {"WIDE", wide(out, in, window)},
                {"LANES", 64 / c10::elementSize(acc)},
                {"LINE", kLine}},
               {spatial::operand(out, window.axes), from, spatial::operand(indices, window.axes)},
               how, arguments_of(window));
  return true;
}

}  // namespace

void average_pool(const at::Tensor& out, const at::Tensor& in, const PoolWindow& window) {
  if (out.numel() == 0) return;
  const ScalarType dtype = in.scalar_type();
  const spatial::Operand to = spatial::operand(out, window.axes);
  const spatial::Operand from = spatial::operand(in, window.axes);
  spatial::Access how = access(out, in, window);
  how.along_width =
      from.stride[4] == 1 && from.size[4] <= kLine && ocl::device(in.device().index()).is_cpu();
  spatial::run(how.along_width ? average_lines : average,
               {{"IN", tag(dtype)},
                {"ACC", tag(accumulator(dtype))},
                {"ADAPTIVE", window.adaptive},
                {"WIDE", wide(out, in, window)},
                {"LINE", how.along_width ? kLine : 0}},
               {to, from}, how, arguments_of(window));
}

void average_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                           const PoolWindow& window) {
  if (grad_in.numel() == 0) return;
  const ScalarType dtype = grad_in.scalar_type();
  if (spatial::sums_by_plane(grad_in, window.axes)) {
    const spatial::Operand to = spatial::operand(grad_in, window.axes);
    spatial::run(average_planes,
                 {{"IN", tag(dtype)},
                  {"ACC", tag(dtype)},
                  {"ADAPTIVE", window.adaptive},
                  {"WIDE", wide(grad_in, grad_out, window)},
                  {"LINE", kLine}},
                 {spatial::planes_of(to), spatial::operand(grad_out, window.axes)},
                 {.cost = spatial::kPlaneCost}, with_plane(window, to));
    return;
  }
  spatial::run(average_backward,
               {{"IN", tag(dtype)},
                {"ACC", tag(accumulator(dtype))},
                {"ADAPTIVE", window.adaptive},
                {"WIDE", wide(grad_in, grad_out, window)}},
               {spatial::operand(grad_in, window.axes), spatial::operand(grad_out, window.axes)},
               access(grad_in, grad_out, window), arguments_of(window));
}

void max_pool(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& in,
              const PoolWindow& window) {
  if (out.numel() == 0) return;
  check_plane(in, window.axes);
  if (max_by_line(out, &indices, in, window)) return;
  if (max_by_column(out, indices, in, window)) return;
  const ScalarType dtype = in.scalar_type(), acc = accumulator(dtype);
  spatial::run(max,
               {{"IN", tag(dtype)},
                {"ACC", tag(acc)},
                {"INDEX", index_tag(acc)},
                {"ADAPTIVE", window.adaptive},
                {"WIDE", wide(out, in, window)}},
               {spatial::operand(out, window.axes), spatial::operand(in, window.axes),
                spatial::operand(indices, window.axes)},
               access(out, in, window), arguments_of(window));
}

bool max_pool_only(const at::Tensor& out, const at::Tensor& in, const PoolWindow& window) {
  check_plane(in, window.axes);
  return max_by_line(out, nullptr, in, window);
}

void max_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                       const at::Tensor& indices, const PoolWindow& window) {
  if (grad_in.numel() == 0) return;
  check_plane(grad_in, window.axes);
  if (max_by_plane(grad_in, grad_out, indices, window)) return;
  if (max_by_channels(grad_in, grad_out, indices, window)) return;
  const ScalarType dtype = grad_in.scalar_type(), acc = accumulator(dtype);
  spatial::run(max_backward,
               {{"IN", tag(dtype)},
                {"ACC", tag(acc)},
                {"INDEX", index_tag(acc)},
                {"ADAPTIVE", window.adaptive},
                {"WIDE", wide(grad_in, grad_out, window)}},
               {spatial::operand(grad_in, window.axes), spatial::operand(grad_out, window.axes),
                spatial::operand(indices, window.axes)},
               access(grad_in, grad_out, window), arguments_of(window));
}

void fractional_max_pool(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& in,
                         const at::Tensor& samples, const PoolWindow& window) {
  if (out.numel() == 0) return;
  check_plane(in, window.axes);
  const ScalarType dtype = in.scalar_type(), acc = accumulator(dtype);
  // (batch, channels, axes): one row per plane.
  const spatial::Operand random = spatial::operand(samples, 1);
  spatial::run(
      fractional,
      {{"IN", tag(dtype)}, {"ACC", tag(acc)}, {"INDEX", index_tag(acc)}, {"FRACTIONAL", 1}},
      {spatial::operand(out, window.axes), spatial::operand(in, window.axes),
       spatial::operand(indices, window.axes), random},
      {.cost = access(out, in, window).cost}, arguments_of(window));
}

void fractional_max_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                                  const at::Tensor& indices, const PoolWindow& window) {
  if (grad_in.numel() == 0) return;
  const ScalarType dtype = grad_in.scalar_type(), acc = accumulator(dtype);
  spatial::run(
      fractional_backward,
      {{"IN", tag(dtype)}, {"ACC", tag(acc)}, {"INDEX", index_tag(acc)}, {"FRACTIONAL", 1}},
      {spatial::operand(grad_in, window.axes), spatial::operand(grad_out, window.axes),
       spatial::operand(indices, window.axes)},
      {.cost = access(grad_in, grad_out, window).cost}, arguments_of(window));
}

}  // namespace ocl
