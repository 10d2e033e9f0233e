// The implementations for each pass of a convolution, in the order in which each kind of device
// tries them. Besides its own two files, an added implementation touches this one, and the
// declarations in description.h; a kernel of sums those in contraction.h.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "engine/conv/contraction.h"
#include "engine/conv/description.h"
#include "engine/dtype.h"

namespace ocl::conv {

namespace {

constexpr const Implementation* kForwardOnCpu[] = {&depthwise_lanes,  &depthwise_transposed,
                                                   &depthwise_planes, &amx,
                                                   &one_by_one,       &winograd,
                                                   &to_planes,        &contract};
constexpr const Implementation* kForwardOnGpu[] = {&space_to_depth, &bfloat16_parts,   &bfloat16x3,
                                                   &implicit_gemm,  &depthwise_direct, &to_planes,
                                                   &gemm,           &contract};

constexpr const Implementation* kInputGradientOnCpu[] = {
    &depthwise_lanes, &depthwise_transposed, &depthwise_planes, &amx,     &one_by_one,
    &winograd,        &side_by_side,         &to_planes,        &contract};
constexpr const Implementation* kInputGradientOnGpu[] = {
    &bfloat16_parts, &bfloat16x3, &implicit_gemm,    &to_planes, &gemm,
    &side_by_side,   &phases,     &depthwise_direct, &contract};

constexpr const Implementation* kWeightGradientOnCpu[] = {&depthwise_lanes, &depthwise_transposed,
                                                          &depthwise_planes, &gemm, &contract};
constexpr const Implementation* kWeightGradientOnGpu[] = {
    &space_to_depth, &bfloat16_parts, &bfloat16x3, &implicit_gemm, &depthwise_direct, &contract};

// The kernels of sums.
constexpr const Contraction::Implementation* kContractionsOnCpu[] = {
    &narrow_groups, &narrow_positions, &narrow_k, &im2col, &packed};
constexpr const Contraction::Implementation* kContractionsOnGpu[] = {&few_columns, &direct, &tiled,
                                                                     &packed};

constexpr auto kImplementations =
    joined(kForwardOnCpu, kForwardOnGpu, kInputGradientOnCpu, kInputGradientOnGpu,
           kWeightGradientOnCpu, kWeightGradientOnGpu);
constexpr auto kAllContractions = joined(kContractionsOnCpu, kContractionsOnGpu);

/// The implementation that is asked for: by its name, or `contract` by that of a kernel of sums.
const Implementation* asked(std::span<const Implementation* const> list) {
  if (!Engine::may_force_any()) return forced_among(engine, list);
  const Contraction::Implementation* const kernel = forced_among(engine, kAllContractions);
  if (kernel == nullptr) return forced_among(engine, kImplementations);
  return engine.reason_to_leave_out(kernel->name) == nullptr ? &contract : nullptr;
}

std::span<const Implementation* const> implementations(const Description& description) {
  const bool cpu = description.device.is_cpu();
  using List = std::span<const Implementation* const>;
  switch (description.pass) {
    case Pass::forward:
      return cpu ? List(kForwardOnCpu) : List(kForwardOnGpu);
    case Pass::input_gradient:
      return cpu ? List(kInputGradientOnCpu) : List(kInputGradientOnGpu);
    default:
      return cpu ? List(kWeightGradientOnCpu) : List(kWeightGradientOnGpu);
  }
}

std::string shape_of(at::IntArrayRef sizes) {
  std::string shape;
  for (const int64_t size : sizes) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  return shape;
}

/// A number for each axis, of which the last `axes` are the tensors'; nothing if it is the usual.
std::string setting(const char* name, const std::array<int64_t, kAxes>& values, size_t axes,
                    int64_t usual) {
  const at::IntArrayRef own = at::IntArrayRef(values).slice(kAxes - axes);
  const bool all = std::ranges::all_of(own, [&](int64_t value) { return value == usual; });
  return all ? "" : std::string(", ") + name + " " + shape_of(own);
}

const char* layout_of(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return "planes";
  return tensor.movedim(1, -1).is_contiguous() ? "channels last" : "strides";
}

std::string describe(const Description& description) {
  constexpr const char* kPasses[] = {"forward", "input gradient", "weight gradient"};
  const Window& w = description.window;
  const size_t axes = static_cast<size_t>(description.in.tensor.dim()) - 2;
  const std::string in = layout_of(description.in.tensor), out = layout_of(description.out.tensor);
  return std::string("convolution ") + kPasses[static_cast<size_t>(description.pass)] + " " +
         shape_of(description.in.tensor.sizes()) + " with " +
         shape_of(description.weight.tensor.sizes()) + " " + tag(description.in.dtype) +
         setting("stride", w.stride, axes, 1) + setting("padding", w.pad, axes, 0) +
         setting("dilation", w.dilation, axes, 1) +
         (w.groups > 1 ? ", groups " + std::to_string(w.groups) : "") + ", " +
         (in == out ? in : "in " + in + ", out " + out) +
         (description.epilogue ? ", epilogue" : "");
}

std::string describe_contraction(const Contraction& c) {
  return "convolution contraction " + std::to_string(c.groups) + "x" +
         std::to_string(c.rows.elements()) + "x" + std::to_string(c.columns) + "x" +
         std::to_string(c.k.elements()) + " " + tag(c.dtype);
}

}  // namespace

Engine engine{"convolution", kImplementations, kAllContractions};

void run_convolution(Description& description) {
  const DispatchBlock block(engine);
  const std::span<const Implementation* const> list = implementations(description);
  run_asked(engine, asked(list), list, description, describe);
  if (const MatrixEpilogue* const left = std::exchange(description.epilogue, nullptr)) {
    apply(*left, description.out.tensor);
  }
}

void run_contraction(Contraction& contraction) {
  const DispatchBlock block(engine);
  std::span<const Contraction::Implementation* const> list = kContractionsOnGpu;
  if (contraction.device.is_cpu()) list = kContractionsOnCpu;
  run_first(engine, kAllContractions, list, contraction, describe_contraction);
}

}  // namespace ocl::conv
