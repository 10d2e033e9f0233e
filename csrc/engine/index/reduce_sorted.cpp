// Launches kernels/index/reduce_sorted.cl.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <algorithm>
#include <bit>
#include <limits>

#include "engine/device_table.h"
#include "engine/index/reduce.h"
#include "engine/sort/plan.h"
#include "opencl/kernel_family.h"

namespace ocl::index {

namespace {

const KernelFamily places_family{"index/reduce_sorted.cl", "index_places"};
const KernelFamily combine_family{"index/reduce_sorted.cl", "index_combine"};

int64_t count_of(const Problem& problem, const Dimensions& dimensions) {
  int64_t n = 1;
  for (int i = 0; i < dimensions.count; ++i) n *= problem.size[dimensions.of[i]];
  return n;
}

/// Elements are the steps and those columns whose indices differ; the other columns share theirs.
void split(const ReducePlan& plan, Dimensions& elements, Dimensions& shared) {
  const Problem& problem = plan.problem;
  elements = plan.steps;
  for (int i = 0; i < plan.columns.count; ++i) {
    const int d = plan.columns.of[i];
    bool same = true;
    for (int k = 2; k < problem.operands(); ++k) same = same && problem.stride[k][d] == 0;
    (same ? shared : elements).add(d);
  }
}

const char* refuse(const ReducePlan& plan) {
  if (plan.device().is_cpu()) return "a kernel for GPUs";
  if (c10::isFloat8Type(plan.problem.dtype)) return "float8, of which every sum is rounded";
  Dimensions elements, shared;
  split(plan, elements, shared);
  const int64_t n = count_of(plan.problem, elements);
  if (n < device_row(plan.device()).sorted_indices) return "few elements";
  if (n > std::numeric_limits<int32_t>::max()) return "2^31 elements or more";
  return elements.count > plan.problem.max_reduce_dims() ? "too many dimensions" : nullptr;
}

/// Numbers of places that elements may go to, counted in elements from the result's start.
uint64_t places_of(const Problem& problem, const Indexing& indexing, const Dimensions& elements) {
  uint64_t last = 0;
  for (int i = 0; i < elements.count; ++i) {
    const int d = elements.of[i];
    last += static_cast<uint64_t>((problem.size[d] - 1) * problem.stride[0][d]);
  }
  for (size_t k = 0; k < indexing.sizes.size(); ++k) {
    last +=
        static_cast<uint64_t>(std::max<int64_t>(indexing.sizes[k] - 1, 0) * indexing.strides[k]);
  }
  return last / c10::elementSize(problem.dtype) + 1;
}

sort::KeyType key_of(uint64_t places) {
  const int bits = std::bit_width(places);
  return {bits <= 32 ? "u32" : "u64", sort::KeyType::kUnsigned, static_cast<uint8_t>(bits),
          bits <= 32 ? 4u : 8u, 0};
}

void run(ReducePlan& plan) {
  const Problem& problem = plan.problem;
  const Job& job = plan.job;
  Dimensions elements, shared;
  split(plan, elements, shared);
  Device& device = plan.device();
  const c10::ScalarType compute = compute_dtype(problem.dtype);
  const sort::KeyType key = key_of(places_of(problem, job.indexing, elements));
  const Define defines[] = {{"NIDX", problem.indices},
                            {"INDEX", tag(problem.index_dtype)},
                            {"WRAP", job.indexing.wrap},
                            {"E", tag(problem.dtype)},
                            {"C", tag(compute)},
                            {"REDUCE", name_of(job.reduction)},
                            {"FILL", job.value != nullptr},
                            {"KEY", key.tag}};
  ReduceArguments arguments = make_arguments(problem, job, shared, elements);
  arguments.nowhere = (uint64_t{1} << (key.bits - 1) << 1) - 1;
  const uint32_t n = arguments.steps;
  sort::Plan order{device, plan.queue, key, 1, n, n, {}, {}};
  order.keys = order.allocate_keys();
  const auto go = [&](const KernelFamily& family, size_t items, const auto&... others) {
    launch(family.get(device, defines), plan.queue, NDRange::linear(items, group_of_rows(device)),
           problem.pointers(), used_part(arguments, problem), device.asserts().mem(),
           job.indexing.site.id(), others...);
  };
  go(places_family, n, Pointer{order.keys.get()});
  sort::sort_keys(order);
  static constexpr unsigned char kUnused[16] = {};
  go(combine_family, size_t{n} * arguments.columns, Pointer{order.keys.get()},
     Pointer{order.index.get()},
     Bytes{job.value ? job.value->bytes : kUnused, c10::elementSize(compute)});
}

}  // namespace

const ReduceImplementation reduce_sorted{"sorted", refuse, run};

}  // namespace ocl::index
