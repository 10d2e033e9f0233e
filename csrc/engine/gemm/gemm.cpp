#include "engine/gemm/gemm.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "engine/tuner/tuner.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::gemm {

using c10::ScalarType;

namespace {

/// Multiplications and additions that take as long as one of NDRange's operations: a lane of the
/// narrowest vectors each.
constexpr int64_t kProductsPerOperation = 4;

/// The tag computed with: unsigned integers wrap without undefined behaviour, and the low bits of a
/// sum of products don't depend on the signs of its terms.
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

Plan make_plan(const Description& d) {
  const ScalarType dtype = d.out.dtype;
  const char* compute = compute_tag_of(dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(compute != nullptr, "\"gemm\" not implemented for '",
                              c10::toString(dtype), "'");
  Queue& queue = current_queue(current_device());
  Plan plan(queue);
  plan.complex = c10::isComplexType(dtype);
  plan.tf32 = d.tf32;
  plan.bfloat16_products = d.bfloat16_products;
  plan.products = d.products;
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

  Arguments& p = plan.problem;
  p.m = checked_size(d.m);
  p.n = checked_size(d.n);
  p.k = is_zero(dtype, plan.alpha) ? 0 : checked_size(d.k);
  // An empty sum is 0 even if alpha is infinite.
  if (p.k == 0) std::memset(plan.alpha.bytes, 0, plan.alpha.size);
  p.batch = checked_size(d.batch);
  p.splits = 1;
  p.split_k = p.k;
  p.a_plane = d.a_plane;
  p.b_plane = d.b_plane;
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

std::string describe(const Plan& plan) {
  const Arguments& p = plan.problem;
  return "gemm " + std::to_string(p.batch) + "x" + std::to_string(p.m) + "x" + std::to_string(p.n) +
         "x" + std::to_string(p.k) + " " + plan.a_tag + "," + plan.b_tag + "->" + plan.out_tag +
         (plan.windows != nullptr ? ", windows" : "");
}

}  // namespace

void run_product(const Plan& plan) {
  // What is packed already is for that kernel alone, small as the product may be.
  if (plan.b_packed) {
    if (dispatch_is_traced()) trace_dispatch(describe(plan) + ": packed runs");
    packed.run(plan);
    return;
  }
  check_forced_tile();
  if (__builtin_expect(tuner::epoch() != 0, 0) && engine.forced() == nullptr &&
      plan.bfloat16_products == 0 && run_tuned(plan)) {
    return;
  }
  run_first(engine, all_products(), products(plan.device), plan, describe);
}

const char* refuse_windows(ScalarType dtype, bool tf32, bool tiles) {
  const Device& device = ocl::device(current_device());
  const DeviceProperties& p = device.properties();
  const bool halves = dtype == ScalarType::Half || dtype == ScalarType::BFloat16;
  const Product* const forced = forced_among(engine, all_products_of_windows());
  if (forced == &tiled) return c10::isFloatingType(dtype) ? nullptr : "not a floating-point type";
  if (forced == &subgroup_matrix && p.required_sub_group_sizes != 0) {
    return halves ? nullptr : "not of 16 bits";
  }
  if (halves && (p.has_tensor_cores || p.subgroup_matrix_size != 0)) return nullptr;
  if (dtype == ScalarType::Float && p.has_tensor_cores && tf32) return nullptr;
  if (tiles && !device.is_cpu() && (halves || dtype == ScalarType::Float)) return nullptr;
  if (halves) return "the device has neither NVIDIA's tensor cores nor Intel's matrix units";
  return dtype == ScalarType::Float ? "single precision, where TF32 isn't there or allowed"
                                    : "neither of 16 bits nor TF32";
}

bool Windows::rows_are_multiples(uint64_t elements) const {
  if (side != a) return true;
  const WindowArguments& w = arguments;
  return w.out_image % elements == 0 &&
         std::ranges::all_of(w.out_stride, [&](uint32_t each) { return each % elements == 0; });
}

void Windows::set_grid(int axis, uint32_t positions) {
  // Of numbers below 2^31: ceil(2^(31 + s) / d), with 2^s >= d.
  const uint32_t shift = positions <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(positions - 1));
  arguments.grid[axis] = positions;
  arguments.shift[axis] = shift;
  arguments.reciprocal[axis] =
      shift == 0
          ? 0
          : static_cast<uint32_t>(ceil_div(uint64_t{1} << (31 + shift), uint64_t{positions}));
}

void product_of_windows(const Description& description, const Windows& windows,
                        const Epilogue* epilogue) {
  Plan plan = make_plan(description);
  plan.windows = &windows;
  plan.epilogue = epilogue;
  const Plan& given = plan;
  run_first(engine, all_products_of_windows(), products_of_windows(plan.device), given, describe);
}

bool takes(ScalarType dtype) { return compute_tag_of(dtype) != nullptr; }

Plan Plan::transposed() const {
  Plan t = *this;
  std::swap(t.a, t.b);
  std::swap(t.a_tag, t.b_tag);
  std::swap(t.a_size, t.b_size);
  Arguments& p = t.problem;
  std::swap(p.m, p.n);
  std::swap(p.row0, p.column0);
  p.flags ^= kTransposed;
  std::swap(p.a, p.b);
  std::swap(p.a_plane, p.b_plane);
  for (Strides* s : {&p.a, &p.b, &p.c, &p.out}) std::swap(s->row, s->column);
  const uint32_t conjugates = problem.flags & (kConjugateA | kConjugateB);
  p.flags &= ~(kConjugateA | kConjugateB);
  if (conjugates & kConjugateA) p.flags |= kConjugateB;
  if (conjugates & kConjugateB) p.flags |= kConjugateA;
  return t;
}

Workspace::Workspace(size_t bytes)
    : memory_(bytes == 0 ? c10::DataPtr() : allocator()->allocate(bytes)) {}

Kernel& get_kernel(const KernelFamily& family, const Plan& plan,
                   std::span<const Define> parameters) {
  constexpr size_t kMost = 24;
  std::array<Define, kMost> defines;
  size_t count = 0;
  const auto add = [&](const Define& define) { defines[count++] = define; };
  add({"C", plan.compute_tag});
  add({"IN0", plan.a_tag});
  add({"IN1", plan.b_tag});
  add({"OUT", plan.out_tag});
  add({"ACTIVATION", plan.activation});
  TORCH_INTERNAL_ASSERT(parameters.size() + count <= kMost);
  for (const Define& define : parameters) add(define);
  return family_with(plan.epilogue, family)
      .get(plan.device, std::span<const Define>(defines).first(count));
}

void launch_product(Kernel& kernel, const Plan& plan, const NDRange& range, const void* workspace,
                    std::span<const unsigned char> extra) {
  cl_uint index = 0;
  detail::set_argument(kernel, index, Pointer{plan.a});
  detail::set_argument(kernel, index, Pointer{plan.b});
  detail::set_argument(kernel, index, Pointer{plan.c});
  detail::set_argument(kernel, index, Pointer{plan.out});
  detail::set_argument(kernel, index, Pointer{workspace != nullptr ? workspace : plan.out});
  kernel.set_value(index++, plan.problem);
  kernel.set_bytes(index++, plan.alpha.bytes, plan.alpha.size);
  kernel.set_bytes(index++, plan.beta.bytes, plan.beta.size);
  set_epilogue(kernel, index, plan.epilogue);
  if (!extra.empty()) kernel.set_bytes(index++, extra.data(), extra.size());
  const Arguments& p = plan.problem;
  const int64_t results = int64_t{p.m} * p.n;  // written even where there is nothing to sum
  const int64_t work = std::max(results, results * p.k / kProductsPerOperation);
  kernel.enqueue(plan.queue, range.of_work(work * p.batch));
}

std::span<const unsigned char> windows_of(const Plan& plan) {
  if (plan.windows == nullptr) return {};
  return {reinterpret_cast<const unsigned char*>(&plan.windows->arguments),
          sizeof plan.windows->arguments};
}

void copy_lines(const Plan& plan, const char* source, size_t element_size, uint64_t stride,
                uint64_t line_stride, uint64_t batch_stride, uint32_t length, uint32_t lines,
                uint64_t pitch, char* copy) {
  static const KernelFamily family{"gemm/copy_lines.cl", "gemm_copy_lines"};
  const char* bits = element_size == 16 ? "u128" : bits_tag(element_size);
  const bool cpu = plan.device.is_cpu();
  // A GPU's work-item writes 16 bytes.
  const uint64_t most = element_size < 8 ? 16 / element_size : 1;
  const uint64_t width =
      !cpu && stride == 1 && pitch % most == 0 && reinterpret_cast<uintptr_t>(copy) % 16 == 0 ? most
                                                                                              : 1;
  const size_t chunks = ceil_div(uint64_t{length}, width);
  launch(family.get(plan.device, {{"TAG", bits}, {"WIDTH", width}}), plan.queue,
         NDRange::grid(chunks * lines, plan.problem.batch, group_of_lanes(plan.device), 1),
         Pointer{source}, Pointer{copy}, cl_ulong{stride}, cl_ulong{line_stride},
         cl_ulong{batch_stride}, length, lines, cl_ulong{pitch});
}

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

bool wants_contiguous_k(const Description& description) {
  // A copied float is worth that many products.
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
  // What a GPU's grid has at least in its third dimension.
  constexpr uint32_t kMostBatches = 65535;
  for (uint32_t left = plan.problem.batch; left > 0; left -= plan.problem.batch) {
    plan.problem.batch = std::min(left, kMostBatches);
    run_product(plan);
    const Arguments& p = plan.problem;
    plan.problem.batch0 += p.batch;
    plan.a += p.a.batch * p.batch * plan.a_size;
    plan.b += p.b.batch * p.batch * plan.b_size;
    plan.c += p.c.batch * p.batch * plan.out_size;
    plan.out += p.out.batch * p.batch * plan.out_size;
  }
}

bool is_empty(const Description& d) { return d.m == 0 || d.n == 0 || d.batch == 0; }

}  // namespace

void product(const Description& description) {
  if (!is_empty(description)) run_batches(make_plan(description));
}

void product(const Description& description, const Epilogue& epilogue) {
  if (is_empty(description)) return;
  Plan plan = make_plan(description);
  plan.epilogue = &epilogue;
  run_batches(plan);
}

}  // namespace ocl::gemm
