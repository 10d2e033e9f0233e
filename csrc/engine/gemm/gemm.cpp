#include "engine/gemm/gemm.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "engine/dtype.h"
#include "engine/gemm/plan.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::gemm {

using c10::ScalarType;

namespace {

/// The tag computed with: unsigned integers wrap without undefined behaviour, and the low bits of a
/// sum don't depend on the signs of its terms.
const char* compute_tag_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
    case ScalarType::Half:
    case ScalarType::BFloat16:
      return "f32";
    case ScalarType::Double:
      return "f64";
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Short:
    case ScalarType::Int:
      return "u32";
    case ScalarType::Long:
      return "u64";
    case ScalarType::ComplexFloat:
      return "c64";
    case ScalarType::ComplexDouble:
      return "c128";
    default:
      return nullptr;
  }
}

size_t compute_size_of(ScalarType dtype) { return std::max<size_t>(4, c10::elementSize(dtype)); }

template <class To, class From>
ScalarArgument widen(const ScalarArgument& argument) {
  From narrow;
  std::memcpy(&narrow, argument.bytes, sizeof narrow);
  const To wide = static_cast<To>(narrow);
  ScalarArgument result{};
  std::memcpy(result.bytes, &wide, sizeof wide);
  result.size = sizeof wide;
  return result;
}

/// alpha or beta: checked and truncated in out's dtype, then in the type computed with.
ScalarArgument scalar_of(ScalarType dtype, const c10::Scalar& value) {
  const ScalarArgument argument = scalar_argument(compute_dtype(dtype), value);
  switch (dtype) {
    case ScalarType::Byte:
      return widen<uint32_t, uint8_t>(argument);
    case ScalarType::Char:
      return widen<uint32_t, int8_t>(argument);
    case ScalarType::Short:
      return widen<uint32_t, int16_t>(argument);
    default:
      return argument;
  }
}

/// True for 0 and -0 in the type computed with.
bool is_zero(ScalarType dtype, const ScalarArgument& argument) {
  const auto all_zero = [&]<class Element>() {
    std::array<Element, sizeof argument.bytes / sizeof(Element)> elements;
    std::memcpy(elements.data(), argument.bytes, sizeof argument.bytes);
    const auto end = elements.begin() + argument.size / sizeof(Element);
    return std::all_of(elements.begin(), end, [](Element x) { return x == 0; });
  };
  switch (compute_dtype(dtype)) {
    case ScalarType::Float:
    case ScalarType::ComplexFloat:
      return all_zero.template operator()<float>();
    case ScalarType::Double:
    case ScalarType::ComplexDouble:
      return all_zero.template operator()<double>();
    default:
      return all_zero.template operator()<unsigned char>();
  }
}

/// Strides as a kernel takes them. A dimension of size 1 gets the stride that opens the fast paths.
Strides strides_of(const Operand& operand, int64_t rows, int64_t columns, int64_t batch) {
  Strides s{static_cast<uint64_t>(operand.row_stride), static_cast<uint64_t>(operand.column_stride),
            batch == 1 ? 0 : static_cast<uint64_t>(operand.batch_stride)};
  if (columns <= 1) s.column = 1;
  if (rows <= 1) s.row = s.column == 1 ? static_cast<uint64_t>(columns) : 1;
  return s;
}

uint32_t checked_size(int64_t size) {
  TORCH_CHECK(size >= 0 && size <= std::numeric_limits<int32_t>::max(),
              "ocl: a matrix product with a dimension of ", size, " elements");
  return static_cast<uint32_t>(size);
}

}  // namespace

Plan make_plan(const Description& d) {
  const ScalarType dtype = d.out.dtype;
  const char* compute = compute_tag_of(dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(compute != nullptr, "\"gemm\" not implemented for '",
                              c10::toString(dtype), "'");
  Queue& queue = current_queue(current_device());
  Plan plan(queue);
  plan.complex = c10::isComplexType(dtype);
  plan.tf32 = d.tf32;
  plan.rounded_terms = d.rounded_terms;
  plan.exact_terms = d.exact_terms;
  plan.windows = d.windows;
  plan.compute_tag = compute;
  plan.compute_size = compute_size_of(dtype);
  plan.a_tag = tag(d.a.dtype);
  plan.b_tag = tag(d.b.dtype);
  plan.out_tag = tag(dtype);
  plan.a_size = c10::elementSize(d.a.dtype);
  plan.b_size = c10::elementSize(d.b.dtype);
  plan.out_size = c10::elementSize(dtype);
  plan.activation = static_cast<int>(d.activation);
  plan.alpha = scalar_of(dtype, d.alpha);
  plan.beta = scalar_of(dtype, d.beta);
  plan.parameters = parameters_of(plan.device, plan.compute_size, plan.complex);
  if (takes_amx(plan)) plan.parameters.packed = parameters_of_amx();

  Arguments& p = plan.problem;
  p.m = checked_size(d.m);
  p.n = checked_size(d.n);
  p.k = is_zero(dtype, plan.alpha) ? 0 : checked_size(d.k);
  // An empty sum is 0 even if alpha is infinite.
  if (p.k == 0) std::memset(plan.alpha.bytes, 0, plan.alpha.size);
  p.batch = checked_size(d.batch);
  p.splits = 1;
  p.split_k = p.k;
  p.a_part = d.a_part;
  p.b_part = d.b_part;
  if (p.k > 0) {
    p.a = strides_of(d.a, d.m, d.k, d.batch);
    p.b = strides_of(d.b, d.k, d.n, d.batch);
  }
  p.out = strides_of(d.out, d.m, d.n, d.batch);
  const bool addend = !is_zero(dtype, plan.beta);
  if (addend) p.c = strides_of(d.c, d.m, d.n, d.batch);
  p.flags = (addend ? kAddend : 0) | (d.a.conjugate ? kConjugateA : 0) |
            (d.b.conjugate ? kConjugateB : 0) | (d.c.conjugate ? kConjugateC : 0) |
            (d.out.conjugate ? kConjugateOut : 0);
  plan.b_packed = d.b_packed && p.k > 0;
  plan.out = static_cast<char*>(const_cast<void*>(d.out.data));
  // A kernel that reads nothing of an operand still gets a buffer that exists.
  plan.a = p.k == 0 ? plan.out : static_cast<const char*>(d.a.data);
  plan.b = p.k == 0 ? plan.out : static_cast<const char*>(d.b.data);
  plan.c = addend ? static_cast<const char*>(d.c.data) : plan.out;
  return plan;
}

bool takes(ScalarType dtype) { return compute_tag_of(dtype) != nullptr; }

Panels panels_for(const Device& device, ScalarType dtype, int64_t k, int64_t n) {
  if (!device.is_cpu() || k == 0 || n == 0) return {};
  Description d;
  d.n = n;
  d.k = k;
  d.a.dtype = d.b.dtype = d.out.dtype = dtype;
  return panels_of(make_plan(d));
}

void pack(const Operand& b, int64_t k, int64_t n, void* panels) {
  Description d;
  d.n = n;
  d.k = k;
  d.a = d.b = b;
  d.out.data = panels;
  d.out.dtype = b.dtype;
  pack_columns(make_plan(d), panels);
}

bool takes_k_blocking(const Description& description) {
  const Plan plan = make_plan(description);
  return plan.device.is_cpu() && k_blocking.refuse(plan) == nullptr;
}

bool prefers_dots(ScalarType a, ScalarType b, ScalarType out, int64_t few, int64_t k) {
  Description d;
  d.m = d.n = few;
  d.k = k;
  d.a = {nullptr, a, k, 1};
  d.b = {nullptr, b, 1, k};
  d.out.dtype = out;
  return prefers_dots(make_plan(d));
}

bool wants_contiguous_k(const Description& description) {
  // A copied float is worth that many terms.
  constexpr int64_t kLeastSize = 64, kLeastUses = 512;
  const Description& d = description;
  const bool bytes = d.a.dtype == ScalarType::Char || d.a.dtype == ScalarType::Byte;
  if ((!bytes && !d.tf32) || d.a.dtype != d.b.dtype) return false;
  const DeviceProperties& p = device(current_device()).properties();
  if (!p.has_tensor_cores || !p.has_warpgroup_mma || std::min({d.m, d.n, d.k}) < kLeastSize) {
    return false;
  }
  return bytes || ((d.a.column_stride == 1 || d.n >= kLeastUses) &&
                   (d.b.row_stride == 1 || d.m >= kLeastUses));
}

namespace {

void run_batches(Plan plan) {
  // A GPU's grid has at least so many in its third dimension.
  constexpr uint32_t kMostBatches = 65535;
  for (uint32_t left = plan.problem.batch; left > 0; left -= plan.problem.batch) {
    plan.problem.batch = std::min(left, kMostBatches);
    run_plan(plan);
    const Arguments& p = plan.problem;
    plan.problem.batch0 += p.batch;
    plan.a += p.a.batch * p.batch * plan.a_size;
    plan.b += p.b.batch * p.batch * plan.b_size;
    plan.c += p.c.batch * p.batch * plan.out_size;
    plan.out += p.out.batch * p.batch * plan.out_size;
  }
}

}  // namespace

void run(const Description& d, const Epilogue* epilogue) {
  if (d.m == 0 || d.n == 0 || d.batch == 0) return;
  Plan plan = make_plan(d);
  plan.epilogue = epilogue;
  run_batches(plan);
}

bool run_pieces(const Description& d, const PiecesOfB& pieces, const Epilogue* epilogue) {
  if (d.m == 0 || d.batch != 1 || d.m >= d.n || d.b.row_stride != 1) return false;
  Plan plan = make_plan(d);
  plan.pieces = &pieces;
  plan.epilogue = epilogue;
  return run_plan_of_pieces(plan);
}

}  // namespace ocl::gemm
