// Convolutions with windows of one element that are one matrix product as they stand: on GPUs all
// but gradients of weights, on CPUs gradients of weights with channels last.
#include "engine/gemm/gemm.h"

#include "engine/conv/description.h"

namespace ocl::conv {

namespace {

/// Whether images follow each other as positions do, so that all are rows of one matrix.
bool joins_images(const Operand& in, const Operand& out) {
  const int64_t positions = in.size[2] * in.size[3] * in.size[4];
  return in.size[0] == 1 || (in.stride[0] == positions * position_stride(in) &&
                             out.stride[0] == positions * position_stride(out));
}

gemm::Description gemm_of_weight(const Description& description) {
  const Operand &in = description.in, &out = description.out, &weight = description.weight;
  gemm::Description d;
  d.tf32 = description.precision.tf32;
  d.rounded_terms = description.precision.rounded_terms;
  d.m = weight.size[0];
  d.n = weight.size[1];
  d.k = in.size[0] * in.size[2] * in.size[3] * in.size[4];
  d.a = {out.data, out.dtype, out.stride[1], position_stride(out), 0};
  d.b = {in.data, in.dtype, position_stride(in), in.stride[1], 0};
  d.out = {weight.data, weight.dtype, weight.stride[0], weight.stride[1], 0};
  return d;
}

gemm::Description gemm_of_positions(const Description& description) {
  const Operand &in = description.source(), &out = description.result(),
                &weight = description.weight;
  const bool transposed = description.transposed();
  const int64_t positions = in.size[2] * in.size[3] * in.size[4];
  const int64_t in_position = position_stride(in), out_position = position_stride(out);
  gemm::Description d;
  d.tf32 = description.precision.tf32;
  d.rounded_terms = description.precision.rounded_terms;
  d.k = in.size[1];
  const gemm::Operand weights{weight.data, weight.dtype, weight.stride[transposed ? 1 : 0],
                              weight.stride[transposed ? 0 : 1], 0};
  d.beta = description.bias_data() != nullptr ? 1 : 0;
  if (out.stride[1] == 1) {
    // Channels last: positions are rows, and images follow each other mostly.
    const bool joined = joins_images(in, out);
    d.m = joined ? in.size[0] * positions : positions;
    d.batch = joined ? 1 : in.size[0];
    d.n = out.size[1];
    d.a = {in.data, in.dtype, in_position, in.stride[1], in.stride[0]};
    d.b = {weights.data, weights.dtype, weights.column_stride, weights.row_stride, 0};
    d.c = {description.bias_data(), out.dtype, 0, 1, 0};
    d.out = {out.data, out.dtype, out_position, out.stride[1], out.stride[0]};
  } else {
    d.m = out.size[1];
    d.n = positions;
    d.batch = in.size[0];
    d.a = weights;
    d.b = {in.data, in.dtype, in.stride[1], in_position, in.stride[0]};
    d.c = {description.bias_data(), out.dtype, 1, 0, 0};
    d.out = {out.data, out.dtype, out.stride[1], out_position, out.stride[0]};
  }
  return d;
}

const char* refuse(const Description& description) {
  if (!description.window.has_single_elements())
    return "windows have several elements, or lie apart";
  if (position_stride(description.out) == 0 || position_stride(description.in) == 0) {
    return "positions aren't equally far apart";
  }
  if (description.pass == Pass::weight_gradient) {
    if (description.in.stride[1] != 1 || description.out.stride[1] != 1)
      return "channels aren't last";
    if (!joins_images(description.in, description.out)) return "images lie apart";
    return gemm::takes_k_blocking(gemm_of_weight(description)) ? nullptr
                                                               : "gemm would pack its operands";
  }
  if (!c10::isFloatingType(description.in.dtype)) return "the dtype is no floating one";
  if (description.device.is_cpu()) return "on CPUs packed does better";
  const Operand &in = description.source(), &out = description.result();
  if (out.stride[1] == 1 && joins_images(in, out)) return nullptr;
  return in.size[2] * in.size[3] * in.size[4] < kLeastPlane ? "planes are small" : nullptr;
}

void run(Description& description) {
  const gemm::Description d = description.pass == Pass::weight_gradient
                                  ? gemm_of_weight(description)
                                  : gemm_of_positions(description);
  // The rows of most epilogues are those of one product.
  const bool taken =
      d.batch == 1 || (description.epilogue != nullptr && description.epilogue->images_as_z);
  const Epilogue* const epilogue =
      taken ? description.take_epilogue(description.out.stride[1] == 1) : nullptr;
  gemm::run(d, epilogue);
}

}  // namespace

const Implementation gemm{"gemm", refuse, run};

}  // namespace ocl::conv
