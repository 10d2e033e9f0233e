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

constexpr const Implementation* kImplementations[] = {&space_to_depth,
                                                      &bfloat16_parts,
                                                      &bfloat16x3,
                                                      &implicit_gemm,
                                                      &depthwise_lanes,
                                                      &depthwise_transposed,
                                                      &depthwise_planes,
                                                      &depthwise_direct,
                                                      &gemm,
                                                      &amx,
                                                      &one_by_one,
                                                      &winograd,
                                                      &phases,
                                                      &side_by_side,
                                                      &to_planes,
                                                      &contract};
constexpr const Contraction::Implementation* kAllContractions[] = {
    &narrow_groups, &narrow_positions, &narrow_k, &im2col, &few_columns, &direct, &tiled, &packed};

// The end of each list, for a contraction's implementation that is asked for.
constexpr const Implementation* kEnd[] = {&to_planes, &contract};

/// Whether one of a contraction is asked for.
bool asks_for_contraction() {
  const Contraction::Implementation* const forced =
      Engine::may_force_any() ? forced_among(engine, kAllContractions) : nullptr;
  return forced != nullptr && engine.reason_to_leave_out(forced->name) == nullptr;
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

}  // namespace

Engine engine{"convolution", kImplementations, kAllContractions};

void run_convolution(Description& description) {
  const DispatchBlock block(engine);
  if (asks_for_contraction()) {
    run_in_order(engine, kEnd, description, describe);
  } else {
    run_first(engine, kImplementations, implementations(description), description, describe);
  }
  if (const MatrixEpilogue* const left = std::exchange(description.epilogue, nullptr)) {
    apply(*left, description.out.tensor);
  }
}

std::span<const Contraction::Implementation* const> contractions(const Device& device) {
  if (device.is_cpu()) return kContractionsOnCpu;
  return kContractionsOnGpu;
}

std::span<const Contraction::Implementation* const> all_contractions() { return kAllContractions; }

}  // namespace ocl::conv
