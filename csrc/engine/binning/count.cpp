#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/binning/count.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::binning {

namespace {

constexpr int64_t kSlice = int64_t{1} << 31;  // elements that a uint counter holds
constexpr int64_t kLocalBins = 4096;          // 16 KiB, half of what every OpenCL device has

const KernelFamily private_family{"binning/count.cl", "count_private"};
const KernelFamily atomic_family{"binning/count.cl", "count_atomic"};
const KernelFamily local_family{"binning/count.cl", "count_local"};
const KernelFamily finish_family{"binning/count.cl", "count_finish"};

using namespace kernel_types;
#include "binning/arguments.clh"

/// A histogram of fewer than 2^31 numbers.
struct Plan {
  Device& device;
  Queue& queue;
  const at::Tensor& bins;
  const at::Tensor& out;

  int64_t n() const { return bins.numel(); }
  int64_t size() const { return out.numel(); }
};

/// Counts into `copies` arrays of counters by `family`, then adds these up.
void run(const Plan& plan, const KernelFamily& family, int64_t copies, const at::Tensor& counters,
         const NDRange& range) {
  const Pointer in{plan.bins.const_data_ptr()}, middle{counters.mutable_data_ptr()};
  const Arguments arguments{plan.bins.stride(0) * plan.bins.element_size(),
                            plan.out.stride(0) * plan.out.element_size(),
                            static_cast<uint32_t>(plan.n()),
                            static_cast<uint32_t>(ceil_div(plan.n(), copies)),
                            static_cast<uint32_t>(plan.size()),
                            static_cast<uint32_t>(copies)};
  const auto get = [&](const KernelFamily& family) -> Kernel& {
    return family.get(plan.device, {{"INDEX", tag(plan.bins.scalar_type())},
                                    {"OUT", tag(plan.out.scalar_type())},
                                    {"LOCAL_BINS", &family == &local_family ? kLocalBins : 16}});
  };
  launch(get(family), plan.queue, range, in, middle, arguments);
  launch(get(finish_family), plan.queue, NDRange::linear(plan.size(), group_of_lanes(plan.device)),
         middle, Pointer{plan.out.mutable_data_ptr()}, arguments);
}

void run_copies(Plan& plan) {
  // Copies cost a pass over all of their counters.
  const int64_t copies = std::max<int64_t>(
      1, std::min({items_of_cores(plan.device), plan.n() / device_row(plan.device).item_elements,
                   2 * plan.n() / plan.size()}));
  run(plan, private_family, copies,
      at::empty({copies * plan.size()}, plan.bins.options().dtype(at::kInt)),
      NDRange::linear(copies, 1));
}

void run_atomics(const Plan& plan, const KernelFamily& family) {
  const size_t group = group_of_elements(plan.device);
  const size_t most = static_cast<size_t>(groups_of_units(plan.device)) * group;
  run(plan, family, 1, at::zeros({plan.size()}, plan.bins.options().dtype(at::kInt)),
      NDRange::linear(std::min<size_t>(plan.n(), most), group));
}

constexpr Implementation<Plan> copies{
    "copies", [](const Plan& plan) { return plan.device.is_cpu() ? nullptr : "a kernel for CPUs"; },
    run_copies};
constexpr Implementation<Plan> in_local_memory{
    "local",
    [](const Plan& plan) {
      return plan.size() > kLocalBins ? "more bins than local memory holds" : nullptr;
    },
    [](Plan& plan) { run_atomics(plan, local_family); }};
constexpr Implementation<Plan> atomics{"atomic", [](const Plan&) -> const char* { return nullptr; },
                                       [](Plan& plan) { run_atomics(plan, atomic_family); }};
constexpr const Implementation<Plan>* kImplementations[] = {&copies, &in_local_memory, &atomics};

const Engine engine{"binning", kImplementations};

std::string describe(const Plan& plan) {
  return "binning " + std::to_string(plan.n()) + " " + tag(plan.bins.scalar_type()) + " into " +
         std::to_string(plan.size());
}

void count_slice(const at::Tensor& bins, const at::Tensor& out) {
  Queue& queue = current_queue(bins.device().index());
  Plan plan{queue.device(), queue, bins, out};
  run_first(engine, kImplementations, plan, describe);
}

}  // namespace

void count(const at::Tensor& bins, const at::Tensor& counts) {
  if (bins.numel() == 0 || counts.numel() == 0) return;
  TORCH_CHECK_NOT_IMPLEMENTED(counts.numel() <= UINT32_MAX, "ocl: a histogram of ", counts.numel(),
                              " bins");
  for (int64_t first = 0; first < bins.numel(); first += kSlice) {
    count_slice(bins.narrow(0, first, std::min(kSlice, bins.numel() - first)), counts);
  }
}

}  // namespace ocl::binning
