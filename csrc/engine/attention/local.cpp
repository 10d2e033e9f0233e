// Attention on GPUs: work-groups with tiles in local memory.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "engine/attention/plan.h"
#include "engine/occupancy.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::attention {

namespace {

using kernel_arguments::kLocalSide, kernel_arguments::kLocalChunk, kernel_arguments::kLocalPadding,
    kernel_arguments::kDeltaItems;

const KernelFamily forward_family{"attention/forward_local.cl", "attention_forward_local"};
const KernelFamily delta_of{"attention/backward_local.cl", "attention_delta"};
const KernelFamily query_gradient{"attention/backward_local.cl", "attention_query_gradient"};
const KernelFamily key_gradient{"attention/backward_local.cl", "attention_key_gradient"};

constexpr uint32_t kColumns = kLocalChunk / kLocalSide;  // of a work-item's, in a chunk

/// The tile: rows of queries and of keys per work-item, chunks of columns, and the work-items along
/// the queries.
struct Tile {
  uint32_t queries, keys, depth_chunks, column_chunks, side = kLocalSide;

  uint32_t items() const { return side * kLocalSide; }
  uint32_t query_block() const { return queries * side; }
  uint32_t key_block() const { return keys * kLocalSide; }
  /// Bytes of the two tiles of operands, of a block of weights, and of `shared` values per query.
  size_t local_bytes(size_t element_size, uint32_t shared) const {
    const size_t rows = std::max(query_block(), key_block());
    return element_size * (2 * rows * (kLocalChunk + kLocalPadding) +
                           query_block() * (key_block() + kLocalPadding) + query_block() * shared);
  }
};

/// The work-group's needs. `sums`: chunks of columns that it sums for each of its rows; `shared`:
/// values in local memory for each.
GroupNeed need_of(const Plan& plan, const Tile& tile, uint32_t sums, uint32_t shared) {
  const bool backward = plan.gradients != nullptr;
  const int64_t scores = int64_t{tile.queries} * tile.keys * (backward ? 2 : 1);
  const int64_t of_rows = int64_t{tile.queries} * (kColumns * sums + (backward ? 1 : 2));
  const int64_t held =
      2 * std::max(tile.query_block(), tile.key_block()) * kLocalChunk / tile.items();
  const int64_t operands = 4 * int64_t{tile.queries + tile.keys};
  const int64_t values = scores + of_rows + held + operands;
  return {held_registers(plan.device, values, plan.compute_size), tile.items(),
          static_cast<int64_t>(tile.local_bytes(plan.compute_size, shared))};
}

/// The tile, or the first of smaller ones that does best by the device's registers and local
/// memory.
Tile best_tile(const Plan& plan, const Tile& wanted, uint32_t sums, uint32_t shared) {
  std::array<Tile, 4> tiles{wanted, wanted, wanted, wanted};
  for (size_t i = 1; i < tiles.size(); ++i) {
    Tile& tile = tiles[i];
    tile = tiles[i - 1];
    tile.queries = std::max(1U, tile.queries / 2);
    if (tile.side != kLocalSide) {
      tile.side = kLocalSide;
    } else {
      tile.keys = std::max(1U, tile.keys / 2);
    }
  }
  const auto need = [&](const Tile& tile) { return need_of(plan, tile, sums, shared); };
  // The least one reads most of what it multiplies: it serves where the one before lacks registers.
  const size_t count = occupancy(plan.device, need(tiles[2])) < 0 ? 4 : 3;
  const uint64_t bits = best_occupied(plan.device, std::span(tiles).first(count), need);
  return bits == 0 ? wanted : tiles[static_cast<size_t>(std::countr_zero(bits))];
}

Tile make_tile(const Plan& plan, uint32_t shared) {
  const Arguments& a = plan.arguments;
  Tile tile{4, 4, std::max(1U, ceil_div(a.depth, kLocalChunk)),
            std::max(1U, ceil_div(a.columns, kLocalChunk))};
  // Larger tiles than the registers hold cost more than they save.
  if (plan.compute_size > 4 || tile.depth_chunks > 4 || tile.column_chunks > 4) {
    tile.queries = tile.keys = 2;
  }
  while (tile.queries > 1 &&
         (tile.query_block() >= 2 * a.queries ||
          tile.local_bytes(plan.compute_size, shared) > plan.device.properties().local_memory)) {
    tile.queries /= 2;
    if (tile.local_bytes(plan.compute_size, shared) > plan.device.properties().local_memory) {
      tile.keys = std::max(1U, tile.keys / 2);
    }
  }
  return tile;
}

std::array<Define, 11> defines_of(const Plan& plan, const Tile& tile, const GroupNeed& need) {
  return {{{"IN", plan.in},
           {"C", plan.compute},
           {"MASK", plan.mask},
           {"DROPOUT", plan.dropout},
           {"SIDE", tile.side},
           {"RQ", tile.queries},
           {"RK", tile.keys},
           {"CD", tile.depth_chunks},
           {"CV", tile.column_chunks},
           {"SPLIT", plan.arguments.splits > 1},
           large_registers(plan.device, need.registers)}};
}

NDRange groups(const Tile& tile, size_t count, size_t heads) {
  return {2, {count * tile.items(), heads, 1}, {tile.items(), 1, 1}};
}

const char* refuse(const Plan& plan) {
  const uint32_t shared = plan.gradients == nullptr ? kLocalSide : 0;
  const Tile tile = make_tile(plan, shared);
  if (tile.local_bytes(plan.compute_size, shared) > plan.device.properties().local_memory) {
    return "the tiles exceed the local memory";
  }
  return tile.items() > plan.device.properties().max_work_group_size ? "work-groups are too small"
                                                                     : nullptr;
}

void run_forward(Plan& plan) {
  Arguments& a = plan.arguments;
  Tile tile = make_tile(plan, kLocalSide);
  // Fewer work-items with more sums each read less of local memory.
  if (tile.queries == 4 && tile.keys == 4) {
    tile.side = kLocalSide / 2;
    tile.queries = 8;
  }
  tile = best_tile(plan, tile, tile.column_chunks, kLocalSide);
  const size_t heads = size_t{plan.batch} * a.heads;
  const uint32_t query_blocks = ceil_div(a.queries, tile.query_block());
  const uint64_t items = query_blocks * heads;
  split_few(plan, items, plan.device.properties().compute_units, tile.key_block());
  constexpr uint32_t kWidth = 4;
  const uint32_t vectors = ceil_div(std::max(1U, a.columns), kWidth);
  const auto operands = forward_operands(plan, vectors * kWidth);
  const auto defines = defines_of(plan, tile, need_of(plan, tile, tile.column_chunks, kLocalSide));
  plan.launch(plan.kernel(forward_family, defines),
              groups(tile, size_t{query_blocks} * a.splits, heads), operands, {},
              tile.local_bytes(plan.compute_size, kLocalSide));
  if (a.splits > 1) combine_splits(plan, operands, kWidth, vectors);
}

/// A work-group's rows are those that it owns, queries or keys. `sums`: chunks of columns that a
/// work-item has in registers for each.
Tile backward_tile(const Plan& plan, uint32_t sums) {
  Tile tile = make_tile(plan, 0);
  const bool full = tile.queries == 4 && tile.keys == 4;
  // More sums than that exceed the registers.
  constexpr uint32_t kMostSums = 4;
  if (full && sums <= kMostSums) {
    tile.side = kLocalSide / 2;
    tile.queries = 8;
  }
  return best_tile(plan, tile, sums, 0);
}

void run_backward(Plan& plan) {
  const auto operands = backward_operands(plan);
  const Arguments& a = plan.arguments;
  const auto run = [&](const KernelFamily& family, const Tile& tile, uint32_t sums,
                       const NDRange& range) {
    const auto defines = defines_of(plan, tile, need_of(plan, tile, sums, 0));
    plan.launch(plan.kernel(family, defines), range, operands, {plan.scalar(plan.problem.scale)},
                tile.local_bytes(plan.compute_size, 0));
  };
  const size_t heads = size_t{plan.batch} * a.heads;
  const Tile whole = make_tile(plan, 0);
  const uint32_t query_sums = whole.depth_chunks;
  const uint32_t key_sums = whole.depth_chunks + whole.column_chunks;
  const Tile of_queries = backward_tile(plan, query_sums);
  const Tile of_keys = backward_tile(plan, key_sums);
  run(delta_of, of_keys, key_sums, NDRange::grid(size_t{a.queries} * kDeltaItems, heads, 64, 1));
  run(query_gradient, of_queries, query_sums,
      groups(of_queries, ceil_div(a.queries, of_queries.query_block()), heads));
  run(key_gradient, of_keys, key_sums,
      groups(of_keys, ceil_div(a.keys, of_keys.query_block()),
             size_t{plan.batch} * plan.key_heads));
}

}  // namespace

const Implementation<Plan> local{"local", refuse, [](Plan& plan) {
                                   (plan.gradients == nullptr ? run_forward : run_backward)(plan);
                                 }};

}  // namespace ocl::attention
