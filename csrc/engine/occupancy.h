// How many work-items a GPU's compute unit runs of a kernel, by what its work-groups take of it. By
// this kernels choose among tiles, and among forms that keep values in registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "engine/device_table.h"
#include "opencl/kernel_family.h"

namespace ocl {

/// A work-group's needs, estimated from the kernel's tile: registers of 4 bytes of a work-item,
/// work-items, bytes of local memory.
struct GroupNeed {
  int64_t registers, items, local_memory;
};

/// Registers that a work-item of a kernel with a tile has: its sums, `pieces` of each operand, in
/// values of `bytes`, and `others` for addresses and what is on its way.
constexpr int64_t tile_registers(int64_t sums, int64_t pieces, size_t bytes, int64_t others = 24) {
  return (sums + 2 * pieces) * static_cast<int64_t>(bytes) / 4 + others;
}

/// Registers of a work-item that holds so many values of `bytes`. Where compilers load early, it
/// has those of the next step, or the addresses of all of them, too: twice the values, as AMD's and
/// Intel's compilers show.
inline int64_t held_registers(const Device& device, int64_t values, size_t bytes) {
  const bool early = device_row(device).hardware.loads_early != 0;
  return tile_registers(early ? 2 * values : values, 0, bytes);
}

/// Registers that a work-item can have at most: more than usual ones by the compiler's option, or
/// in sub-groups of 8, which Intel's compiler takes by itself.
inline int64_t most_registers(const Device& device) {
  const DeviceRow& row = device_row(device);
  const DeviceProperties& properties = device.properties();
  const bool more =
      properties.offers_large_registers || (properties.required_sub_group_sizes & 8) != 0;
  return more ? std::max(row.hardware.item_registers, row.hardware.large_registers)
              : row.hardware.item_registers;
}

/// The define that asks for that option, if a work-item needs so many and the compiler doesn't
/// choose.
inline Define large_registers(const Device& device, int64_t registers) {
  const DeviceProperties& properties = device.properties();
  const bool takes = properties.offers_large_registers && !properties.chooses_large_registers &&
                     registers > device_row(device).hardware.item_registers;
  return {"OCL_LARGE_REGISTERS", takes};
}

/// How well a unit does with such groups: its work-items at once, up to those that the row wants,
/// or 1 where it wants none. 0: a work-item has more registers than usual ones. Less: how many it
/// lacks, as a negative number. `kNever`: the device runs no such group.
constexpr int64_t kNever = INT64_MIN;
inline int64_t occupancy(const Device& device, const GroupNeed& need) {
  const DeviceProperties& properties = device.properties();
  if (need.items > static_cast<int64_t>(properties.max_work_group_size) ||
      need.local_memory > static_cast<int64_t>(properties.local_memory)) {
    return kNever;
  }
  const DeviceRow& row = device_row(device);
  const int64_t lacking = need.registers - most_registers(device);
  if (lacking > 0) return -lacking;
  if (need.registers > row.hardware.item_registers) return 0;
  if (row.hardware.wanted_items == 0) return 1;
  int64_t groups = row.unit_registers / (need.registers * need.items);
  if (need.local_memory > 0) {
    groups = std::min(groups, row.hardware.unit_local_memory / need.local_memory);
  }
  return std::clamp<int64_t>(groups * need.items, 1, row.hardware.wanted_items);
}

/// How well a unit does with groups of `items` work-items that hold so many values each and meet at
/// barriers. 0: it can't, or it runs less than two of them, of which one loads while the other one
/// waits.
inline int64_t held_occupancy(const Device& device, int64_t values, size_t bytes, int64_t items) {
  const int64_t wanted = device_row(device).hardware.wanted_items;
  const int64_t found = occupancy(device, {held_registers(device, values, bytes), items, 0});
  return found >= std::min(2 * items, std::max<int64_t>(wanted, 1)) ? found : 0;
}

/// A bit for each of the candidates that do best, by what `need_of` says of them; 0 if none runs.
template <std::ranges::range Candidates, class NeedOf>
uint64_t best_occupied(const Device& device, const Candidates& candidates, NeedOf&& need_of) {
  uint64_t bits = 0, bit = 1;
  int64_t best = kNever;
  for (const auto& candidate : candidates) {
    const int64_t found = occupancy(device, need_of(candidate));
    if (found > best) {
      best = found;
      bits = 0;
    }
    if (found == best && found != kNever) bits |= bit;
    bit <<= 1;
  }
  return bits;
}

}  // namespace ocl
