#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/spatial/resample.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <string>
#include <utility>

#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/lanes.h"
#include "engine/spatial/spatial.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::spatial {

namespace {

using c10::ScalarType;

const KernelFamily nearest_family{"spatial/nearest.cl", "nearest"};
const KernelFamily nearest_backward_family{"spatial/nearest.cl", "nearest_backward"};
const KernelFamily nearest_lines_family{"spatial/nearest.cl", "nearest_backward_lines"};
const KernelFamily interpolate_family{"spatial/resample.cl", "resample"};
const KernelFamily table_family{"spatial/resample_table.cl", "resample_table"};
const KernelFamily fixed_family{"spatial/resample_table.cl", "fixed_table"};
const KernelFamily axis_family{"spatial/resample_axis.cl", "resample_axis"};
const KernelFamily axis_backward_family{"spatial/resample_axis.cl", "resample_axis_backward"};

constexpr size_t kTableGroup = 64;
constexpr uint32_t kCpuSpan = 64;
/// Longest rows of nearest_backward_lines: of the output's gradient, and of the input's.
constexpr int kLine = 2048, kLineSpan = 1024;

/// Arguments whose scales are of a type, under the names they have in the kernels.
template <class SCALAR>
struct Scaled {
  using uint = uint32_t;
#include "spatial/resample_arguments.clh"
};

/// Inputs per output along an axis, rounded as ATen rounds it.
template <class T>
T scale_of(const ResampleScales& scales, int axis, int64_t size, int64_t outputs) {
  if (scales.align_corners) {
    return outputs > 1 ? static_cast<T>(size - 1) / static_cast<T>(outputs - 1) : T(0);
  }
  const std::optional<double>& given = scales.given[axis];
  if (given && *given > 0) return static_cast<T>(1.0 / *given);
  return static_cast<T>(size) / static_cast<T>(outputs);
}

template <class Arguments>
void set_scales(Arguments& arguments, const ResampleScales& scales, const Operand& in,
                const Operand& out) {
  using T = std::remove_reference_t<decltype(arguments.scale[0])>;
  for (int axis = 0; axis < 3; ++axis) {
    arguments.scale[axis] = axis < 3 - scales.axes
                                ? T(1)
                                : scale_of<T>(scales, axis, in.size[2 + axis], out.size[2 + axis]);
  }
}

int lanes(ScalarType acc) { return static_cast<int>(longest_lanes(acc)); }

template <class T>
void run_nearest(const at::Tensor& out, const at::Tensor& in, const ResampleScales& scales,
                 bool exact) {
  const Operand to = operand(out, scales.axes), from = operand(in, scales.axes);
  typename Scaled<T>::ResampleArguments arguments{};
  set_scales(arguments, scales, from, to);
  run(nearest_family,
      {{"E", bits_tag(in.itemsize())},
       {"POSITION", sizeof(T) == 8 ? "f64" : "f32"},
       {"EXACT", exact}},
      {to, from}, {.channel_lanes = 16}, arguments);
}

template <class T>
void run_interpolate(const at::Tensor& out, const at::Tensor& in, const ResampleScales& scales,
                     Filter filter) {
  const Operand to = operand(out, scales.axes), from = operand(in, scales.axes);
  typename Scaled<T>::ResampleArguments arguments{};
  set_scales(arguments, scales, from, to);
  arguments.align = scales.align_corners;
  const bool cpu = device(in.device().index()).is_cpu();
  const ScalarType acc = compute_dtype(in.scalar_type());
  const int taps = filter == Filter::cubic ? 4 : 2;
  run(interpolate_family,
      {{"IN", tag(in.scalar_type())},
       {"ACC", tag(acc)},
       {"AXES", scales.axes},
       {"TAPS", taps},
       {"SPAN", cpu ? kCpuSpan : 1}},
      {to, from}, {.channel_lanes = lanes(acc), .cost = 2 * taps, .longest_span = kCpuSpan},
      arguments);
}

/// A table of weights on the device, and what kernels need to know of it.
struct Table {
  at::Tensor memory;
  Operand operand;
  uint32_t taps;
};

template <class T>
Table make_table(const at::TensorOptions& options, const ResampleScales& scales, int axis,
                 int64_t size, int64_t outputs, Filter filter, bool antialias, bool fixed) {
  typename Scaled<T>::TableArguments arguments{};
  arguments.scale = scale_of<T>(scales, axis, size, outputs);
  const T reach = filter == Filter::linear ? T(1) : filter == Filter::cubic ? T(2) : T(3);
  arguments.support = arguments.scale >= 1 ? reach * arguments.scale : reach;
  arguments.taps = antialias ? static_cast<uint32_t>(std::ceil(arguments.support)) * 2 + 1
                             : static_cast<uint32_t>(2 * reach);
  arguments.size = static_cast<uint32_t>(size);
  arguments.outputs = static_cast<uint32_t>(outputs);
  arguments.align = scales.align_corners;

  Table table;
  table.taps = arguments.taps;
  const int64_t bytes =
      outputs * (int64_t{arguments.taps} * static_cast<int64_t>(sizeof(T)) + 8) + 8;
  table.memory = at::empty({bytes}, options.dtype(at::kByte).memory_format(std::nullopt));
  table.operand.data = static_cast<char*>(table.memory.data_ptr());
  table.operand.element_size = 1;
  table.operand.stride[1] = 1;  // never stepped along, so lanes may be

  Queue& queue = current_queue(table.memory.device().index());
  const std::initializer_list<Define> defines = {{"ACC", sizeof(T) == 8 ? "f64" : "f32"},
                                                 {"FILTER", static_cast<int>(filter)},
                                                 {"ANTIALIAS", antialias},
                                                 {"GROUP", kTableGroup}};
  launch(table_family.get(queue.device(), defines), queue,
         NDRange::linear(static_cast<size_t>(outputs), kTableGroup), Pointer{table.operand.data},
         arguments);
  if (fixed) {
    launch(fixed_family.get(queue.device(), defines), queue,
           NDRange::linear(kTableGroup, kTableGroup), Pointer{table.operand.data}, arguments);
  }
  return table;
}

/// Seen with the width as channels, where width is not what is resampled: its elements are
/// adjacent, so that they can be lanes.
bool turn_width_into_channels(Operand& operand) {
  if (operand.stride[4] != 1) return false;
  if (operand.size[0] > 1 && operand.stride[0] != operand.size[1] * operand.stride[1]) return false;
  operand.size[0] *= operand.size[1];
  operand.stride[0] = operand.stride[1];
  operand.size[1] = std::exchange(operand.size[4], 1);
  operand.stride[1] = std::exchange(operand.stride[4], 0);
  return true;
}

void run_axis(const KernelFamily& family, const at::Tensor& to, const at::Tensor& from,
              const Table& table, ScalarType acc, int axes, int axis, bool fixed) {
  Operand out = operand(to, axes), in = operand(from, axes);
  if (axis < 2) {
    Operand transposed_out = out, transposed_in = in;
    if (turn_width_into_channels(transposed_out) && turn_width_into_channels(transposed_in)) {
      out = transposed_out;
      in = transposed_in;
    }
  }
  run(family,
      {{"FROM", tag(from.scalar_type())},
       {"TO", tag(to.scalar_type())},
       {"ACC", tag(acc)},
       {"AXIS", axis},
       {"FIXED", fixed}},
      {out, in, table.operand}, {.channel_lanes = lanes(acc), .cost = static_cast<int>(table.taps)},
      table.taps);
}

/// Axis by axis from `from` to `to`, the last axis first; an axis of unchanged size and scale is
/// skipped.
template <class T>
void run_separable(const at::Tensor& to, const at::Tensor& from, const ResampleScales& scales,
                   Filter filter, bool antialias, bool backward) {
  const bool fixed = from.scalar_type() == at::kByte;
  const ScalarType acc = sizeof(T) == 8 ? ScalarType::Double : ScalarType::Float;
  const at::MemoryFormat format = to.suggest_memory_format();
  at::Tensor current = from;
  std::array<int, 3> passes{};
  int count = 0;
  for (int axis = 2; axis >= 3 - scales.axes; --axis) {
    const int64_t a = from.size(axis - 3), b = to.size(axis - 3);
    const T scale = backward ? scale_of<T>(scales, axis, b, a) : scale_of<T>(scales, axis, a, b);
    // As CPU torch: linear interpolation to an equal size copies, whatever the scale.
    const bool copies =
        a == b && (scale == 1 || (backward && filter == Filter::linear && !antialias));
    if (!copies) passes[count++] = axis;
  }
  if (count == 0) {
    to.copy_(from);
    return;
  }
  for (int k = 0; k < count; ++k) {
    const int axis = passes[k];
    const int64_t a = from.size(axis - 3), b = to.size(axis - 3);
    const Table table = make_table<T>(from.options(), scales, axis, backward ? b : a,
                                      backward ? a : b, filter, antialias, fixed);
    at::Tensor next = to;
    if (k + 1 < count) {
      c10::DimVector sizes(current.sizes().begin(), current.sizes().end());
      sizes[sizes.size() + axis - 3] = b;
      next = at::empty(sizes, from.options().dtype(fixed ? at::kByte : acc).memory_format(format));
    }
    run_axis(backward ? axis_backward_family : axis_family, next, current, table, acc, scales.axes,
             axis, fixed);
    current = next;
  }
}

bool in_double(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kDouble) return true;
  return tensor.scalar_type() == at::kByte && device(tensor.device().index()).properties().has_fp64;
}

/// The gradient of nearest().
struct GradientPlan {
  const at::Tensor& grad_in;
  const at::Tensor& grad_out;
  Operand to, from;
  const ResampleScales& scales;
  bool exact;
};

void run_gradient(const GradientPlan& plan, bool lines) {
  Scaled<float>::ResampleArguments arguments{};
  set_scales(arguments, plan.scales, plan.to, plan.from);
  const ScalarType dtype = plan.grad_in.scalar_type(), acc = compute_dtype(dtype);
  if (lines) {
    run(nearest_lines_family,
        {{"IN", tag(dtype)},
         {"ACC", tag(acc)},
         {"EXACT", plan.exact},
         {"LINE", kLine},
         {"SPAN", kLineSpan}},
        {plan.to, plan.from}, {.cost = 4, .longest_span = kLineSpan, .along_width = true},
        arguments);
    return;
  }
  run(nearest_backward_family, {{"IN", tag(dtype)}, {"ACC", tag(acc)}, {"EXACT", plan.exact}},
      {plan.to, plan.from}, {.channel_lanes = lanes(acc), .cost = 4}, arguments);
}

constexpr Implementation<GradientPlan> gradient_by_lines{
    "lines",
    [](const GradientPlan& plan) -> const char* {
      if (!device(plan.grad_in.device().index()).is_cpu()) return "a kernel for CPUs";
      if (plan.to.stride[4] != 1 || plan.from.stride[4] != 1) return "rows that are not contiguous";
      return plan.from.size[4] > kLine || plan.to.size[4] > kLineSpan ? "long rows" : nullptr;
    },
    [](GradientPlan& plan) { run_gradient(plan, true); }};
constexpr Implementation<GradientPlan> gradient_by_elements{
    "elements", [](const GradientPlan&) -> const char* { return nullptr; },
    [](GradientPlan& plan) { run_gradient(plan, false); }};
constexpr const Implementation<GradientPlan>* kGradients[] = {&gradient_by_lines,
                                                              &gradient_by_elements};

const Engine engine{"backward_nearest", kGradients};

std::string describe(const GradientPlan& plan) {
  std::string line = "backward_nearest ";
  for (int64_t d = 0; d < plan.grad_out.dim(); ++d) {
    line += (d > 0 ? "x" : "") + std::to_string(plan.grad_out.size(d));
  }
  return line + " " + tag(plan.grad_out.scalar_type());
}

}  // namespace

void nearest(const at::Tensor& out, const at::Tensor& in, const ResampleScales& scales,
             bool exact) {
  if (out.numel() == 0) return;
  if (in.scalar_type() == at::kDouble) {
    run_nearest<double>(out, in, scales, exact);
  } else {
    run_nearest<float>(out, in, scales, exact);
  }
}

void nearest_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                      const ResampleScales& scales, bool exact) {
  if (grad_in.numel() == 0) return;
  GradientPlan plan{
      grad_in, grad_out, operand(grad_in, scales.axes), operand(grad_out, scales.axes),
      scales,  exact};
  run_first(engine, kGradients, plan, describe);
}

void interpolate(const at::Tensor& out, const at::Tensor& in, const ResampleScales& scales,
                 Filter filter) {
  if (out.numel() == 0) return;
  if (in.scalar_type() == at::kDouble) {
    run_interpolate<double>(out, in, scales, filter);
  } else {
    run_interpolate<float>(out, in, scales, filter);
  }
}

void resample_separable(const at::Tensor& out, const at::Tensor& in, const ResampleScales& scales,
                        Filter filter, bool antialias) {
  if (out.numel() == 0) return;
  if (in_double(in)) {
    run_separable<double>(out, in, scales, filter, antialias, false);
  } else {
    run_separable<float>(out, in, scales, filter, antialias, false);
  }
}

void resample_backward(const at::Tensor& grad_in, const at::Tensor& grad_out,
                       const ResampleScales& scales, Filter filter, bool antialias) {
  if (grad_in.numel() == 0) return;
  if (in_double(grad_in)) {
    run_separable<double>(grad_in, grad_out, scales, filter, antialias, true);
  } else {
    run_separable<float>(grad_in, grad_out, scales, filter, antialias, true);
  }
}

}  // namespace ocl::spatial
