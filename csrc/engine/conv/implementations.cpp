// The methods for each pass of a convolution, in the order in which each kind of device tries them.
// Besides its own two files, an added method touches this one, and the declarations in plan.h; a
// kernel of sums those in contraction.h.
#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "engine/conv/contraction.h"
#include "engine/conv/plan.h"
#include "engine/dtype.h"

namespace ocl::conv {

namespace {

constexpr const Method* kForwardOnCpu[] = {
    &depthwise_lanes, &depthwise_transposed, &depthwise_planes, &winograd, &to_planes, &sums};
constexpr const Method* kForwardOnGpu[] = {
    &space_to_depth,   &bfloat16_parts, &bfloat16_planes, &implicit_gemm,
    &depthwise_direct, &to_planes,      &product,         &sums};

constexpr const Method* kInputGradientOnCpu[] = {&depthwise_lanes,
                                                 &depthwise_transposed,
                                                 &depthwise_planes,
                                                 &winograd,
                                                 &side_by_side,
                                                 &to_planes,
                                                 &sums};
constexpr const Method* kInputGradientOnGpu[] = {
    &bfloat16_parts, &bfloat16_planes, &implicit_gemm,    &to_planes,
    &product,        &phases,          &depthwise_direct, &sums};

constexpr const Method* kWeightGradientOnCpu[] = {&depthwise_lanes, &depthwise_transposed,
                                                  &depthwise_planes, &product, &sums};
constexpr const Method* kWeightGradientOnGpu[] = {
    &space_to_depth, &bfloat16_parts, &bfloat16_planes, &implicit_gemm, &depthwise_direct, &sums};

// The kernels of sums.
constexpr const Sum* kSumsOnCpu[] = {&narrow_groups, &narrow_positions, &narrow_k, &im2col,
                                     &packed};
constexpr const Sum* kSumsOnGpu[] = {&few_columns, &direct, &tiled, &packed};

constexpr const Method* kMethods[] = {&space_to_depth,   &bfloat16_parts,
                                      &bfloat16_planes,  &implicit_gemm,
                                      &depthwise_lanes,  &depthwise_transposed,
                                      &depthwise_planes, &depthwise_direct,
                                      &product,          &winograd,
                                      &phases,           &side_by_side,
                                      &to_planes,        &sums};
constexpr const Sum* kAllSums[] = {&narrow_groups, &narrow_positions, &narrow_k, &im2col,
                                   &few_columns,   &direct,           &tiled,    &packed};

/// The end of the list, for a kernel of sums that is asked for.
void run_sums(Plan& plan) { (to_planes.refuse(plan) == nullptr ? to_planes : sums).run(plan); }

/// Everything that can be asked for. A kernel of sums asks for sums, which ask that kernel first.
const std::vector<const Method*> by_name = [] {
  static std::array<Method, std::size(kAllSums)> sums_by_kernel;
  std::vector<const Method*> methods(std::begin(kMethods), std::end(kMethods));
  for (size_t i = 0; i < sums_by_kernel.size(); ++i) {
    sums_by_kernel[i] = {kAllSums[i]->name, sums.refuse, run_sums};
    methods.push_back(&sums_by_kernel[i]);
  }
  return methods;
}();

std::span<const Method* const> methods(const Plan& plan) {
  const bool cpu = plan.device.is_cpu();
  using Methods = std::span<const Method* const>;
  switch (plan.pass) {
    case Pass::forward:
      return cpu ? Methods(kForwardOnCpu) : Methods(kForwardOnGpu);
    case Pass::input_gradient:
      return cpu ? Methods(kInputGradientOnCpu) : Methods(kInputGradientOnGpu);
    default:
      return cpu ? Methods(kWeightGradientOnCpu) : Methods(kWeightGradientOnGpu);
  }
}

std::string joined(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

/// A number for each axis, of which the last `axes` are the tensors'; nothing if it is the usual.
std::string setting(const char* name, const std::array<int64_t, kAxes>& values, size_t axes,
                    int64_t usual) {
  const at::IntArrayRef own = at::IntArrayRef(values).slice(kAxes - axes);
  const bool all = std::ranges::all_of(own, [&](int64_t value) { return value == usual; });
  return all ? "" : std::string(", ") + name + " " + joined(own);
}

const char* layout_of(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return "planes";
  return tensor.movedim(1, -1).is_contiguous() ? "channels last" : "strides";
}

std::string describe(const Plan& plan) {
  constexpr const char* kPasses[] = {"forward", "input gradient", "weight gradient"};
  const Window& w = plan.window;
  const size_t axes = static_cast<size_t>(plan.in.tensor.dim()) - 2;
  const std::string in = layout_of(plan.in.tensor), out = layout_of(plan.out.tensor);
  return std::string("convolution ") + kPasses[static_cast<size_t>(plan.pass)] + " " +
         joined(plan.in.tensor.sizes()) + " with " + joined(plan.weight.tensor.sizes()) + " " +
         tag(plan.in.dtype) + setting("stride", w.stride, axes, 1) +
         setting("padding", w.pad, axes, 0) + setting("dilation", w.dilation, axes, 1) +
         (w.groups > 1 ? ", groups " + std::to_string(w.groups) : "") + ", " +
         (in == out ? in : "in " + in + ", out " + out) + (plan.epilogue ? ", epilogue" : "");
}

}  // namespace

Engine engine{"convolution", by_name};

void run_convolution(Plan& plan) {
  const DispatchBlock block(engine);
  run_first(engine, by_name, methods(plan), plan, describe);
}

std::span<const Sum* const> sums_of(const Device& device) {
  if (device.is_cpu()) return kSumsOnCpu;
  return kSumsOnGpu;
}

std::span<const Sum* const> all_sums() { return kAllSums; }

}  // namespace ocl::conv
