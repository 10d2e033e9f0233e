// Radix sorts: of a row per work-item, and of rows cut into parts.
#include <algorithm>
#include <utility>

#include "engine/device_table.h"
#include "engine/sort/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::sort {

namespace {

// Below that many elements a row is sorted by one work-item, whatever the others do.
constexpr uint32_t kWholeRow = 16384;
// A work-group per digit and part, and the work-items of a warp that share a digit's count.
constexpr uint32_t kWideGroup = 1 << kWideDigitBits, kWideItems = 16;

const KernelFamily rows_family{"sort/radix_rows.cl", "sort_radix_rows"};
const KernelFamily count_parts_family{"sort/radix_parts.cl", "sort_count_parts"};
const KernelFamily move_parts_family{"sort/radix_parts.cl", "sort_move_parts"};
const KernelFamily count_tiles_family{"sort/radix_tiles.cl", "sort_count_tiles"};
const KernelFamily move_tiles_family{"sort/radix_tiles.cl", "sort_move_tiles"};
const KernelFamily count_wide_family{"sort/radix_wide.cl", "sort_count_wide"};
const KernelFamily move_wide_family{"sort/radix_wide.cl", "sort_move_wide"};

const char* refuse_rows(const Plan& plan) {
  if (!plan.device.is_cpu()) return "only for CPU devices";
  return plan.n > kWholeRow && plan.rows < 2 * plan.device.properties().compute_units
             ? "the rows are few and long"
             : nullptr;
}

void run_rows(Plan& plan) {
  plan.index = plan.allocate_index();
  const c10::DataPtr spare_keys = plan.allocate_keys(), spare_index = plan.allocate_index();
  const uint32_t per_item = rows_per_item(plan.device, plan.n);
  launch(rows_family.get(plan.device, {{"KEY", plan.key.tag}}), plan.queue,
         NDRange::linear(ceil_div(plan.rows, per_item), 1), Pointer{plan.keys.get()},
         Pointer{plan.index.get()}, Pointer{spare_keys.get()}, Pointer{spare_index.get()}, plan.n,
         plan.rows, per_item);
}

/// Makes the passes with kernels that take `group` work-items for each part. The counts are
/// `arrays` for each row, of `length` each.
template <class Count, class Move>
void run_passes(Plan& plan, uint32_t digit_bits, uint32_t part, size_t group, bool by_digit,
                const Count& count, const Move& move) {
  const uint32_t parts = ceil_div(plan.n, part);
  const uint32_t length = by_digit ? parts : parts << digit_bits;
  const uint32_t arrays = by_digit ? plan.rows << digit_bits : plan.rows;
  const NDRange range = NDRange::linear(size_t{plan.rows} * parts * group, group);
  const c10::DataPtr counts = allocate(size_t{arrays} * (size_t{length} + 1) * sizeof(uint32_t));
  plan.index = plan.allocate_index();
  c10::DataPtr to_keys = plan.allocate_keys(), to_index = plan.allocate_index();
  for (uint32_t shift = 0; shift < plan.key.bits; shift += digit_bits) {
    const RadixArguments pass{plan.n, plan.rows, parts, part, shift, shift == 0};
    launch(count(), plan.queue, range, Pointer{plan.keys.get()}, Pointer{counts.get()}, pass);
    scan_counts(plan.queue, counts.get(), length, arrays);
    launch(move(), plan.queue, range, Pointer{plan.keys.get()}, Pointer{plan.index.get()},
           Pointer{to_keys.get()}, Pointer{to_index.get()}, Pointer{counts.get()}, pass);
    std::swap(plan.keys, to_keys);
    std::swap(plan.index, to_index);
  }
}

const char* refuse_parts(const Plan& plan) {
  return plan.device.is_cpu() ? nullptr : "only for CPU devices";
}

void run_parts(Plan& plan) {
  const uint64_t total = uint64_t{plan.rows} * plan.n;
  const uint32_t part =
      std::max<uint32_t>(kWholeRow, static_cast<uint32_t>(total / wanted_items(plan.device)) + 1);
  run_passes(
      plan, kPartsDigitBits, part, 1, false,
      [&]() -> Kernel& { return count_parts_family.get(plan.device, {{"KEY", plan.key.tag}}); },
      [&]() -> Kernel& { return move_parts_family.get(plan.device, {{"KEY", plan.key.tag}}); });
}

void run_tiles(Plan& plan) {
  // Both fit into 32 KiB of local memory with the counters.
  const uint32_t items = plan.key.size == 8 ? 4 : 8;
  auto group = static_cast<uint32_t>(group_of_elements(plan.device));
  while (group > plan.device.properties().max_work_group_size) group /= 2;
  const auto get = [&](const KernelFamily& family) -> Kernel& {
    return family.get(plan.device, {{"KEY", plan.key.tag}, {"GROUP", group}, {"ITEMS", items}});
  };
  run_passes(
      plan, kTilesDigitBits, group * items, group, false,
      [&]() -> Kernel& { return get(count_tiles_family); },
      [&]() -> Kernel& { return get(move_tiles_family); });
}

const char* refuse_wide(const Plan& plan) {
  const DeviceProperties& properties = plan.device.properties();
  if (properties.max_work_group_size < kWideGroup) return "work-groups are too small";
  // A tile of as many bytes, the counts of 8 warps, and 4 numbers for each digit.
  constexpr size_t kBytes = 16 * 1024 + (2 * 8 + 4) * kWideGroup * sizeof(uint32_t);
  return properties.local_memory < kBytes + 1024 ? "local memory is too small" : nullptr;
}

void run_wide(Plan& plan) {
  // Twice the work-groups where there would be few.
  const uint64_t total = uint64_t{plan.rows} * plan.n;
  const uint64_t tiles = total / (kWideGroup * kWideItems);
  const bool few = tiles < static_cast<uint64_t>(parts_of_work(plan.device));
  const uint32_t items = plan.key.size == 8 || few ? kWideItems / 2 : kWideItems;
  const auto get = [&](const KernelFamily& family) -> Kernel& {
    return family.get(plan.device, {{"KEY", plan.key.tag},
                                    {"ITEMS", items},
                                    {"VOTES", plan.device.properties().has_tensor_cores}});
  };
  run_passes(
      plan, kWideDigitBits, kWideGroup * items, kWideGroup, true,
      [&]() -> Kernel& { return get(count_wide_family); },
      [&]() -> Kernel& { return get(move_wide_family); });
}

}  // namespace

constexpr SortImplementation sort_radix_wide{"radix_wide", refuse_wide, run_wide};
constexpr SortImplementation sort_radix_rows{"radix_rows", refuse_rows, run_rows};
constexpr SortImplementation sort_radix_parts{"radix_parts", refuse_parts, run_parts};
constexpr SortImplementation sort_radix_tiles{
    "radix_tiles", [](const Plan&) -> const char* { return nullptr; }, run_tiles};

}  // namespace ocl::sort
