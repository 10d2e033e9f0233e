#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/sort/runs.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "engine/device_table.h"
#include "engine/sort/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::sort {

namespace {

constexpr uint32_t kMinChunk = 64;

const KernelFamily count_family{"sort/runs.cl", "sort_count_runs"};
const KernelFamily write_family{"sort/runs.cl", "sort_write_runs"};
const KernelFamily group_count_family{"sort/runs.cl", "sort_count_runs_in_groups"};
const KernelFamily group_write_family{"sort/runs.cl", "sort_write_runs_in_groups"};
const KernelFamily merge_family{"sort/merge.cl", "sort_merge"};

}  // namespace

struct Runs::Forms {
  static constexpr Implementation<Runs> groups{
      "groups",
      [](const Runs& runs) -> const char* {
        const Device& device = runs.queue_.device();
        if (device.is_cpu()) return "a CPU's work-item goes through a chunk alone";
        return device.properties().max_work_group_size < group_of_elements(device)
                   ? "work-groups are too small"
                   : nullptr;
      },
      [](Runs& runs) { runs.count(true); }};
  static constexpr Implementation<Runs> chunks{"chunks",
                                               [](const Runs&) -> const char* { return nullptr; },
                                               [](Runs& runs) { runs.count(false); }};
  static constexpr const Implementation<Runs>* all[] = {&groups, &chunks};
};

std::span<const Implementation<Runs>* const> runs_implementations() { return Runs::Forms::all; }

Runs::Runs(const KeyType& key, const void* keys, const void* index, uint32_t n, uint32_t columns,
           const at::TensorOptions& options)
    : queue_(current_queue(options.device().index())),
      key_(key),
      keys_(keys),
      index_(index),
      n_(n),
      columns_(columns) {
  if (n == 0) return;
  counts_ = at::empty({0}, options.dtype(at::kInt));
  count_runs(*this);
}

void Runs::count(bool in_groups) {
  in_groups_ = in_groups;
  const Device& device = queue_.device();
  const uint32_t wanted = wanted_items(device) * (device.is_cpu() ? 8 : 1);
  chunk_ = in_groups_ ? kRunShare * static_cast<uint32_t>(group_of_elements(device))
                      : std::max(kMinChunk, n_ / wanted + 1);
  chunks_ = ceil_div(n_, chunk_);
  counts_ = at::empty({int64_t{chunks_} + 1}, counts_.options());
  launch(get(in_groups_ ? group_count_family : count_family), queue_, range(), Pointer{keys_},
         Pointer{index_}, Pointer{counts_.mutable_data_ptr()},
         RunArguments{n_, chunk_, columns_, index_ != nullptr});
  scan_counts(queue_, counts_.mutable_data_ptr(), chunks_, 1);
}

Kernel& Runs::get(const KernelFamily& family) const {
  return family.get(queue_.device(), {{"KEY", key_.tag},
                                      {"ORDER", static_cast<int>(key_.kind)},
                                      {"COLUMNS", columns_ != 1},
                                      {"GROUP", group_of_elements(queue_.device())}});
}

NDRange Runs::range() const {
  const size_t group = group_of_elements(queue_.device());
  return in_groups_ ? NDRange::linear(chunks_ * group, group)
                    : NDRange::linear(chunks_, group_of_lanes(queue_.device()));
}

int64_t Runs::total() const {
  // The count is unsigned, the dtype is not: kernels write bits.
  return n_ == 0 ? 0 : static_cast<uint32_t>(counts_.select(0, chunks_).item<int32_t>());
}

void Runs::write(const at::Tensor& firsts, const at::Tensor& starts,
                 const at::Tensor& inverse) const {
  if (n_ == 0) return;
  const auto pointer = [](const at::Tensor& tensor) {
    return Pointer{tensor.defined() ? tensor.mutable_data_ptr() : nullptr};
  };
  const uint32_t wanted =
      (firsts.defined() ? 1 : 0) | (starts.defined() ? 2 : 0) | (inverse.defined() ? 4 : 0);
  launch(get(in_groups_ ? group_write_family : write_family), queue_, range(), Pointer{keys_},
         Pointer{index_}, Pointer{counts_.const_data_ptr()}, pointer(firsts), pointer(starts),
         pointer(inverse), wanted, RunArguments{n_, chunk_, columns_, index_ != nullptr});
}

c10::DataPtr sort_lexicographic(const Rows& rows) {
  const uint32_t n = rows.rows();
  if (n == 0) return {};
  Queue& queue = rows.queue();
  c10::DataPtr from = allocate(size_t{n} * sizeof(uint32_t));
  c10::DataPtr to = allocate(size_t{n} * sizeof(uint32_t));
  Kernel& kernel = merge_family.get(queue.device(), {{"KEY", rows.key().tag}});
  // At least once, which writes the order of a single row.
  for (uint64_t width = 1; width < n || width == 1; width *= 2) {
    launch(kernel, queue, NDRange::linear(n, group_of_lanes(queue.device())), Pointer{rows.keys()},
           Pointer{from.get()}, Pointer{to.get()}, n, rows.n(), static_cast<uint32_t>(width),
           uint32_t{width == 1});
    std::swap(from, to);
  }
  return from;
}

}  // namespace ocl::sort
