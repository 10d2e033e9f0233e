#include "engine/pointwise/pointwise.h"

#include <ATen/core/Tensor.h>
#include <torch/headeronly/version.h>

#include <array>

#include "engine/pointwise/launch.h"
#include "opencl/device.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::pointwise {

namespace {

// The dtype that the iterator's promotion arrived at, Undefined if it was not asked for one.
c10::ScalarType promoted_dtype(const at::TensorIteratorBase& iter) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  return iter.maybe_common_dtype().value_or(c10::ScalarType::Undefined);
#else
  // common_dtype() asserts that there is one, and nothing public says whether there is.
  struct Promoted : at::TensorIteratorBase {
    static c10::ScalarType of(const at::TensorIteratorBase& iter) {
      return iter.*(&Promoted::common_dtype_);
    }
  };
  return Promoted::of(iter);
#endif
}

c10::ScalarType choose_compute_dtype(at::TensorIteratorBase& iter, const Op& op) {
  if (op.flags & (flag::compute_in_output | flag::bits)) return iter.dtype(0);
  if (iter.ninputs() == 0) return iter.dtype(0);
  const c10::ScalarType promoted = promoted_dtype(iter);
  return promoted != c10::ScalarType::Undefined ? promoted : iter.dtype(iter.ntensors() - 1);
}

/// Whether the input must be rounded to the common dtype, a half type, before it is computed with:
/// the kernels load operands as they are, and float holds more than that dtype does.
bool needs_rounding(const at::TensorIteratorBase& iter, const Op& op, c10::ScalarType promoted,
                    int i) {
  if (!c10::isReducedFloatingType(promoted)) return false;
  const c10::ScalarType dtype = iter.dtype(i);
  if (dtype == promoted || c10::elementSize(dtype) == 1) return false;
  return !(op.flags & flag::opmath_scalar && i == iter.ntensors() - 1 && iter.is_scalar(i));
}

/// Whether the result, wider than the common dtype, is still rounded to that, a half type, as CPU
/// torch's is, which computes in it and then converts.
bool rounds_result(const at::TensorIteratorBase& iter, const Op& op, c10::ScalarType promoted) {
  if ((promoted != at::kHalf && promoted != at::kBFloat16) || iter.noutputs() != 1) return false;
  if (op.flags & (flag::compute_in_output | flag::moves_value)) return false;
  const c10::ScalarType dtype = iter.dtype(0);
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kComplexFloat ||
         dtype == at::kComplexDouble;
}

/// Whether the op has no meaning for a dtype that is one of the float8 types.
bool refuses_float8(const at::TensorIteratorBase& iter, const Op& op, c10::ScalarType dtype) {
  if (!c10::isFloat8Type(dtype) || op.flags & flag::bits) return false;
  if (!(op.flags & flag::float8)) return true;
  if (op.flags & flag::no_e8m0 && dtype == c10::ScalarType::Float8_e8m0fnu) return true;
  // Upstream's kernels with such a scalar are for half and bfloat16 alone.
  return op.flags & flag::opmath_scalar && iter.is_scalar(iter.ntensors() - 1);
}

void gather_operands(at::TensorIteratorBase& iter, const Op& op,
                     std::span<const c10::Scalar> scalars, Operands& operands,
                     std::array<int, kMaxOperands>& iterator_index) {
  const c10::ScalarType dtype = choose_compute_dtype(iter, op);
  if (__builtin_expect(refuses_float8(iter, op, dtype), 0)) {
    op.raise_refusal(dtype, device(iter.device(0).index()));
  }
  c10::ScalarType compute = compute_dtype(dtype);
  operands.dtype = dtype;
  operands.outputs = iter.noutputs();
  operands.inputs = iter.ninputs();
  TORCH_INTERNAL_ASSERT(iter.ntensors() <= kMaxOperands && scalars.size() <= kMaxScalars);
  const bool bits = op.flags & flag::bits;
  const c10::ScalarType promoted = bits ? c10::ScalarType::Undefined : promoted_dtype(iter);
  if (bits) {
    operands.compute_tag = bits_tag(c10::elementSize(dtype));
    operands.compute_size = c10::elementSize(dtype);
    operands.complex = operands.compute_size == 16;
    if (!operands.complex) {
      static constexpr c10::ScalarType kUnsigned[] = {
          c10::ScalarType::Byte, c10::ScalarType::UInt16, c10::ScalarType::UInt32,
          c10::ScalarType::UInt64};
      compute = kUnsigned[operands.compute_size == 1   ? 0
                          : operands.compute_size == 2 ? 1
                          : operands.compute_size == 4 ? 2
                                                       : 3];
    }
  } else {
    operands.compute_tag = tag(compute);
    operands.compute_size = c10::elementSize(compute);
    operands.complex = c10::isComplexType(compute);
  }
  operands.op_scalars = static_cast<int>(scalars.size());
  int scalar = 0;
  for (const c10::Scalar& value : scalars) {
    operands.scalars[scalar++] = scalar_argument(compute, value);
  }
  for (int i = 0; i < iter.ntensors(); ++i) {
    const bool rounds = i >= operands.outputs && needs_rounding(iter, op, promoted, i);
    if (i >= operands.outputs && iter.is_cpu_scalar(i)) {
      operands.scalar_mask |= 1u << (i - operands.outputs);
      const bool value_bits = bits && iter.dtype(i) == dtype;
      ScalarArgument& argument = operands.scalars[scalar++];
      argument = value_bits ? storage_argument(dtype, iter.data_ptr(i))
                            : scalar_argument(compute, iter.dtype(i), iter.data_ptr(i));
      if (rounds) round_argument(promoted, argument);
      continue;
    }
    if (rounds) operands.rounded_mask |= 1u << (i - operands.outputs);
    const bool moves_bits = bits && iter.dtype(i) == dtype;
    operands.has_complex |= !moves_bits && c10::isComplexType(iter.dtype(i));
    operands.has_float8 |= !moves_bits && c10::isFloat8Type(iter.dtype(i));
    operands.tags[operands.count] = moves_bits ? operands.compute_tag : storage_tag(iter.dtype(i));
    operands.element_size[operands.count] = iter.element_size(i);
    operands.data[operands.count] = static_cast<char*>(iter.data_ptr(i));
    operands.input_number[operands.count] = i - operands.outputs;
    iterator_index[operands.count++] = i;
  }
  if (__builtin_expect(rounds_result(iter, op, promoted), 0)) {
    operands.rounded_mask |= kRoundedResult;
  }
  operands.total_scalars = scalar;
  operands.wide_quotient = op.flags & flag::opmath_scalar && op.flags & flag::divides &&
                           c10::isReducedFloatingType(promoted) &&
                           iter.is_scalar(iter.ntensors() - 1);
  const bool last_is_scalar =
      operands.inputs > 0 && operands.scalar_mask >> (operands.inputs - 1) & 1;
  operands.checked =
      op.needs_check(compute, last_is_scalar ? &operands.scalars[scalar - 1] : nullptr);
}

void check_scalars(at::TensorIteratorBase& iter, const Op& op,
                   std::span<const c10::Scalar> scalars) {
  const c10::ScalarType dtype = iter.dtype(0);
  bool checked = op.flags & flag::scalars_fit_single &&
                 (dtype == c10::ScalarType::Float || dtype == c10::ScalarType::ComplexFloat);
  if (iter.ninputs() == 0) {
    // As upstream's, a fill of one element rounds to a half type or float8: such scalar tensors
    // are what an assignment makes of a number.
    checked = iter.numel() != 1 || c10::elementSize(dtype) > 2;
  } else if (op.flags & flag::scalars_fit) {
    checked |= c10::isReducedFloatingType(dtype);
  }
  if (op.flags & flag::scalars_fit_compute && !c10::isIntegralType(dtype, true)) {
    for (const c10::Scalar& value : scalars) check_scalar(compute_dtype(dtype), value);
  }
  if (!checked) return;
  for (const c10::Scalar& value : scalars) check_scalar(dtype, value);
}

/// Inputs of 64-bit integers that are broadcast over a large result, in the dtype computed with:
/// where their conversion is slow, once per element is better than once per use. Strides of
/// `geometry` follow. The tensors live until the launch is enqueued.
void convert_repeated(const at::TensorIteratorBase& iter, const Device& device,
                      const std::array<int, kMaxOperands>& iterator_index, Operands& operands,
                      Geometry& geometry, std::array<at::Tensor, kMaxOperands>& converted) {
  constexpr int64_t kLeastElements = 1 << 16, kLeastUses = 16;
  const c10::ScalarType compute = compute_dtype(operands.dtype);
  if (!device.quirks().slow_int64_to_real || iter.numel() < kLeastElements ||
      !c10::isFloatingType(compute)) {
    return;
  }
  for (int j = operands.outputs; j < operands.count; ++j) {
    const int i = iterator_index[j];
    if (iter.dtype(i) != c10::ScalarType::Long) continue;
    const at::TensorBase& tensor = iter.tensor_base(i);
    if (tensor.numel() * kLeastUses > iter.numel() || !tensor.is_non_overlapping_and_dense()) {
      continue;
    }
    converted[j] = at::Tensor(tensor).to(compute);
    const int64_t from = iter.element_size(i), to = converted[j].element_size();
    const int64_t offset =
        static_cast<char*>(iter.data_ptr(i)) - static_cast<const char*>(tensor.const_data_ptr());
    operands.data[j] = static_cast<char*>(converted[j].data_ptr()) + offset / from * to;
    operands.tags[j] = operands.compute_tag;
    operands.element_size[j] = to;
    for (int d = 0; d < geometry.dims; ++d)
      geometry.stride[j][d] = geometry.stride[j][d] / from * to;
  }
}

}  // namespace

void run(at::TensorIteratorBase& iter, const Op& op, std::span<const c10::Scalar> scalars) {
  const int64_t n = iter.numel();
  if (op.flags & flag::any_refusal || n == 0) {
    const c10::ScalarType dtype = choose_compute_dtype(iter, op);
    if (op.refuses(dtype) || refuses_float8(iter, op, dtype)) {
      op.raise_refusal(dtype, device(iter.device(0).index()));
    }
  }
  check_scalars(iter, op, scalars);
  if (n == 0) return;
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) run(part, op, scalars);
    return;
  }
  Operands operands;
  std::array<int, kMaxOperands> iterator_index;
  gather_operands(iter, op, scalars, operands, iterator_index);
  Queue& queue = current_queue(iter.device(0).index());

  // A folded host scalar has stride 0, so is_contiguous() is asked of the operands left.
  const bool contiguous =
      iter.is_contiguous() || (operands.scalar_mask != 0 && iter.ndim() == 1 && [&] {
        for (int i = 0; i < operands.count; ++i) {
          const int index = iterator_index[i];
          if (iter.strides(index)[0] != iter.element_size(index)) return false;
        }
        return true;
      }());
  if ((contiguous || n == 1) && !is_forced()) {
    Plan plan{queue, operands, op, n, true, nullptr};
    launch(plan);
    return;
  }
  Geometry geometry;
  geometry.dims = iter.ndim();
  TORCH_INTERNAL_ASSERT(geometry.dims <= kMaxTensorDims);
  for (int d = 0; d < geometry.dims; ++d) geometry.size[d] = iter.shape()[d];
  for (int i = 0; i < operands.count; ++i) {
    const auto strides = iter.strides(iterator_index[i]);
    for (int d = 0; d < geometry.dims; ++d) geometry.stride[i][d] = strides[d];
  }
  std::array<at::Tensor, kMaxOperands> converted;
  if (!(op.flags & flag::bits)) {
    convert_repeated(iter, queue.device(), iterator_index, operands, geometry, converted);
  }
  launch_geometry(queue, operands, op, geometry, contiguous || n == 1);
}

}  // namespace ocl::pointwise
