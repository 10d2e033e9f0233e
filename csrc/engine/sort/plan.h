// A sort on its way to a kernel: what sort.cpp and the implementations share.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"

namespace ocl::sort {

class Runs;

using namespace kernel_types;
#include "sort/arguments.clh"

/// How elements of a dtype become unsigned keys; kernels/sort/key.clh.
struct KeyType {
  enum Kind : uint8_t { kUnsigned, kSigned, kReal, kBool };
  const char* tag;  // the unsigned tag as wide as an element
  Kind kind;
  uint8_t bits;       // of a key that can differ
  uint32_t size;      // bytes of a key
  uint64_t infinity;  // bits of the dtype's +infinity, for reals

  /// Keys that a CPU's vectors hold.
  int vector() const { return size == 8 ? 8 : 16; }
  uint64_t mask() const { return size == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * size)) - 1; }
};

/// Sorts each of `rows` rows of `n` keys and gives the positions (uint32) they came from. In each
/// row the first `wanted` have to be in place; an implementation that leaves no others says so in
/// `n`.
struct Plan {
  Device& device;
  Queue& queue;
  KeyType key;
  uint32_t rows, n, wanted;
  // Device memory. An implementation allocates `index`, and may leave `keys` in other memory than
  // it was given.
  c10::DataPtr keys, index;

  c10::DataPtr allocate_keys() const;
  c10::DataPtr allocate_index() const;
};

using SortImplementation = Implementation<Plan>;

extern const SortImplementation sort_select, sort_insertion, sort_radix_rows, sort_radix_parts,
    sort_bitonic, sort_radix_wide, sort_radix_tiles;

/// Sorts plan.keys by the first implementation that takes the plan.
void sort_keys(Plan& plan);

/// `bytes` of the current device's memory; given back in the order of the current stream.
c10::DataPtr allocate(size_t bytes);

/// Implementations of `sort` besides those: what counts the runs of equal neighbours (runs.cpp).
std::span<const Implementation<Runs>* const> runs_implementations();
/// Starts what `runs` counts by the first that takes them.
void count_runs(Runs& runs);

/// Replaces each of `arrays` arrays of `length` uint32, length + 1 apart, by its exclusive prefix
/// sums, followed by the total.
void scan_counts(Queue& queue, void* counts, uint32_t length, uint32_t arrays);

/// Work-items that keep the device busy, where one does more than an element's work.
inline uint32_t wanted_items(const Device& device) {
  return static_cast<uint32_t>(device.is_cpu() ? items_of_cores(device, 2) : busy_items(device));
}

/// Rows of `n` elements that are worth a CPU's work-item.
inline uint32_t rows_per_item(const Device& device, uint32_t n) {
  return std::max(1U, static_cast<uint32_t>(device_row(device).item_elements) / n);
}

}  // namespace ocl::sort
