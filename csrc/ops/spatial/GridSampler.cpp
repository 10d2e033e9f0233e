#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/spatial/spatial.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/DtypeChecks.h"
#include "ops/grid_sampler_2d.h"
#include "ops/grid_sampler_2d_backward.h"
#include "ops/grid_sampler_3d.h"
#include "ops/grid_sampler_3d_backward.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using spatial::Operand;

const KernelFamily sample_family{"spatial/grid_sample.cl", "grid_sample"};
const KernelFamily grid_family{"spatial/grid_sample.cl", "grid_sample_grid"};
const KernelFamily planes_family{"spatial/grid_sample.cl", "grid_sample_planes"};
const KernelFamily scatter_family{"spatial/grid_sample.cl", "grid_sample_scatter"};

using spatial::GridArguments;

struct Sampling {
  int axes;
  int64_t mode, padding;
  bool align;
};

/// (batch, spatial..., axes) as an operand of one channel; the last dimension is stepped along by
/// the kernel.
Operand grid_operand(const at::Tensor& grid, int axes) {
  return spatial::operand(grid.select(-1, 0).unsqueeze(1), axes);
}

/// The tensor's operand with its channels left out: kernels loop over them.
Operand without_channels(const at::Tensor& tensor, int axes) {
  Operand result = spatial::operand(tensor, axes);
  result.size[1] = 1;
  return result;
}

GridArguments arguments_of(const at::Tensor& input, const at::Tensor& grid, int axes) {
  GridArguments arguments{};
  arguments.channels = static_cast<uint32_t>(input.size(1));
  arguments.coordinate_stride = static_cast<uint32_t>(grid.stride(-1));
  for (int axis = 0; axis < 3; ++axis) {
    arguments.locations[axis] =
        axis < 3 - axes ? 1 : static_cast<uint32_t>(grid.size(1 + axis - (3 - axes)));
  }
  return arguments;
}

void check(const char* name, const at::Tensor& input, const at::Tensor& grid,
           const Sampling& sampling) {
  at::native::check_grid_sampler_common(input, grid);
  if (sampling.axes == 2) {
    at::native::check_grid_sampler_2d(input, grid);
  } else {
    at::native::check_grid_sampler_3d(input, grid, sampling.mode);
  }
  TORCH_CHECK(
      sampling.mode >= 0 && sampling.mode <= 2 && sampling.padding >= 0 && sampling.padding <= 2,
      name, ": unknown interpolation mode ", sampling.mode, " or padding mode ", sampling.padding);
  check_floating(name, input);
  check_same_dtype(grid, input.scalar_type());
}

template <class... More>
void run(const KernelFamily& family, const at::Tensor& input, const Sampling& sampling,
         std::initializer_list<Operand> operands, int64_t cost, const GridArguments& arguments,
         More... more) {
  const at::ScalarType dtype = input.scalar_type();
  spatial::run(family,
               {{"IN", tag(dtype)},
                {"ACC", tag(compute_dtype(dtype))},
                {"AXES", sampling.axes},
                {"MODE", sampling.mode},
                {"PADDING", sampling.padding},
                {"ALIGN", sampling.align},
                more...},
               operands, {.cost = static_cast<int>(std::min<int64_t>(cost, 4096))}, arguments);
}

at::Tensor sample(const char* name, const at::Tensor& input, const at::Tensor& grid,
                  const Sampling& sampling) {
  check(name, input, grid, sampling);
  c10::DimVector sizes(grid.sizes().begin(), grid.sizes().end() - 1);
  sizes.insert(sizes.begin() + 1, input.size(1));
  const at::Tensor out = at::empty(sizes, input.options());
  if (out.numel() == 0) return out;
  GridArguments arguments = arguments_of(input, grid, sampling.axes);
  Operand to = spatial::operand(out, sampling.axes), from = spatial::operand(input, sampling.axes);
  Operand numbers = grid_operand(grid, sampling.axes);
  numbers.stride[1] = 0;
  arguments.channel_stride[0] = static_cast<uint32_t>(to.stride[1]);
  arguments.channel_stride[1] = static_cast<uint32_t>(from.stride[1]);
  // A location's taps are found once for all channels; a GPU needs more work-items.
  const Device& device = ocl::device(input.device().index());
  const int64_t several = device_row(device).sampled_channels;
  const bool few = !device.is_cpu() && to.size[1] % several == 0;
  const int64_t channels = few ? several : to.size[1];
  arguments.channels = static_cast<uint32_t>(channels);
  for (Operand* each : {&to, &from}) {
    each->size[1] /= channels;
    each->stride[1] *= channels;
  }
  run(sample_family, input, sampling, {to, from, numbers}, 8 * channels, arguments);
  return out;
}

/// The gradient of the input, summed in the dtype computed with.
struct InputGradient {
  const at::Tensor &grad_output, &input, &grid;
  const Sampling& sampling;
  at::Tensor sums;
};

constexpr Implementation<InputGradient> by_scatter{
    "scatter",
    [](const InputGradient& plan) -> const char* {
      const Device& device = ocl::device(plan.input.device().index());
      if (device.is_cpu()) return "a kernel for GPUs";
      if (plan.sums.scalar_type() != at::kFloat && !device.properties().has_int64_atomics) {
        return "no atomics on 64 bits";
      }
      return at::globalContext().deterministicAlgorithms() ? "sums in any order" : nullptr;
    },
    [](InputGradient& plan) {
      const int axes = plan.sampling.axes;
      run(scatter_family, plan.input, plan.sampling,
          {without_channels(plan.grad_output, axes), spatial::operand(plan.sums, axes),
           grid_operand(plan.grid, axes)},
          1, arguments_of(plan.input, plan.grid, axes), Define("GRADIENT", 1),
          Define("SCATTER", 1));
    }};
/// A work-item for each channel adds in order.
constexpr Implementation<InputGradient> by_planes{
    "planes", [](const InputGradient&) -> const char* { return nullptr; },
    [](InputGradient& plan) {
      const int axes = plan.sampling.axes;
      const Operand from = spatial::operand(plan.grad_output, axes);
      run(planes_family, plan.input, plan.sampling,
          {spatial::planes_of(from), spatial::operand(plan.sums, axes),
           grid_operand(plan.grid, axes), from},
          spatial::kPlaneCost, arguments_of(plan.input, plan.grid, axes), Define("GRADIENT", 1));
    }};
constexpr const Implementation<InputGradient>* kGradients[] = {&by_scatter, &by_planes};
const Engine engine{"backward_grid_sample", kGradients};

std::string describe(const InputGradient& plan) {
  std::string line = "backward_grid_sample";
  for (int64_t d = 0; d < plan.input.dim(); ++d) {
    line += (d == 0 ? " " : "x") + std::to_string(plan.input.size(d));
  }
  return line + " " + tag(plan.input.scalar_type());
}

at::Tensor input_gradient(const at::Tensor& grad_output, const at::Tensor& input,
                          const at::Tensor& grid, const Sampling& sampling) {
  const at::ScalarType acc = compute_dtype(input.scalar_type());
  InputGradient plan{grad_output, input, grid, sampling,
                     at::zeros(input.sizes(), input.options().dtype(acc))};
  if (grad_output.numel() != 0 && input.numel() != 0) {
    run_first(engine, kGradients, plan, describe);
  }
  return plan.sums.to(input.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> sample_backward(const char* name, const at::Tensor& grad_output,
                                                   const at::Tensor& input, const at::Tensor& grid,
                                                   const Sampling& sampling,
                                                   std::array<bool, 2> mask) {
  check(name, input, grid, sampling);
  check_same_dtype(grad_output, input.scalar_type());
  at::Tensor grad_input, grad_grid;
  if (mask[0]) grad_input = input_gradient(grad_output, input, grid, sampling);
  if (mask[1]) {
    grad_grid = at::empty(grid.sizes(), grid.options());
    if (input.numel() == 0) {
      grad_grid.zero_();
    } else if (grid.numel() != 0) {
      GridArguments arguments = arguments_of(input, grid, sampling.axes);
      arguments.gradient_stride = static_cast<uint32_t>(grad_grid.stride(-1));
      run(grid_family, input, sampling,
          {without_channels(grad_output, sampling.axes), spatial::operand(input, sampling.axes),
           grid_operand(grid, sampling.axes), grid_operand(grad_grid, sampling.axes)},
          16 * input.size(1), arguments, Define("GRADIENT", 1));
    }
  }
  return {grad_input, grad_grid};
}

}  // namespace

at::Tensor grid_sampler_2d(const at::Tensor& input, const at::Tensor& grid,
                           int64_t interpolation_mode, int64_t padding_mode, bool align_corners) {
  return sample("grid_sampler_2d_cpu_kernel_impl", input, grid,
                {2, interpolation_mode, padding_mode, align_corners});
}

std::tuple<at::Tensor, at::Tensor> grid_sampler_2d_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& grid,
    int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
    std::array<bool, 2> output_mask) {
  return sample_backward("grid_sampler_2d_backward_cpu_kernel_impl", grad_output, input, grid,
                         {2, interpolation_mode, padding_mode, align_corners}, output_mask);
}

at::Tensor grid_sampler_3d(const at::Tensor& input, const at::Tensor& grid,
                           int64_t interpolation_mode, int64_t padding_mode, bool align_corners) {
  return sample("grid_sampler3d_cpu", input, grid,
                {3, interpolation_mode, padding_mode, align_corners});
}

std::tuple<at::Tensor, at::Tensor> grid_sampler_3d_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& grid,
    int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
    std::array<bool, 2> output_mask) {
  return sample_backward("grid_sampler_3d_backward_cpu", grad_output, input, grid,
                         {3, interpolation_mode, padding_mode, align_corners}, output_mask);
}

}  // namespace ocl::native
