// Convolutions as matrix products that find one operand in the windows (implicit GEMM, as im2col
// without the copy). Channels lie innermost.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/conv/implicit_gemm.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/conv/description.h"
#include "engine/conv/operands.h"
#include "engine/conv/phase.h"
#include "engine/gemm/bfloat16_parts.h"
#include "engine/gemm/bfloat16x3.h"
#include "engine/gemm/gemm.h"
#include "engine/gemm/windows.h"

namespace ocl::conv {

const char* refuse_windows(const Description& description, c10::ScalarType dtype,
                           const Window& window, bool tiles) {
  const bool tf32 = description.precision.tf32;
  if (const char* reason = gemm::refuse_windows(dtype, tf32, tiles)) return reason;
  return window.taps() > kMostTaps ? "more than 64 taps" : nullptr;
}

namespace {

/// Whether windows have one element each and planes are contiguous, with rows of 16 bytes: then
/// `gemm` needs no copy with channels last. A weight's gradient would be a sum of many.
bool lies_as_gemm(const Description& description) {
  const at::Tensor &in = description.in.tensor, &out = description.out.tensor;
  if (description.pass == Pass::weight_gradient || !description.window.has_single_elements()) {
    return false;
  }
  const int64_t plane = in.numel() / (in.size(0) * in.size(1));
  return plane >= kLeastPlane && plane * in.element_size() % 16 == 0 && in.is_contiguous() &&
         out.is_contiguous() && in.size(1) > 1 && out.size(1) > 1;
}

/// Whether plain tiles are faster than those of sums: for gradients of weights with all channels of
/// a chunk, where the copies with channels last cost little or aren't needed.
bool gains_by_tiles(const Description& description) {
  constexpr int64_t kLeastRows = 64;  // for which an element of the input is worth its copy
  const Operand& weight = description.weight;
  const int64_t rows = weight.size[0] / description.window.groups;
  if (description.pass != Pass::weight_gradient || weight.size[1] % kChunk != 0 ||
      rows % kChunk != 0) {
    return false;
  }
  const bool last = description.in.stride[1] == 1 && description.out.stride[1] == 1;
  return last || (rows >= kLeastRows && description.window.taps() > 1);
}

const char* refuse(const Description& description, c10::ScalarType dtype, bool tiles) {
  if (const char* reason = refuse_windows(description, dtype, description.window, tiles)) {
    return reason;
  }
  const at::Tensor &in = description.in.tensor, &out = description.out.tensor,
                   &weight = description.weight.tensor;
  if (description.out.dtype != description.in.dtype ||
      description.weight.dtype != description.in.dtype)
    return "dtypes differ";
  const int64_t groups = description.window.groups;
  if (groups > 1 && (weight.size(1) % kChunk != 0 || weight.size(0) / groups % kChunk != 0)) {
    return "groups of few channels have kernels of their own";
  }
  if (lies_as_gemm(description)) return "the matrix product takes its images as they lie";
  const auto positions = [](const at::Tensor& t) { return t.numel() / t.size(1); };
  const int64_t terms = std::max(1, description.precision.rounded_terms);
  const auto image = [&](const at::Tensor& t) { return terms * t.numel() / t.size(0); };
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool large = positions(in) > kMost || positions(out) > kMost || image(in) > kMost / 2 ||
                     image(out) > kMost / 2;
  return large ? "its indices have more than 31 bits" : nullptr;
}

const char* refuse_allowed(const Description& description) {
  if (description.precision.rounded_terms != 0) return "bfloat16_parts will do";
  return refuse(description, description.in.dtype, gains_by_tiles(description));
}

const char* refuse_parts(const Description& description) {
  if (description.precision.rounded_terms == 0)
    return "no single precision that may lose bits to bfloat16";
  if (description.window.groups > 1) return "there are groups";
  if (std::min(description.weight.size[0], description.weight.size[1] * description.window.taps()) <
      int64_t{gemm::kLeastOfParts}) {
    return "copies of the operands cost more than is won";
  }
  return refuse(description, c10::ScalarType::BFloat16, false);
}

const char* refuse_bfloat16x3(const Description& description) {
  constexpr int64_t kLeastSize = 32;  // less fills too little of a tile
  if (description.out_of_memory) return "there was no memory for the parts";
  if (description.in.dtype != c10::ScalarType::Float) return "not of single precision";
  if (description.precision.tf32 || description.precision.rounded_terms != 0)
    return "fewer bits will do";
  if (description.window.groups > 1) return "there are groups";
  const int64_t rows = description.weight.size[0], channels = description.weight.size[1];
  const int64_t columns =
      description.transposed() ? channels : channels * description.window.taps();
  if (std::min(rows, columns) < kLeastSize) return "rows, columns or k are few";
  if (padded(channels) > 5 * channels / 4) return "there are few channels";
  const auto elements = [](const Operand& t) { return static_cast<double>(t.tensor.numel()); };
  const auto copied = [&](const Operand& t) { return t.stride[1] == 1 ? 0 : elements(t); };
  const auto split = [&](const Operand& t) {
    return elements(t) / static_cast<double>(t.size[1]) * static_cast<double>(padded(t.size[1]));
  };
  const double operands =
      (description.pass == Pass::input_gradient ? 0 : split(description.in)) +
      (description.pass == Pass::forward ? 0 : split(description.out)) +
      (description.pass == Pass::weight_gradient ? 0 : split(description.weight));
  const double multiplications =
      elements(description.out) / static_cast<double>(rows) * elements(description.weight);
  const double copies =
      description.pass == Pass::weight_gradient ? 0 : copied(description.result());
  if (const char* reason =
          gemm::refuse_bfloat16x3(description.device, multiplications, operands, copies)) {
    return reason;
  }
  return refuse(description, c10::ScalarType::BFloat16, false);
}

/// The windows of a convolution's output, whose positions are `out`'s.
gemm::Windows windows_over(const Description& description, gemm::Windows::Side side) {
  const Window& w = description.window;
  gemm::Windows windows;
  windows.side = side;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    windows.set_axis(axis, {description.out.size[2 + axis], w.stride[axis], -w.pad[axis],
                            w.kernel[axis], w.dilation[axis]});
  }
  return windows;
}

/// Whether positions of all images follow each other at the distance of the innermost.
bool is_linear(const Operand& t, const uint32_t* positions) {
  int64_t next = 0;
  bool any = false;
  for (int d = 2; d >= -1; --d) {
    const int64_t size = d < 0 ? t.size[0] : positions[d];
    const int64_t stride = d < 0 ? t.stride[0] : t.stride[static_cast<size_t>(2 + d)];
    if (size == 1) continue;
    if (any && stride != next) return false;
    any = true;
    next = stride * size;
  }
  return true;
}

/// The distance of positions that follow each other.
int64_t innermost(const Operand& t, const uint32_t* positions) {
  for (int d = 2; d >= 0; --d) {
    if (positions[d] > 1) return t.stride[static_cast<size_t>(2 + d)];
  }
  return t.size[0] > 1 ? t.stride[0] : t.size[1];
}

/// Says where windows lie in their source, and positions in `out`.
void place(gemm::Windows& windows, const Operand& out, const Operand& source, int64_t channels) {
  const auto element = static_cast<int64_t>(c10::elementSize(source.dtype));
  gemm::WindowArguments& w = windows.arguments;
  w.image = static_cast<uint64_t>(source.stride[0] * element);
  w.out_image = static_cast<uint64_t>(out.stride[0]);
  w.channels = static_cast<uint32_t>(channels);
  std::array<int64_t, 3> move{};  // bytes from one tap to the next
  for (size_t i = 0; i < 3; ++i) {
    w.size[i] = static_cast<uint32_t>(source.size[2 + i]);
    w.stride[i] =
        static_cast<uint32_t>(source.size[2 + i] == 1 ? 0 : source.stride[2 + i] * element);
    w.out_stride[i] = static_cast<uint32_t>(w.grid[i] == 1 ? 0 : out.stride[2 + i]);
    move[i] = int64_t{w.tap_step[i]} * w.stride[i];
  }
  int64_t back = channels * element;
  for (size_t i = 3; i-- > 0;) {
    w.next[i] = static_cast<int32_t>(move[i] - back);
    back += (int64_t{w.taps[i]} - 1) * move[i];
  }
  w.linear = is_linear(out, w.grid);
}

int64_t elements_of(const uint32_t (&sizes)[3]) { return int64_t{sizes[0]} * sizes[1] * sizes[2]; }

/// out[n, o, j] = sum over taps t and channels c of source(n, o, t, c) * rows[j][t][c] + bias[j],
/// for each group's part of the channels.
///
/// rows are contiguous. Channels of each group are a multiple of kChunk; out's and the source's lie
/// innermost, their other strides are multiples of it and data of 16 bytes. A product
/// of bfloat16 may have a result of single precision. out.size counts positions, of at most 2^31:
/// its strides lead from one to the next. An epilogue sees positions as rows, a group's channels as
/// columns, and the group as z.
void multiply(const Description& description, gemm::Windows& windows, const Operand& out,
              const Matrix& image, const Matrix& rows, const Parts& parts,
              const Epilogue* epilogue = nullptr) {
  const Operand source(image.tensor);
  const int64_t groups = description.window.groups, columns = out.size[1] / groups;
  const int64_t channels = source.size[1] / groups;
  place(windows, out, source, channels);
  const gemm::WindowArguments& w = windows.arguments;
  gemm::Description d;
  d.windows = &windows;
  d.tf32 = description.precision.tf32;
  d.exact_terms = parts.exact ? gemm::kExactTerms : 1;
  d.a_part = image.part;
  d.b_part = rows.part;
  d.m = out.size[0] * elements_of(w.grid);
  d.n = columns;
  d.k = elements_of(w.taps) * channels;
  d.batch = groups;
  d.beta = description.bias.defined() ? 1 : 0;
  d.a = {source.data, source.dtype, d.k, 1, channels};
  d.b = {rows.tensor.const_data_ptr(), source.dtype, 1, d.k, columns * d.k};
  d.c = {description.bias_data(), out.dtype, 0, 1, columns};
  d.out = {out.data, out.dtype, innermost(out, w.grid), 1, columns};
  gemm::run(d, epilogue);
}

/// A result with its channels innermost: `out` itself, or one that is to be copied there.
at::Tensor result_for(const at::Tensor& out) {
  if (out.stride(1) == 1 || out.size(1) == 1) return out;
  return at::empty(out.movedim(1, -1).sizes(), out.options()).movedim(-1, 1);
}

void deliver(const at::Tensor& result, const at::Tensor& out) {
  if (!result.is_same(out)) out.copy_(result);
}

void run_forward(Description& description, const Parts& parts) {
  const at::Tensor& weight = description.weight.tensor;
  const int64_t channels = channels_of(weight.size(1), parts, description.window.groups);
  const Matrix image = image_of(description.in.tensor, channels * description.window.groups, parts);
  const Matrix rows = rows_of(weight_rows(weight, channels), parts);
  const at::Tensor result = result_for(description.out.tensor);
  const Epilogue* const epilogue = description.take_epilogue(/*channels_last=*/true);
  gemm::Windows windows = windows_over(description, gemm::Windows::a);
  multiply(description, windows, Operand(result), image, rows, parts, epilogue);
  if (epilogue == nullptr) deliver(result, description.out.tensor);
}

void run_input_gradient(const Description& description, const Parts& parts) {
  const at::Tensor &in = description.in.tensor, &weight = description.weight.tensor;
  const Window& window = description.window;
  const int64_t axes = in.dim() - 2, groups = window.groups;
  const int64_t channels = channels_of(weight.size(0) / groups, parts, groups);
  const Matrix image = image_of(description.out.tensor, channels * groups, parts);
  const at::Tensor result = result_for(in);
  // Elements that no window covers are in `in` already.
  if (!result.is_same(in) && !covers_all(window)) result.copy_(in);
  for_each_phase(window, description.in, [&](const PhasePlace& at) {
    gemm::Windows windows;
    windows.side = gemm::Windows::a;
    at::Tensor places = result;
    for (size_t axis = 0; axis < kAxes; ++axis) {
      const Phase& phase = at.along[axis];
      windows.set_axis(axis, {phase.elements, 1, phase.origin, phase.count, -phase.back});
      const auto d = static_cast<int64_t>(axis) - kAxes + axes;
      if (d >= 0) places = places.slice(2 + d, at.place[axis], std::nullopt, window.stride[axis]);
    }
    const Matrix rows = rows_of(weight_rows(weight, at.along, groups, channels), parts);
    multiply(description, windows, Operand(places), image, rows, parts);
  });
  deliver(result, in);
}

/// weight[j][t][c] = sum over images and positions of out[n, o, j] * source(n, o, t, c). As
/// multiply(); out's positions follow each other at one distance, through all images.
void run_weight_gradient(const Description& description, const Parts& parts) {
  const at::Tensor& weight = description.weight.tensor;
  const Window& window = description.window;
  const int64_t groups = window.groups;
  const int64_t channels = groups > 1 ? weight.size(1) : padded(weight.size(1));
  const int64_t rows = groups > 1 ? weight.size(0) : padded(weight.size(0));
  const Matrix image = parts.exact
                           ? image_of(description.in.tensor, channels, parts)
                           : positions_of(description.in.tensor, channels * groups, true, parts);
  const Matrix gradient = parts.exact ? image_of(description.out.tensor, rows, parts)
                                      : positions_of(description.out.tensor, rows, false, parts);
  at::DimVector sizes(weight.movedim(1, -1).sizes());
  sizes.front() = rows;
  sizes.back() = channels;
  const at::Tensor moved = weight.movedim(1, -1);
  const bool direct = moved.is_contiguous() && moved.sizes() == sizes;
  const at::Tensor result = direct ? moved : at::empty(sizes, weight.options());

  const Operand source(image.tensor), out(gradient.tensor);
  gemm::Windows windows = windows_over(description, gemm::Windows::b);
  place(windows, out, source, channels);
  const gemm::WindowArguments& w = windows.arguments;
  TORCH_INTERNAL_ASSERT(w.linear);
  gemm::Description d;
  d.windows = &windows;
  d.tf32 = description.precision.tf32;
  d.exact_terms = parts.exact ? gemm::kExactTerms : 1;
  d.a_part = gradient.part;
  d.b_part = image.part;
  d.m = rows / groups;
  d.n = elements_of(w.taps) * channels;
  d.k = out.size[0] * elements_of(w.grid);
  d.batch = groups;
  d.a = {out.data, out.dtype, 1, innermost(out, w.grid), d.m};
  d.b = {source.data, source.dtype, d.n, 1, channels};
  d.out = {result.mutable_data_ptr(), description.weight.dtype, d.n, 1, d.m * d.n};
  gemm::run(d);
  if (!direct) moved.copy_(result.narrow(0, 0, weight.size(0)).narrow(-1, 0, weight.size(1)));
}

void run(Description& description, const Parts& parts) {
  if (description.pass == Pass::forward) return run_forward(description, parts);
  if (description.pass == Pass::input_gradient) return run_input_gradient(description, parts);
  run_weight_gradient(description, parts);
}

void run_allowed(Description& description) {
  run(description, {.terms = description.precision.rounded_terms});
}

/// In three parts, or, where there is no memory for these, by the next implementation.
void run_bfloat16x3(Description& description) {
  const MatrixEpilogue* const epilogue = description.epilogue;
  try {
    return run(description, {.exact = true});
  } catch (const c10::OutOfMemoryError&) {
    description.out_of_memory = true;
    description.epilogue = epilogue;
  }
  run_convolution(description);
}

}  // namespace

const Implementation implicit_gemm{"implicit_gemm", refuse_allowed, run_allowed};
const Implementation bfloat16_parts{"bfloat16_parts", refuse_parts, run_allowed};
const Implementation bfloat16x3{"bfloat16x3", refuse_bfloat16x3, run_bfloat16x3};

}  // namespace ocl::conv
