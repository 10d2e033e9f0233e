// Launches kernels/index/reduce_sorted.cl.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <algorithm>
#include <bit>
#include <limits>

#include "engine/index/reduce.h"
#include "engine/sort/plan.h"
#include "opencl/kernel_family.h"

namespace ocl::index {

namespace {

// Fewer are walked through by every work-item: that is one launch.
constexpr int64_t kFewElements = 64;
constexpr size_t kLocalSize = 128;

const KernelFamily places_family{"index/reduce_sorted.cl", "index_places"};
const KernelFamily combine_family{"index/reduce_sorted.cl", "index_combine"};

int64_t product(const Problem& problem, const Dimensions& dimensions) {
  int64_t n = 1;
  for (int i = 0; i < dimensions.count; ++i) n *= problem.size[dimensions.of[i]];
  return n;
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

}  // namespace

bool reduce_sorted(Queue& queue, const Problem& problem, const Job& job, const Dimensions& columns,
                   const Dimensions& steps) {
  Dimensions elements = steps, shared;
  for (int i = 0; i < columns.count; ++i) {
    const int d = columns.of[i];
    bool same = true;
    for (int k = 2; k < problem.operands(); ++k) same = same && problem.stride[k][d] == 0;
    (same ? shared : elements).add(d);
  }
  const int most = max_reduce_dims(problem);
  const int64_t n = product(problem, elements), width = product(problem, shared);
  if (elements.count > most || shared.count > most || n < kFewElements ||
      n > std::numeric_limits<int32_t>::max()) {
    return false;
  }
  Device& device = queue.device();
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
  ArgumentStruct arguments;
  std::array<cl_mem, kMaxOperands> mems;
  put_operands(arguments, mems, device, problem, job.indexing);
  arguments.put64(static_cast<uint64_t>(job.skipped));
  arguments.put64((uint64_t{1} << (key.bits - 1) << 1) - 1);
  arguments.put32(static_cast<uint32_t>(n));
  arguments.put32(static_cast<uint32_t>(width));
  arguments.put32(static_cast<uint32_t>(elements.count));
  arguments.put32(static_cast<uint32_t>(shared.count));
  arguments.put32(job.skipped != kSkipNothing);
  put_dimensions(arguments, problem, elements);
  put_dimensions(arguments, problem, shared);
  arguments.finish();

  sort::SortPlan plan{device, queue, key, 1, static_cast<uint32_t>(n), {}, {}};
  plan.keys = plan.allocate_keys();
  plan.index = plan.allocate_index();
  const auto set_pointer = [&](Kernel& kernel, cl_uint& next, const void* address) {
    const Location location = device.addresses().find(address);
    kernel.set_buffer(next++, location.mem);
    kernel.set_value(next++, location.offset);
  };
  Kernel& places = places_family.get(device, defines);
  cl_uint next = set_arguments(places, problem, job.indexing, mems, arguments);
  set_pointer(places, next, plan.keys.get());
  places.enqueue(queue, NDRange::linear(n, kLocalSize));
  sort::sort_keys(plan);
  Kernel& combine = combine_family.get(device, defines);
  next = set_arguments(combine, problem, job.indexing, mems, arguments);
  set_pointer(combine, next, plan.keys.get());
  set_pointer(combine, next, plan.index.get());
  static constexpr unsigned char kUnused[16] = {};
  combine.set_bytes(next, job.value ? job.value->bytes : kUnused, c10::elementSize(compute));
  combine.enqueue(queue, NDRange::linear(static_cast<size_t>(n) * width, kLocalSize));
  return true;
}

}  // namespace ocl::index
