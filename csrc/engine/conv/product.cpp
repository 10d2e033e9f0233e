// Convolutions that are matrix products as they stand, windows of one element: all of them on GPUs,
// on CPUs the weight's gradient where channels lie innermost.
#include <algorithm>
#include <optional>

#include "engine/conv/plan.h"
#include "engine/gemm/gemm.h"
#include "runtime/stream.h"

namespace ocl {

namespace {

/// Planes of fewer elements fill too little of the products' tiles.
constexpr int64_t kLeastPlane = 128;

/// The distance of neighbouring positions if all of an image's are equally far apart; 0 if not, or
/// if they are all the same element, as an expanded tensor's are.
int64_t position_stride(const ConvTensor& tensor) {
  std::optional<int64_t> stride;
  int64_t next = 0;
  for (size_t d = 4; d >= 2; --d) {
    if (tensor.size[d] == 1) continue;
    if (!stride) {
      stride = tensor.stride[d];
    } else if (tensor.stride[d] != next) {
      return 0;
    }
    next = tensor.stride[d] * tensor.size[d];
  }
  return stride.value_or(1);
}

bool is_product(const ConvWindow& w) {
  const auto all = [](const std::array<int64_t, 3>& values, int64_t value) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
  };
  return w.groups == 1 && all(w.kernel, 1) && all(w.stride, 1) && all(w.pad, 0);
}

}  // namespace

bool run_conv_product(const ConvTensor& out, const ConvTensor& in, const ConvTensor& weight,
                      const void* bias, const ConvWindow& w, bool transposed) {
  if (!is_product(w) || !c10::isFloatingType(in.dtype)) return false;
  if (current_queue(current_device()).device().is_cpu()) return false;
  const int64_t out_position = position_stride(out), in_position = position_stride(in);
  if (out_position == 0 || in_position == 0) return false;
  const int64_t positions = in.size[2] * in.size[3] * in.size[4];
  GemmDescription d;
  d.k = in.size[1];
  const GemmOperand weights{weight.data, weight.dtype, weight.stride[transposed ? 1 : 0],
                            weight.stride[transposed ? 0 : 1], 0};
  d.beta = bias != nullptr ? 1 : 0;
  if (out.stride[1] == 1) {
    // Channels last: positions are rows, and images follow each other mostly.
    const bool joined = in.size[0] == 1 || (in.stride[0] == positions * in_position &&
                                            out.stride[0] == positions * out_position);
    if (!joined && positions < kLeastPlane) return false;
    d.m = joined ? in.size[0] * positions : positions;
    d.batch = joined ? 1 : in.size[0];
    d.n = out.size[1];
    d.a = {in.data, in.dtype, in_position, in.stride[1], in.stride[0]};
    d.b = {weights.data, weights.dtype, weights.column_stride, weights.row_stride, 0};
    d.c = {bias, out.dtype, 0, 1, 0};
    d.out = {out.data, out.dtype, out_position, out.stride[1], out.stride[0]};
  } else {
    if (positions < kLeastPlane) return false;
    d.m = out.size[1];
    d.n = positions;
    d.batch = in.size[0];
    d.a = weights;
    d.b = {in.data, in.dtype, in.stride[1], in_position, in.stride[0]};
    d.c = {bias, out.dtype, 1, 0, 0};
    d.out = {out.data, out.dtype, out.stride[1], out_position, out.stride[0]};
  }
  gemm(d);
  return true;
}

bool run_conv_weight_product(const ConvTensor& weight, const ConvTensor& in, const ConvTensor& out,
                             const ConvWindow& w) {
  if (!is_product(w) || in.stride[1] != 1 || out.stride[1] != 1) return false;
  const int64_t positions = in.size[2] * in.size[3] * in.size[4];
  const int64_t out_position = position_stride(out), in_position = position_stride(in);
  if (out_position == 0 || in_position == 0) return false;
  const bool joined = in.size[0] == 1 || (in.stride[0] == positions * in_position &&
                                          out.stride[0] == positions * out_position);
  if (!joined) return false;
  GemmDescription d;
  d.m = weight.size[0];
  d.n = weight.size[1];
  d.k = in.size[0] * positions;
  d.a = {out.data, out.dtype, out.stride[1], out_position, 0};
  d.b = {in.data, in.dtype, in_position, in.stride[1], 0};
  d.out = {weight.data, weight.dtype, weight.stride[0], weight.stride[1], 0};
  if (!gemm_takes_blocks(d)) return false;
  gemm(d);
  return true;
}

}  // namespace ocl
