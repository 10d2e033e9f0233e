#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/spatial/pool.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/lanes.h"
#include "engine/spatial/spatial.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"

namespace ocl::spatial {

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

Access access(const at::Tensor& out, const at::Tensor& in, const PoolWindow& window) {
  // Elements looked at for each one written.
  int64_t taps = 1;
  if (window.adaptive) {
    taps = in.numel() / std::max<int64_t>(out.numel(), 1);
  } else {
    for (const int32_t size : window.kernel) taps *= size;
  }
  return {.channel_lanes = static_cast<int>(longest_lanes(accumulator(out.scalar_type()))),
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

PoolArguments arguments_of(const PoolWindow& window) {
  PoolArguments arguments{};
  for (int axis = 0; axis < 3; ++axis) {
    arguments.kernel_size[axis] = window.kernel[axis];
    arguments.stride[axis] = window.stride[axis];
    arguments.pad[axis] = window.pad[axis];
    arguments.dilation[axis] = window.dilation[axis];
  }
  arguments.divisor = window.divisor;
  arguments.count_pad = window.count_pad;
  arguments.axes = window.axes;
  // CPU torch passes over positions of -1 in windows of a fixed size.
  arguments.least = window.adaptive ? 0 : -1;
  return arguments;
}

PoolArguments with_plane(const PoolWindow& window, const Operand& in) {
  PoolArguments arguments = arguments_of(window);
  for (int axis = 0; axis < 3; ++axis) {
    arguments.size[axis] = static_cast<int32_t>(in.size[2 + axis]);
  }
  return arguments;
}

/// A pooling on its way to a kernel: from `in` to `out`, which for gradients are those of the
/// output and of the input.
struct Plan {
  const Engine& engine;
  const at::Tensor& out;
  const at::Tensor& in;
  const at::Tensor* indices;  // null: an average, or maxima without positions
  const PoolWindow& window;
  const AssertSite* checks = nullptr;  // of a gradient's positions

  Operand to() const { return operand(out, window.axes); }
  Operand from() const { return operand(in, window.axes); }
  bool on_cpu() const { return ocl::device(in.device().index()).is_cpu(); }
};

using Pooling = Implementation<Plan>;

const char* accept(const Plan&) { return nullptr; }

constexpr char kForCpus[] = "a kernel for CPUs";

constexpr char kNoPlanes[] = "no CPU, few planes, or a dtype that sums can't be kept in";

void run_average(Plan& plan, bool lines) {
  const ScalarType dtype = plan.in.scalar_type();
  Access how = access(plan.out, plan.in, plan.window);
  how.along_width = lines;
  run(lines ? average_lines : average,
      {{"IN", tag(dtype)},
       {"ACC", tag(accumulator(dtype))},
       {"ADAPTIVE", plan.window.adaptive},
       {"WIDE", wide(plan.out, plan.in, plan.window)},
       {"LINE", lines ? kLine : 0}},
      {plan.to(), plan.from()}, how, arguments_of(plan.window));
}

/// Max pooling of any windows: an element at a time. `only`: the kernel's number in its file, whose
/// others aren't built.
void run_max(const KernelFamily& family, Plan& plan, int only) {
  const ScalarType dtype = plan.out.scalar_type(), acc = accumulator(dtype);
  Access how = access(plan.out, plan.in, plan.window);
  how.checks = plan.checks;
  run(family,
      {{"IN", tag(dtype)},
       {"ACC", tag(acc)},
       {"INDEX", index_tag(acc)},
       {"ADAPTIVE", plan.window.adaptive},
       {"WIDE", wide(plan.out, plan.in, plan.window)},
       {"ONLY", only}},
      {plan.to(), plan.from(), operand(*plan.indices, plan.window.axes)}, how,
      arguments_of(plan.window));
}

// Average pooling.

constexpr Pooling average_by_lines{"lines",
                                   [](const Plan& plan) -> const char* {
                                     if (!plan.on_cpu()) return kForCpus;
                                     const Operand from = plan.from();
                                     if (from.stride[4] != 1) return "rows that are not contiguous";
                                     return from.size[4] > kLine ? "long rows" : nullptr;
                                   },
                                   [](Plan& plan) { run_average(plan, true); }};
constexpr Pooling average_by_windows{"windows", accept,
                                     [](Plan& plan) { run_average(plan, false); }};
constexpr const Pooling* kAverage[] = {&average_by_lines, &average_by_windows};

constexpr Pooling average_gradient_by_planes{
    "planes",
    [](const Plan& plan) {
      return sums_by_plane(plan.out, plan.window.axes) ? nullptr : kNoPlanes;
    },
    [](Plan& plan) {
      const ScalarType dtype = plan.out.scalar_type();
      const Operand to = plan.to();
      run(average_planes,
          {{"IN", tag(dtype)},
           {"ACC", tag(dtype)},
           {"ADAPTIVE", plan.window.adaptive},
           {"WIDE", wide(plan.out, plan.in, plan.window)},
           {"LINE", kLine}},
          {planes_of(to), plan.from()}, {.cost = kPlaneCost}, with_plane(plan.window, to));
    }};
constexpr Pooling average_gradient_by_windows{
    "windows", accept, [](Plan& plan) {
      const ScalarType dtype = plan.out.scalar_type();
      run(average_backward,
          {{"IN", tag(dtype)},
           {"ACC", tag(accumulator(dtype))},
           {"ADAPTIVE", plan.window.adaptive},
           {"WIDE", wide(plan.out, plan.in, plan.window)}},
          {plan.to(), plan.from()}, access(plan.out, plan.in, plan.window),
          arguments_of(plan.window));
    }};
constexpr const Pooling* kAverageGradient[] = {&average_gradient_by_planes,
                                               &average_gradient_by_windows};

// Max pooling.

/// Maxima of windows, next to each other along the width.
constexpr Pooling max_by_lines{
    "lines",
    [](const Plan& plan) -> const char* {
      if (plan.window.adaptive) return "adaptive windows";
      if (!plan.on_cpu()) return kForCpus;
      const Operand to = plan.to();
      if (to.stride[4] != 1 || plan.from().stride[4] != 1 ||
          (plan.indices && operand(*plan.indices, plan.window.axes).stride[4] != 1)) {
        return "rows that are not contiguous";
      }
      return to.size[4] < kLeastLanes ? "short rows" : nullptr;
    },
    [](Plan& plan) {
      std::array<Operand, 3> operands{plan.to(), plan.from()};
      if (plan.indices) operands[2] = operand(*plan.indices, plan.window.axes);
      const ScalarType dtype = plan.in.scalar_type(), acc = accumulator(dtype);
      const bool long_line = operands[0].size[4] >= 4 * kMostLanes && c10::elementSize(acc) == 4;
      Access how = access(plan.out, plan.in, plan.window);
      how.along_width = true;
      how.cost = std::max(1, how.cost / kLeastLanes);
      const int32_t step = plan.window.stride[2];
      const PoolArguments arguments = arguments_of(plan.window);
      run(max_lines,
          {{"IN", tag(dtype)},
           {"ACC", tag(acc)},
           {"INDEX", index_tag(acc)},
           {"LINE", long_line ? kMostLanes : kLeastLanes},
           {"STEP", step <= 2 ? step : 0},
           {"POSITIONS", plan.indices != nullptr}},
          std::span<const Operand>(operands.data(), plan.indices ? 3 : 2), how, &arguments,
          sizeof arguments);
    }};
/// Adaptive pooling by the maxima of columns.
constexpr Pooling max_by_columns{
    "columns",
    [](const Plan& plan) -> const char* {
      if (!plan.window.adaptive) return "windows of a fixed size";
      if (!plan.on_cpu()) return kForCpus;
      const Operand from = plan.from();
      if (from.stride[4] != 1) return "rows that are not contiguous";
      return from.size[4] > kLine ? "long rows" : nullptr;
    },
    [](Plan& plan) {
      const ScalarType dtype = plan.in.scalar_type(), acc = accumulator(dtype);
      Access how = access(plan.out, plan.in, plan.window);
      how.along_width = true;
      how.cost = std::max(1, how.cost / kLeastLanes);
      run(max_adaptive,
          {{"IN", tag(dtype)},
           {"ACC", tag(acc)},
           {"INDEX", index_tag(acc)},
           {"ADAPTIVE", 1},
           {"WIDE", wide(plan.out, plan.in, plan.window)},
           {"LANES", longest_lanes(acc)},
           {"LINE", kLine}},
          {plan.to(), plan.from(), operand(*plan.indices, plan.window.axes)}, how,
          arguments_of(plan.window));
    }};
constexpr Pooling max_by_windows{"windows", accept, [](Plan& plan) { run_max(max, plan, 1); }};
constexpr const Pooling* kMax[] = {&max_by_lines, &max_by_columns, &max_by_windows};

constexpr Pooling max_gradient_by_planes{
    "planes",
    [](const Plan& plan) {
      return sums_by_plane(plan.out, plan.window.axes) ? nullptr : kNoPlanes;
    },
    [](Plan& plan) {
      const ScalarType dtype = plan.out.scalar_type();
      const Operand to = plan.to();
      run(max_planes,
          {{"IN", tag(dtype)}, {"ACC", tag(dtype)}, {"INDEX", index_tag(dtype)}, {"ONLY", 3}},
          {planes_of(to), plan.from(), operand(*plan.indices, plan.window.axes)},
          {.cost = kPlaneCost, .checks = plan.checks}, with_plane(plan.window, to));
    }};
/// The gradient where channels lie innermost in all tensors.
constexpr Pooling max_gradient_by_channels{
    "channels",
    [](const Plan& plan) -> const char* {
      const int lanes = static_cast<int>(longest_lanes(plan.out.scalar_type()));
      if (!sums_by_channels(plan.out, plan.window.axes, lanes)) {
        return "no CPU, channels that are not innermost, or few of them";
      }
      const bool apart =
          plan.from().stride[1] != 1 || operand(*plan.indices, plan.window.axes).stride[1] != 1;
      return apart ? "channels that are not innermost in all operands" : nullptr;
    },
    [](Plan& plan) {
      const ScalarType dtype = plan.out.scalar_type();
      const Operand to = plan.to();
      Operand planes = planes_of(to);
      planes.stride[4] = to.stride[4];
      run(max_channels,
          {{"IN", tag(dtype)}, {"ACC", tag(dtype)}, {"INDEX", index_tag(dtype)}, {"ONLY", 4}},
          {planes, plan.from(), operand(*plan.indices, plan.window.axes)},
          {.channel_lanes = static_cast<int>(longest_lanes(dtype)),
           .cost = kPlaneCost,
           .checks = plan.checks},
          with_plane(plan.window, to));
    }};
constexpr Pooling max_gradient_by_windows{"windows", accept,
                                          [](Plan& plan) { run_max(max_backward, plan, 2); }};
constexpr const Pooling* kMaxGradient[] = {&max_gradient_by_planes, &max_gradient_by_channels,
                                           &max_gradient_by_windows};

const Engine max_engine{"max_pool", kMax}, average_engine{"average_pool", kAverage};
const Engine max_gradient_engine{"backward_max_pool", kMaxGradient};
const Engine average_gradient_engine{"backward_average_pool", kAverageGradient};

const AssertSite max_gradient_site{"max_pool_backward"};
const AssertSite fractional_gradient_site{"fractional_max_pool_backward"};

std::string describe(const Plan& plan) {
  std::string line = std::string(plan.engine.name()) + " ";
  for (int64_t d = 0; d < plan.in.dim(); ++d) {
    line += (d > 0 ? "x" : "") + std::to_string(plan.in.size(d));
  }
  return line + " " + tag(plan.in.scalar_type());
}

}  // namespace

void average_pool(const at::Tensor& out, const at::Tensor& in, const PoolWindow& window) {
  if (out.numel() == 0) return;
  Plan plan{average_engine, out, in, nullptr, window};
  run_first(average_engine, kAverage, plan, describe);
}

void average_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                           const PoolWindow& window) {
  if (grad_in.numel() == 0) return;
  Plan plan{average_gradient_engine, grad_in, grad_out, nullptr, window};
  run_first(average_gradient_engine, kAverageGradient, plan, describe);
}

void max_pool(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& in,
              const PoolWindow& window) {
  if (out.numel() == 0) return;
  check_plane(in, window.axes);
  Plan plan{max_engine, out, in, &indices, window};
  run_first(max_engine, kMax, plan, describe);
}

bool max_pool_only(const at::Tensor& out, const at::Tensor& in, const PoolWindow& window) {
  check_plane(in, window.axes);
  Plan plan{max_engine, out, in, nullptr, window};
  if (!accepts(max_engine, max_by_lines, plan, describe)) return false;
  max_by_lines.run(plan);
  return true;
}

void max_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                       const at::Tensor& indices, const PoolWindow& window) {
  if (grad_in.numel() == 0) return;
  check_plane(grad_in, window.axes);
  Plan plan{max_gradient_engine, grad_in, grad_out, &indices, window, &max_gradient_site};
  run_first(max_gradient_engine, kMaxGradient, plan, describe);
}

void fractional_max_pool(const at::Tensor& out, const at::Tensor& indices, const at::Tensor& in,
                         const at::Tensor& samples, const PoolWindow& window) {
  if (out.numel() == 0) return;
  check_plane(in, window.axes);
  const ScalarType dtype = in.scalar_type(), acc = accumulator(dtype);
  // (batch, channels, axes): one row per plane.
  const Operand random = operand(samples, 1);
  run(fractional,
      {{"IN", tag(dtype)}, {"ACC", tag(acc)}, {"INDEX", index_tag(acc)}, {"FRACTIONAL", 1}},
      {operand(out, window.axes), operand(in, window.axes), operand(indices, window.axes), random},
      {.cost = access(out, in, window).cost}, arguments_of(window));
}

void fractional_max_pool_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                                  const at::Tensor& indices, const PoolWindow& window) {
  if (grad_in.numel() == 0) return;
  check_plane(grad_in, window.axes);
  const ScalarType dtype = grad_in.scalar_type(), acc = accumulator(dtype);
  PoolArguments arguments = arguments_of(window);
  arguments.least = 0;
  run(fractional_backward,
      {{"IN", tag(dtype)}, {"ACC", tag(acc)}, {"INDEX", index_tag(acc)}, {"FRACTIONAL", 1}},
      {operand(grad_in, window.axes), operand(grad_out, window.axes),
       operand(indices, window.axes)},
      {.cost = access(grad_in, grad_out, window).cost, .checks = &fractional_gradient_site},
      arguments);
}

}  // namespace ocl::spatial
