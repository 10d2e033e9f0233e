// Gradients of inputs with a stride and few channels, on GPUs: one convolution for all phases.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>

#include <vector>

#include "engine/conv/description.h"
#include "opencl/ceil_div.h"

namespace ocl::conv {

namespace {

const char* refuse(const Description& description) {
  const Window& window = description.window;
  if (!description.transposed()) return "it serves gradients of inputs alone";
  if (description.device.is_cpu()) return "on CPUs a sum per phase does better";
  if (window.groups != 1) return "there are groups";
  int64_t phases = 1;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    const int64_t stride = window.stride[axis], pad = window.pad[axis];
    if (window.dilation[axis] != 1) return "there is a dilation";
    if (description.in.size[2 + axis] % stride != 0) return "the stride doesn't divide the size";
    const int64_t reach = ceil_div(pad, stride), before = reach * stride - pad;
    if (ceil_div(window.kernel[axis] + before, stride) - 1 < reach)
      return "padding exceeds windows";
    phases *= stride;
  }
  if (phases == 1) return "there is no stride";
  return phases * description.weight.size[1] > kFewColumns ? "channels are many" : nullptr;
}

/// Few channels of `in` and a stride: sums that differ in their place between the strides are
/// computed as so many channels of one convolution, with the window's elements that each of them
/// takes, and then take their places. One by one they would share no loads.
void run(Description& description) {
  const at::Tensor &in = description.in.tensor, &weight = description.weight.tensor;
  const Window& window = description.window;
  const int64_t axes = weight.dim() - 2, channels = weight.size(1);
  int64_t phases = 1;
  Window shared;  // of the convolution with all phases
  // Along an axis the element u * stride + phase of the window with `padding` zeros in front of it
  // and after it meets the result's coordinate i + reach - u, for the input's i * stride + phase.
  std::vector<int64_t> padding;
  at::DimVector split{weight.size(0), channels}, order, place_order{0};
  at::DimVector grid{in.size(0)}, sizes;
  for (int64_t i = 0; i < axes; ++i) {
    const auto at = static_cast<size_t>(i + 3 - axes);
    const int64_t stride = window.stride[at], pad = window.pad[at], size = in.size(2 + i);
    const int64_t reach = ceil_div(pad, stride), before = reach * stride - pad;
    const int64_t taps = ceil_div(window.kernel[at] + before, stride);
    phases *= stride;
    shared.kernel[at] = taps;
    shared.pad[at] = taps - 1 - reach;
    padding.insert(padding.begin(), {before, taps * stride - before - window.kernel[at]});
    split.append({taps, stride});
    order.push_back(3 + 2 * i);
    sizes.push_back(taps);
    grid.push_back(size / stride);
  }
  order.append({1, 0});
  at::DimVector flipped;
  for (int64_t i = 0; i < axes; ++i) {
    order.push_back(2 + 2 * i);
    flipped.push_back(axes + 2 + i);
  }
  sizes.insert(sizes.begin(), {phases * channels, weight.size(0)});
  const at::Tensor windows = at::constant_pad_nd(weight, padding).reshape(split).permute(order);
  const at::Tensor taps = at::flip(windows, flipped).reshape(sizes);
  const at::Tensor addend =
      description.bias.defined() ? description.bias.repeat({phases}) : at::Tensor();
  grid.insert(grid.begin() + 1, phases * channels);
  const at::Tensor result = at::empty(grid, in.options());
  Description of_phases(Pass::forward, description.out.tensor, result, taps, addend, shared,
                        description.precision);
  run_convolution(of_phases);
  // From [image][phases][channel][positions] to [image][channel][position, phase along each axis].
  at::DimVector shape{in.size(0)}, target{in.size(0), channels};
  for (int64_t i = 0; i < axes; ++i)
    shape.push_back(window.stride[static_cast<size_t>(i + 3 - axes)]);
  shape.push_back(channels);
  place_order.push_back(1 + axes);
  for (int64_t i = 0; i < axes; ++i) {
    shape.push_back(grid[static_cast<size_t>(2 + i)]);
    place_order.append({2 + axes + i, 1 + i});
    target.append(
        {grid[static_cast<size_t>(2 + i)], window.stride[static_cast<size_t>(i + 3 - axes)]});
  }
  in.view(target).copy_(result.view(shape).permute(place_order));
}

}  // namespace

const Implementation phases{"phases", refuse, run};

}  // namespace ocl::conv
