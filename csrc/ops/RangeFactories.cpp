#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/pow.h>

#include <cmath>
#include <limits>
#include <utility>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/logspace.h"
#include "ops/range.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily sequence_family{"shape/sequence.cl", "sequence"};

struct Sequence {
  c10::Scalar start, end, step;
  bool symmetric = false;  // the second half counts back from `end`
  bool power = false;
  c10::Scalar base = 0;
};

/// Fills `out` with `sequence`, computed in `compute`.
void fill_sequence(const at::Tensor& out, const Sequence& sequence, at::ScalarType compute) {
  if (out.numel() == 0) return;
  const at::Tensor dense = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  Queue& queue = current_queue(out.device().index());
  const bool cpu = queue.device().is_cpu();
  // Positions beside each other have to differ in the dtype computed with.
  const bool vectors = cpu && (compute == at::kLong || compute == at::kDouble);
  const uint64_t run = cpu ? device_row(queue.device()).item_elements / 2 : 1;
  Kernel& kernel = sequence_family.get(queue.device(), {{"OUT", tag(out.scalar_type())},
                                                        {"C", tag(compute)},
                                                        {"WIDTH", vectors ? 8 : 1},
                                                        {"SYMMETRIC", sequence.symmetric},
                                                        {"POWER", sequence.power}});
  const auto scalar = [&](const c10::Scalar& value) { return scalar_argument(compute, value); };
  const size_t items = ceil_div(static_cast<uint64_t>(out.numel()), run);
  launch(kernel, queue,
         NDRange::linear(items, cpu ? 1 : group_of_lanes(queue.device())).of_work(4 * out.numel()),
         Pointer{dense.data_ptr()}, static_cast<uint64_t>(out.numel()), scalar(sequence.start),
         scalar(sequence.end), scalar(sequence.step), scalar(sequence.base), run);
  if (!dense.is_same(out)) out.copy_(dense);
}

/// Real sequences are computed in double where the device has it, as CPU's are: the last elements
/// of a long float sequence would be off otherwise.
at::ScalarType real_compute(const at::Tensor& out) {
  return device(out.device().index()).properties().has_fp64 ? at::kDouble : at::kFloat;
}

/// The bounds as the dtype holds them if it is an integer's. Throws as CPU does: RuntimeError for a
/// bound that the dtype can't hold, NotImplementedError for bool.
std::pair<double, double> bounds(const char* op, at::ScalarType dtype, const c10::Scalar& start,
                                 const c10::Scalar& end) {
  const auto held = [&]<class T>(T) {
    return std::pair{static_cast<double>(start.to<T>()), static_cast<double>(end.to<T>())};
  };
  switch (dtype) {
    case at::kByte:
      return held(uint8_t{});
    case at::kChar:
      return held(int8_t{});
    case at::kShort:
      return held(int16_t{});
    case at::kInt:
      return held(int32_t{});
    case at::kLong:
      return held(int64_t{});
    case at::kBool:
      TORCH_CHECK_NOT_IMPLEMENTED(false, '"', op, "\" not implemented for 'Bool'");
    default:
      check_scalar(dtype, start);
      check_scalar(dtype, end);
      return {start.to<double>(), end.to<double>()};
  }
}

/// Infinite where the dtype doesn't hold the distance of the bounds, as on the CPU.
double step_of(const at::Tensor& out, double first, double last, int64_t steps) {
  const double distance = last - first;
  const auto narrow = static_cast<float>(distance);
  const at::ScalarType dtype = out.scalar_type();
  const bool overflows = (dtype == at::kFloat && std::isinf(narrow)) ||
                         (dtype == at::kHalf && std::isinf(float(c10::Half(narrow)))) ||
                         (dtype == at::kBFloat16 && std::isinf(float(c10::BFloat16(narrow))));
  return (overflows ? std::copysign(INFINITY, distance) : distance) /
         static_cast<double>(steps - 1);
}

at::ScalarType compute_of(const at::Tensor& out) {
  if (out.is_complex()) return compute_dtype(out.scalar_type());
  return real_compute(out);
}

}  // namespace

void arange(at::TensorIterator& iter, const c10::Scalar& start, const c10::Scalar&,
            const c10::Scalar& step) {
  const at::Tensor out = iter.tensor(0);
  const bool integral = c10::isIntegralType(out.scalar_type(), true);
  if (integral) {
    fill_sequence(out, {start.to<int64_t>(), 0, step.to<int64_t>()}, at::kLong);
  } else {
    fill_sequence(out, {start, 0, step}, compute_of(out));
  }
}

at::Tensor& range_out(const c10::Scalar& start, const c10::Scalar& end, const c10::Scalar& step,
                      at::Tensor& out) {
  const double first = start.to<double>(), last = end.to<double>();
  const bool integral = c10::isIntegralType(out.scalar_type(), true);
  // An integer keeps 0 of a step below 1, and would be divided by it.
  const double by = integral ? static_cast<double>(step.to<int64_t>()) : step.to<double>();
  TORCH_CHECK(by > 0 || by < 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ",
              last);
  TORCH_CHECK((by > 0 && last >= first) || (by < 0 && last <= first),
              "upper bound and lower bound inconsistent with step sign");
  const double count =
      integral
          ? static_cast<double>((end.to<int64_t>() - start.to<int64_t>()) / step.to<int64_t>() + 1)
          : std::floor((last - first) / by + 1);
  TORCH_CHECK(count >= 0 && count <= static_cast<double>(std::numeric_limits<int64_t>::max()),
              "invalid size, possible overflow?");
  const auto size = static_cast<int64_t>(count);
  if (out.numel() != size) out.resize_({size});
  if (integral) {
    fill_sequence(out, {start.to<int64_t>(), 0, step.to<int64_t>()}, at::kLong);
  } else {
    fill_sequence(out, {start, 0, step}, compute_of(out));
  }
  return out;
}

void linspace(at::TensorIterator& iter, const c10::Scalar& start, const c10::Scalar& end,
              int64_t steps) {
  const at::Tensor out = iter.tensor(0);
  if (out.is_complex()) {
    const auto first = start.to<c10::complex<double>>(), last = end.to<c10::complex<double>>();
    const auto step = (last - first) / static_cast<double>(steps - 1);
    fill_sequence(out, {first, last, step, /*symmetric=*/true}, compute_of(out));
    return;
  }
  const auto [first, last] = bounds("linspace", out.scalar_type(), start, end);
  const double step = step_of(out, first, last, steps);
  fill_sequence(out, {first, last, step, /*symmetric=*/true}, compute_of(out));
}

at::Tensor& logspace_out(const c10::Scalar& start, const c10::Scalar& end, int64_t steps,
                         double base, at::Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  if (steps == 0) return out;
  if (out.is_complex()) {
    const at::Tensor exponents = at::linspace(start, end, steps, out.options());
    return out.copy_(at::pow(c10::Scalar(c10::complex<double>(base)), exponents));
  }
  if (c10::isFloat8Type(out.scalar_type()) && steps == 1) {
    out.fill_(std::pow(base, start.to<double>()));
    return out;
  }
  // One step stands at the start.
  const auto [first, last] = steps == 1 ? std::pair{start.to<double>(), start.to<double>()}
                                        : bounds("logspace", out.scalar_type(), start, end);
  const double step = steps == 1 ? 0 : step_of(out, first, last, steps);
  fill_sequence(out, {first, last, step, /*symmetric=*/true, /*power=*/true, base},
                compute_of(out));
  return out;
}

// Upstream's calls the CPU's function.
at::Tensor& range_out_(const c10::Scalar& start, const c10::Scalar& end, at::Tensor& out) {
  return range_out(start, end, 1, out);
}

}  // namespace ocl::native
