// Sorts of rows that one work-item or work-group holds: insertion, of a few elements too, and a
// bitonic network.
#include <algorithm>
#include <bit>

#include "engine/device_table.h"
#include "engine/sort/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::sort {

namespace {

constexpr uint32_t kInsertionSize = 32;
constexpr uint32_t kBitonicMaxSize = 4096;

const KernelFamily insertion_family{"sort/insertion.cl", "sort_insertion"};
const KernelFamily bitonic_family{"sort/bitonic.cl", "sort_bitonic"};

const char* refuse_insertion(const Plan& plan) {
  if (!plan.device.is_cpu()) return "only for CPU devices";
  return plan.n > kInsertionSize ? "the rows are long" : nullptr;
}

void run_insertion(Plan& plan) {
  plan.index = plan.allocate_index();
  const uint32_t per_item = rows_per_item(plan.device, plan.n);
  launch(insertion_family.get(plan.device, {{"KEY", plan.key.tag}, {"SIZE", kInsertionSize}}),
         plan.queue, NDRange::linear(ceil_div(plan.rows, per_item), 1), Pointer{plan.keys.get()},
         Pointer{plan.index.get()}, plan.n, plan.rows, per_item);
}

/// Bytes of local memory per element: a key and a position.
size_t element_bytes(const Plan& plan) { return plan.key.size + sizeof(uint32_t); }

const char* refuse_bitonic(const Plan& plan) {
  if (plan.n > kBitonicMaxSize) return "the rows are long";
  const size_t bytes = std::bit_ceil(plan.n) * element_bytes(plan);
  // The driver may use some of it itself.
  return bytes + 1024 > plan.device.properties().local_memory ? "local memory is too small"
                                                              : nullptr;
}

void run_bitonic(Plan& plan) {
  plan.index = plan.allocate_index();
  Kernel& kernel = bitonic_family.get(plan.device, {{"KEY", plan.key.tag}});
  const uint32_t size = std::bit_ceil(plan.n);
  // A work-item takes a pair, or several of a long row; short rows share a work-group.
  const size_t group =
      std::min(group_of_rows(plan.device) * (size > 1024 ? 2 : 1), kernel.max_work_group_size());
  const uint32_t rows_per_group =
      std::max<uint32_t>(1, static_cast<uint32_t>(2 * group) / std::max<uint32_t>(2, size));
  const size_t slots = size_t{rows_per_group} * size;
  const size_t groups = ceil_div(plan.rows, rows_per_group);
  launch(kernel, plan.queue, NDRange::linear(groups * group, group), Pointer{plan.keys.get()},
         Pointer{plan.index.get()}, plan.n, size, plan.rows, rows_per_group,
         LocalMemory{slots * plan.key.size}, LocalMemory{slots * sizeof(uint32_t)});
}

}  // namespace

constexpr SortImplementation sort_insertion{"insertion", refuse_insertion, run_insertion};
constexpr SortImplementation sort_bitonic{"bitonic", refuse_bitonic, run_bitonic};

}  // namespace ocl::sort
