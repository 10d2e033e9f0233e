// The first few elements of sorted rows without sorting them (kernels/sort/select.cl).
#include <algorithm>
#include <bit>
#include <utility>

#include "engine/device_table.h"
#include "engine/sort/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::sort {

namespace {

// The kernel's buffers are a work-item's own memory: of a CPU, some KiB of its stack.
constexpr uint32_t kFew = 32, kMostCapacity = 1024;

/// The k least of each of `parts` parts of the rows, which are then the plan's rows.
void select(Plan& plan, uint32_t k, uint32_t parts, bool has_source) {
  static const KernelFamily few_family{"sort/select.cl", "sort_select_few"};
  static const KernelFamily family{"sort/select.cl", "sort_select"};
  const bool few = k <= kFew;
  const uint32_t per_item = few ? rows_per_item(plan.device, plan.n / parts) : 1;
  const SelectArguments selection{plan.n, plan.rows, k,          plan.n / parts,
                                  parts,  per_item,  parts == 1, has_source};
  const size_t units = size_t{plan.rows} * parts;
  c10::DataPtr keys = allocate(units * k * plan.key.size);
  c10::DataPtr index = allocate(units * k * sizeof(uint32_t));
  launch((few ? few_family : family)
             .get(plan.device, {{"KEY", plan.key.tag},
                                {"WIDTH", plan.key.vector()},
                                {"FEW", kFew},
                                {"CAPACITY", std::bit_ceil(std::max(2 * k, 2 * kFew))}}),
         plan.queue, NDRange::linear(ceil_div(units, per_item), 1), Pointer{plan.keys.get()},
         Pointer{has_source ? plan.index.get() : plan.keys.get()}, Pointer{keys.get()},
         Pointer{index.get()}, selection);
  plan.n = parts * k;
  plan.keys = std::move(keys);
  plan.index = std::move(index);
}

const char* refuse(const Plan& plan) {
  if (!plan.device.is_cpu()) return "only for CPU devices";
  if (plan.n / 4 < plan.wanted) return "more than a quarter of the elements is wanted";
  return 2 * plan.wanted > kMostCapacity ? "too many elements are wanted" : nullptr;
}

void run(Plan& plan) {
  const uint32_t k = plan.wanted;
  // Every core gets several parts, where they are long and have much more than is wanted.
  const uint32_t wanted = ceil_div(wanted_items(plan.device), plan.rows);
  const auto part = static_cast<uint32_t>(device_row(plan.device).item_elements);
  const uint32_t parts = std::clamp<uint32_t>(plan.n / std::max(part, 16 * k), 1, wanted);
  if (parts > 1) select(plan, k, parts, false);
  select(plan, k, 1, parts > 1);
}

}  // namespace

constexpr SortImplementation sort_select{"select", refuse, run};

}  // namespace ocl::sort
