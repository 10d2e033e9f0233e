#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "ops/ConvolutionMatrix.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/conv/implicit_gemm.h"
#include "engine/conv/phase.h"
#include "engine/gemm/bfloat16_planes.h"
#include "opencl/ceil_div.h"
#include "ops/ConvolutionParts.h"

namespace ocl::native {

namespace {

using conv::kChunk;

int64_t padded(int64_t channels) { return ceil_div(channels, kChunk) * kChunk; }

at::DimVector channels_last_order(int64_t dims) {
  at::DimVector order{0};
  for (int64_t d = 2; d < dims; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}

/// The tensor with its channels innermost and strides that the products take; a copy if it isn't
/// so already. More channels than it has are zeros.
at::Tensor channels_last(const at::Tensor& tensor, int64_t channels) {
  bool fits = tensor.size(1) == channels && tensor.stride(1) == 1 &&
              reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
  int64_t bytes = tensor.element_size();
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (d == 1 || tensor.size(d) == 1) continue;
    fits = fits && tensor.stride(d) % kChunk == 0 && tensor.stride(d) > 0;
    if (d > 1) bytes = std::max(bytes, tensor.stride(d) * tensor.size(d) * tensor.element_size());
  }
  if (fits && bytes <= std::numeric_limits<int32_t>::max()) return tensor;
  const at::DimVector order = channels_last_order(tensor.dim());
  at::DimVector sizes;
  for (int64_t d : order) sizes.push_back(tensor.size(d));
  sizes.back() = channels;
  const at::Tensor copy = channels == tensor.size(1) ? at::empty(sizes, tensor.options())
                                                     : at::zeros(sizes, tensor.options());
  copy.narrow(-1, 0, tensor.size(1)).copy_(tensor.permute(order));
  return copy.movedim(-1, 1);
}

/// A weight as [rows][taps][channels], contiguous.
at::Tensor rows_of(const at::Tensor& weight, int64_t channels) {
  const at::Tensor moved = weight.movedim(1, -1);
  if (channels == weight.size(1)) return moved.contiguous();
  return at::constant_pad_nd(moved, {0, channels - weight.size(1)}).contiguous();
}

conv::WindowGrid grid_of(const at::Tensor& out, const conv::Window& window) {
  conv::WindowGrid grid;
  const int64_t axes = out.dim() - 2;
  for (int64_t i = 0; i < axes; ++i) {
    grid.positions[static_cast<size_t>(i + 3 - axes)] = out.size(2 + i);
  }
  grid.taps = window.kernel;
  grid.step = window.stride;
  grid.tap_step = window.dilation;
  for (size_t i = 0; i < 3; ++i) grid.origin[i] = -window.pad[i];
  grid.tf32 = window.tf32;
  return grid;
}

/// A result with its channels innermost: `out` itself, or one that is to be copied there.
at::Tensor result_for(const at::Tensor& out) {
  if (out.stride(1) == 1 || out.size(1) == 1) return out;
  at::DimVector sizes;
  for (int64_t d : channels_last_order(out.dim())) sizes.push_back(out.size(d));
  return at::empty(sizes, out.options()).movedim(-1, 1);
}

void deliver(const at::Tensor& result, const at::Tensor& out) {
  if (!result.is_same(out)) out.copy_(result);
}

conv::Operand operand(const at::Tensor& tensor) {
  return {tensor, static_cast<int>(tensor.dim()) - 2};
}

const void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

/// The part of a weight that `phases` take, as [group][channel of the input][taps][channel].
at::Tensor transposed_rows(const at::Tensor& weight, const std::array<conv::Phase, 3>& phases,
                           int64_t groups, int64_t channels) {
  at::Tensor part = weight;
  const int64_t axes = weight.dim() - 2;
  at::DimVector sizes{groups, weight.size(0) / groups, weight.size(1)}, order{0, 2};
  for (int64_t i = 0; i < axes; ++i) {
    const conv::Phase& phase = phases[static_cast<size_t>(i + 3 - axes)];
    part = part.slice(2 + i, phase.first, std::nullopt, phase.step);
    sizes.push_back(phase.count);
    order.push_back(3 + i);
  }
  order.push_back(1);
  const at::Tensor moved = part.reshape(sizes).permute(order);
  if (channels == moved.size(-1)) return moved.contiguous();
  return at::constant_pad_nd(moved, {0, channels - moved.size(-1)}).contiguous();
}

/// Whether windows have one element each and planes are contiguous, with rows of 16 bytes: then the
/// product (conv/product.cpp) needs no copy with channels last. A weight's gradient would be a sum
/// of many.
bool lies_as_product(const ConvolutionPlan& plan) {
  constexpr int64_t kLeastPlane = 128;  // of fewer, products have too few columns
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  const auto all = [](const std::array<int64_t, 3>& sizes, int64_t value) {
    return std::ranges::all_of(sizes, [&](int64_t size) { return size == value; });
  };
  if (pass == ConvolutionPlan::Pass::weight || window.groups > 1 || !all(window.kernel, 1) ||
      !all(window.stride, 1) || !all(window.pad, 0)) {
    return false;
  }
  const int64_t plane = in.numel() / (in.size(0) * in.size(1));
  return plane >= kLeastPlane && plane * in.element_size() % 16 == 0 && in.is_contiguous() &&
         out.is_contiguous() && in.size(1) > 1 && out.size(1) > 1;
}

/// Whether plain tiles are faster than the conv engine's own: for gradients of weights with all
/// channels of a chunk, where the copies with channels last cost little or aren't needed.
bool gains_by_tiles(const ConvolutionPlan& plan) {
  constexpr int64_t kLeastRows = 64;  // for which an element of the input is worth its copy
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  const int64_t rows = weight.size(0) / window.groups;
  if (pass != ConvolutionPlan::Pass::weight || weight.size(1) % kChunk != 0 || rows % kChunk != 0) {
    return false;
  }
  const bool last = in.stride(1) == 1 && out.stride(1) == 1;
  return last || (rows >= kLeastRows && weight.numel() > weight.size(0) * weight.size(1));
}

const char* refuse(const ConvolutionPlan& plan, at::ScalarType dtype, bool tiles) {
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  if (const char* reason = conv::refuse_implicit_gemm(dtype, window, tiles)) return reason;
  if (out.scalar_type() != in.scalar_type() || weight.scalar_type() != in.scalar_type()) {
    return "dtypes differ";
  }
  const int64_t g = window.groups;
  if (g > 1 && (weight.size(1) % kChunk != 0 || weight.size(0) / g % kChunk != 0)) {
    return "groups of few channels have kernels of their own";
  }
  if (lies_as_product(plan)) return "the matrix product takes its images as they lie";
  const auto positions = [](const at::Tensor& t) { return t.numel() / t.size(1); };
  const int64_t parts = std::max(1, window.rounded_terms);
  const auto image = [&](const at::Tensor& t) { return parts * t.numel() / t.size(0); };
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool large = positions(in) > kMost || positions(out) > kMost || image(in) > kMost / 2 ||
                     image(out) > kMost / 2;
  return large ? "its indices have more than 31 bits" : nullptr;
}

/// What factors of single precision become: what `window` says, or three numbers in planes.
enum class Factors : uint8_t { as_allowed, in_planes };

/// An image with its channels last, of which those it doesn't have are zeros, and the grid's part
/// on its planes.
at::Tensor source_of(const at::Tensor& image, int64_t channels, Factors factors,
                     const conv::Window& window, uint64_t& plane) {
  if (factors == Factors::in_planes) {
    const PlanesOf planes = planes_of_image(image, channels);
    plane = planes.distance;
    return planes.high;
  }
  const int products = window.rounded_terms;
  return products > 0 ? parts_of_channels(image, products) : channels_last(image, channels);
}

/// The other operand, of contiguous rows.
at::Tensor factors_of(const at::Tensor& rows, Factors factors, const conv::Window& window,
                      conv::WindowGrid& grid) {
  if (factors == Factors::in_planes) {
    const PlanesOf planes = planes_of(rows);
    grid.plane_terms = gemm::kPlaneTerms;
    grid.other_plane = planes.distance;
    return planes.high;
  }
  const int products = window.rounded_terms;
  return products > 0 ? parts_of_rows(rows, products) : rows;
}

/// The channels that a source has: as they are in parts, which have zeros behind the last one.
int64_t channels_of(int64_t channels, Factors factors, const conv::Window& window) {
  const bool parts = factors == Factors::as_allowed && window.rounded_terms > 0;
  return window.groups > 1 || parts ? channels : padded(channels);
}

}  // namespace

const char* refuse_by_planes(const ConvolutionPlan& plan) {
  constexpr int64_t kLeastSize = 32;  // less fills too little of a tile
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  if (in.scalar_type() != at::kFloat) return "not of single precision";
  if (window.tf32 || window.rounded_terms != 0) return "fewer bits will do";
  if (window.groups > 1) return "there are groups";
  using Pass = ConvolutionPlan::Pass;
  const int64_t rows = weight.size(0), channels = weight.size(1);
  const int64_t taps = weight.numel() / (rows * channels);
  const int64_t columns = pass == Pass::input ? channels : channels * taps;
  if (std::min(rows, columns) < kLeastSize) return "rows, columns or k are few";
  if (padded(channels) > 5 * channels / 4) return "there are few channels";
  const auto elements = [](const at::Tensor& t) { return static_cast<double>(t.numel()); };
  const auto copied = [&](const at::Tensor& t) { return t.stride(1) == 1 ? 0 : elements(t); };
  const auto split = [&](const at::Tensor& t) {
    return elements(t) / static_cast<double>(t.size(1)) * static_cast<double>(padded(t.size(1)));
  };
  const double factors = (pass == Pass::input ? 0 : split(in)) +
                         (pass == Pass::output ? 0 : split(out)) +
                         (pass == Pass::weight ? 0 : split(weight));
  const double products = elements(out) / static_cast<double>(rows) * elements(weight);
  const double copies = pass == Pass::output ? copied(out) : pass == Pass::input ? copied(in) : 0;
  const Device& device = current_queue(current_device()).device();
  if (const char* reason = gemm::refuse_planes(device, products, factors, copies)) return reason;
  return refuse(plan, at::kBFloat16, false);
}

const char* refuse_by_matrix(const ConvolutionPlan& plan) {
  if (plan.window.rounded_terms != 0) return "products in bfloat16 will do";
  return refuse(plan, plan.in.scalar_type(), gains_by_tiles(plan));
}

const char* refuse_by_parts(const ConvolutionPlan& plan) {
  constexpr int64_t kLeastSize = 32;  // of fewer, a copy costs as much as several products
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  if (window.rounded_terms == 0) return "no single precision that may lose bits to bfloat16";
  if (window.groups > 1) return "there are groups";
  if (std::min(weight.size(0), weight.numel() / weight.size(0)) < kLeastSize) {
    return "copies of the factors cost more than is won";
  }
  return refuse(plan, at::kBFloat16, false);
}

namespace {

void output(const ConvolutionPlan& plan, Factors factors) {
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  const int64_t channels = channels_of(weight.size(1), factors, window);
  conv::WindowGrid grid = grid_of(out, window);
  const at::Tensor source =
      source_of(in, channels * window.groups, factors, window, grid.source_plane);
  const at::Tensor rows = factors_of(rows_of(weight, channels), factors, window, grid);
  const at::Tensor result = result_for(out);
  const bool taken = taker != nullptr && taker->channels_last;
  conv::implicit_gemm(operand(result), operand(source), rows.const_data_ptr(), data_or_null(bias),
                      grid, window.groups, taken ? &taker->epilogue : nullptr);
  if (taken) return;
  deliver(result, out);
  if (taker != nullptr) {
    const int64_t rows_of_planes = out.size(0) * out.size(1);
    conv::hand_over(*taker, out.const_data_ptr(), out.scalar_type(), 0, rows_of_planes,
                    out.numel() / rows_of_planes);
  }
}

void input(const ConvolutionPlan& plan, Factors factors) {
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  const int64_t axes = in.dim() - 2, groups = window.groups;
  const int64_t channels = channels_of(weight.size(0) / groups, factors, window);
  uint64_t source_plane = 0;
  const at::Tensor source = source_of(out, channels * groups, factors, window, source_plane);
  const at::Tensor result = result_for(in);
  // What no window covers is in `in` already.
  if (!result.is_same(in) && !conv::covers_all(window)) result.copy_(in);
  std::array<int64_t, 3> phases{1, 1, 1}, sizes{1, 1, 1};
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto d = static_cast<int64_t>(axis) - 3 + axes;
    if (d >= 0) sizes[axis] = in.size(2 + d);
    phases[axis] = std::min(window.stride[axis], sizes[axis]);
  }
  for (int64_t number = 0; number < phases[0] * phases[1] * phases[2]; ++number) {
    const std::array<int64_t, 3> at{number / (phases[1] * phases[2]),
                                    number / phases[2] % phases[1], number % phases[2]};
    std::array<conv::Phase, 3> part;
    conv::WindowGrid grid;
    grid.tf32 = window.tf32;
    grid.source_plane = source_plane;
    int64_t taps = 1;
    at::Tensor results = result;
    for (size_t axis = 0; axis < 3; ++axis) {
      const conv::Phase& phase = part[axis] =
          conv::phase_of(window, static_cast<int>(axis), at[axis], sizes[axis]);
      grid.positions[axis] = phase.elements;
      grid.origin[axis] = phase.origin;
      grid.taps[axis] = phase.count;
      grid.tap_step[axis] = -phase.back;
      taps *= phase.count;
      const auto d = static_cast<int64_t>(axis) - 3 + axes;
      if (d >= 0) results = results.slice(2 + d, at[axis], std::nullopt, window.stride[axis]);
    }
    if (taps == 0) continue;
    const at::Tensor rows =
        factors_of(transposed_rows(weight, part, groups, channels), factors, window, grid);
    conv::implicit_gemm(operand(results), operand(source), rows.const_data_ptr(),
                        data_or_null(bias), grid, groups);
  }
  deliver(result, in);
}

void weight_gradient(const ConvolutionPlan& plan, Factors factors) {
  const auto& [pass, in, out, weight, bias, window, taker] = plan;
  const int64_t groups = window.groups;
  const int64_t channels = groups > 1 ? weight.size(1) : padded(weight.size(1));
  const int64_t rows = groups > 1 ? weight.size(0) : padded(weight.size(0));
  conv::WindowGrid grid = grid_of(out, window);
  at::Tensor source, gradient;
  // Positions are k, and lie at one distance.
  if (factors == Factors::in_planes) {
    source = source_of(in, channels, factors, window, grid.source_plane);
    gradient = source_of(out, rows, factors, window, grid.other_plane);
    grid.plane_terms = gemm::kPlaneTerms;
  } else {
    source = channels_last(in, channels * groups);
    gradient = channels_last(out, rows);
    const at::DimVector order = channels_last_order(gradient.dim());
    gradient = gradient.permute(order).contiguous();
    if (const int products = window.rounded_terms; products > 0) {
      gradient = parts_of_images(gradient, products, false);
      source = parts_of_images(source.permute(order).contiguous(), products, true).movedim(-1, 1);
    }
    gradient = gradient.movedim(-1, 1);
  }
  at::DimVector sizes{rows};
  for (int64_t d = 2; d < weight.dim(); ++d) sizes.push_back(weight.size(d));
  sizes.push_back(channels);
  const at::Tensor moved = weight.movedim(1, -1);
  const bool direct = moved.is_contiguous() && moved.sizes() == sizes;
  const at::Tensor result = direct ? moved : at::empty(sizes, weight.options());
  conv::implicit_gemm_weight(result.mutable_data_ptr(), weight.scalar_type(), operand(gradient),
                             operand(source), grid, groups);
  if (!direct) {
    moved.copy_(result.narrow(0, 0, weight.size(0)).narrow(-1, 0, weight.size(1)));
  }
}

}  // namespace

void output_by_matrix(const ConvolutionPlan& plan) { output(plan, Factors::as_allowed); }
void input_by_matrix(const ConvolutionPlan& plan) { input(plan, Factors::as_allowed); }
void weight_by_matrix(const ConvolutionPlan& plan) { weight_gradient(plan, Factors::as_allowed); }
void output_by_planes(const ConvolutionPlan& plan) { output(plan, Factors::in_planes); }
void input_by_planes(const ConvolutionPlan& plan) { input(plan, Factors::in_planes); }
void weight_by_planes(const ConvolutionPlan& plan) { weight_gradient(plan, Factors::in_planes); }

}  // namespace ocl::native
