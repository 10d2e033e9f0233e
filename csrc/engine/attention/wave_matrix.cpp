// Attention in half types by the matrix instructions of AMD's waves (kernels/gemm/fragments.clh),
// both ways.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "engine/attention/plan.h"
#include "engine/gemm/fragments.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::attention {

namespace {

using kernel_arguments::kWaves, kernel_arguments::kWavePadding;

constexpr uint32_t kDepthPiece = 16, kMostColumns = 128, kNarrow = 64;
constexpr uint32_t kChunk = 8;  // elements of 16 bytes

/// A wave's queries, and as many keys and columns of a piece.
uint32_t piece(const gemm::WaveUnit& unit) { return unit.size == 32 ? 16 : 32; }

uint32_t whole(uint32_t size, uint32_t pieces) { return ceil_div(size, pieces) * pieces; }

/// Bytes of tiles in local memory: so many rows, along the head, and across it.
size_t bytes_along(uint32_t columns, uint32_t rows) {
  return sizeof(uint16_t) * rows * (whole(columns, kDepthPiece) + kWavePadding);
}
size_t bytes_across(const gemm::WaveUnit& unit, uint32_t columns, uint32_t rows) {
  return sizeof(uint16_t) * whole(columns, piece(unit)) * (rows + kWavePadding);
}

/// Bytes of local memory for tiles of so many rows. Emulation moves operands through it, too.
size_t local_bytes(const Plan& plan, const gemm::WaveUnit& unit, uint32_t rows) {
  constexpr size_t kState = 8;  // bytes of a query's
  const Arguments& a = plan.arguments;
  const size_t along = bytes_along(a.depth, rows), across = bytes_across(unit, a.columns, rows);
  const size_t items = size_t{kWaves} * static_cast<uint32_t>(unit.size);
  size_t bytes = along + across + (unit.emulated ? gemm::kEmulatedBytes * items : 0);
  if (plan.gradients != nullptr) {
    bytes += bytes_along(a.columns, rows) + bytes_across(unit, a.depth, rows) + kState * rows;
  }
  return bytes;
}

/// Whether rows can be read and written 16 bytes at a time.
bool is_aligned(const at::Tensor& tensor, const Strides& strides) {
  return strides.column == 1 && strides.batch % kChunk == 0 && strides.head % kChunk == 0 &&
         strides.row % kChunk == 0 && tensor.size(3) % kChunk == 0 &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}
bool is_aligned(const Plan& plan) {
  const Arguments& a = plan.arguments;
  const Problem& problem = plan.problem;
  const Gradients* g = plan.gradients;
  return is_aligned(problem.query, a.query) && is_aligned(problem.key, a.key) &&
         is_aligned(problem.value, a.value) && is_aligned(plan.out, a.out) &&
         (g == nullptr || (is_aligned(g->out, a.grad) && is_aligned(g->query, a.grad_query) &&
                           is_aligned(g->key, a.grad_key) && is_aligned(g->value, a.grad_value)));
}

/// gfx908 has its sums in registers of their own, and half as many of the others.
bool has_few_registers(const Plan& plan) { return gemm::amd_target(plan.device) == 0x908; }

bool is_narrow(const Plan& plan) {
  return std::max(plan.arguments.depth, plan.arguments.columns) <= kNarrow;
}

/// Whether scores take nothing beside products, and rows come 16 bytes at a time: the rest takes
/// registers.
bool is_plain(const Plan& plan) {
  return !plan.problem.mask.defined() && !plan.dropout && plan.problem.modification == nullptr &&
         is_aligned(plan);
}

/// Rows at a time. More need more registers: of scores, and of rows on their way. So the most serve
/// narrow heads that come 16 bytes at a time, in the pass with fewer operands.
uint32_t rows_at_a_time(const Plan& plan, const gemm::WaveUnit& unit) {
  constexpr uint32_t kFew = 32, kMany = 64;
  if (plan.gradients != nullptr) {
    return is_narrow(plan) || is_plain(plan) ? kFew : piece(unit);
  }
  const bool many = is_narrow(plan) && plan.arguments.keys > kFew && is_aligned(plan) &&
                    !has_few_registers(plan) &&
                    local_bytes(plan, unit, kMany) <= plan.device.properties().local_memory;
  return many ? kMany : kFew;
}

/// Whether a tile's offsets in bytes fit 32 bits.
bool is_near(const Strides& strides) {
  constexpr uint64_t kRows = uint64_t{kWaves} * 32, kMost = uint64_t{1} << 31;
  return kRows * strides.row + kMostColumns * strides.column < kMost / 2;
}

const char* refuse(const Plan& plan) {
  const Arguments& a = plan.arguments;
  if (!c10::isReducedFloatingType(plan.problem.query.scalar_type())) return "no half type";
  if (a.depth == 0 || a.columns == 0 || a.keys == 0 || a.queries == 0) {
    return "there is nothing to sum";
  }
  const bool few = plan.gradients == nullptr
                       ? !is_aligned(plan) && has_few_registers(plan)
                       : !is_aligned(plan) || (!is_plain(plan) && has_few_registers(plan));
  if (std::max(a.depth, a.columns) > (few ? kNarrow : kMostColumns)) {
    return "heads with more columns than fit into registers";
  }
  if (!is_near(a.query) || !is_near(a.key) || !is_near(a.value) || !is_near(a.out) ||
      !is_near(a.grad)) {
    return "rows are far apart";
  }
  const gemm::WaveAnswer answer = gemm::wave_unit(plan.queue, plan.in);
  if (answer.unit == nullptr) return answer.reason;
  if (!answer.unit->chains) return "the device's waves don't multiply by their own sums";
  const DeviceProperties& properties = plan.device.properties();
  if (kWaves * static_cast<size_t>(answer.unit->size) > properties.max_work_group_size) {
    return "work-groups are too small";
  }
  return local_bytes(plan, *answer.unit, rows_at_a_time(plan, *answer.unit)) >
                 properties.local_memory
             ? "the tiles exceed the local memory"
             : nullptr;
}

std::array<Define, 11> defines_of(const Plan& plan, const gemm::WaveUnit& unit) {
  return {{{"IN", plan.in},
           {"MASK", plan.mask},
           {"DROPOUT", plan.dropout},
           {"DEPTH", plan.arguments.depth},
           {"COLUMNS", plan.arguments.columns},
           {"BK", rows_at_a_time(plan, unit)},
           {"ALIGNED", is_aligned(plan)},
           {"SIZE", unit.size},
           {"FRAGMENTS", static_cast<int>(unit.fragments)},
           {"EMULATED", unit.emulated},
           {"AS_FLOATS", unit.as_floats}}};
}

NDRange range_of(const gemm::WaveUnit& unit, size_t blocks, size_t heads) {
  const auto items = static_cast<size_t>(kWaves * unit.size);
  return {2, {blocks * items, heads, 1}, {items, 1, 1}};
}

/// A kernel of a file of several, or of forms.
Kernel& kernel_of(const Plan& plan, const gemm::WaveUnit& unit, const KernelFamily& family,
                  std::initializer_list<Define> own) {
  const auto shared = defines_of(plan, unit);
  c10::SmallVector<Define, 16> all(shared.begin(), shared.end());
  all.append(own.begin(), own.end());
  return plan.kernel(family, std::span<const Define>(all.data(), all.size()));
}

void run_forward(Plan& plan, const gemm::WaveUnit& unit) {
  static const KernelFamily family{"attention/forward_wave_matrix.cl",
                                   "attention_forward_wave_matrix"};
  Arguments& a = plan.arguments;
  const uint32_t keys = rows_at_a_time(plan, unit), units = plan.device.properties().compute_units;
  const size_t heads = size_t{plan.batch} * a.heads;
  const uint32_t query_blocks = ceil_div(a.queries, kWaves * piece(unit));
  const uint64_t groups = query_blocks * heads;
  split_few(plan, groups, units / 2, keys);
  constexpr uint32_t kWidth = 4;
  const uint32_t vectors = ceil_div(a.columns, kWidth);
  const auto operands = forward_operands(plan, vectors * kWidth);
  Kernel& kernel = kernel_of(plan, unit, family, {{"SPLIT", a.splits > 1}});
  plan.launch(kernel, range_of(unit, size_t{query_blocks} * a.splits, heads), operands, {}, 0);
  if (a.splits > 1) combine_splits(plan, operands, kWidth, vectors);
}

void run_backward(Plan& plan, const gemm::WaveUnit& unit) {
  static const KernelFamily query_gradient{"attention/backward_wave_matrix.cl",
                                           "attention_query_gradient_wave_matrix"};
  static const KernelFamily key_gradient{"attention/backward_wave_matrix.cl",
                                         "attention_key_gradient_wave_matrix"};
  const auto operands = backward_operands(plan);
  const Arguments& a = plan.arguments;
  const auto run = [&](const KernelFamily& family, uint32_t rows, size_t heads, bool of_keys,
                       bool of_values) {
    Kernel& kernel =
        kernel_of(plan, unit, family, {{"OF_KEYS", of_keys}, {"OF_VALUES", of_values}});
    plan.launch(kernel, range_of(unit, ceil_div(rows, kWaves * piece(unit)), plan.batch * heads),
                operands, {plan.scalar(plan.problem.scale)}, 0);
  };
  run(query_gradient, a.queries, a.heads, true, true);
  if (is_narrow(plan) && (is_plain(plan) || !has_few_registers(plan))) {
    run(key_gradient, a.keys, plan.key_heads, true, true);
  } else {
    // Sums of both exceed the registers.
    run(key_gradient, a.keys, plan.key_heads, true, false);
    run(key_gradient, a.keys, plan.key_heads, false, true);
  }
}

void run(Plan& plan) {
  const gemm::WaveUnit& unit = *gemm::wave_unit(plan.queue, plan.in).unit;
  (plan.gradients == nullptr ? run_forward : run_backward)(plan, unit);
}

}  // namespace

const Implementation<Plan> wave_matrix{"wave_matrix", refuse, run};

}  // namespace ocl::attention
