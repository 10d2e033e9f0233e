// Attention in half types by the matrix instructions of AMD's waves (kernels/gemm/fragments.clh).
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "engine/attention/plan.h"
#include "engine/gemm/fragments.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::attention {

namespace {

// Sizes in kernels/attention/wave_matrix.clh.
constexpr uint32_t kWaves = 4, kDepthPiece = 16, kMostColumns = 128, kNarrow = 64;
constexpr uint32_t kPadding = 8;  // elements of a line in local memory
constexpr uint32_t kChunk = 8;    // elements of 16 bytes

/// A wave's queries, and as many keys and columns of a piece.
uint32_t piece(const gemm::WaveUnit& unit) { return unit.size == 32 ? 16 : 32; }

uint32_t whole(uint32_t size, uint32_t pieces) { return ceil_div(size, pieces) * pieces; }

/// Bytes of local memory for tiles of so many keys. Emulation moves operands through it, too.
size_t local_bytes(const Plan& plan, const gemm::WaveUnit& unit, uint32_t keys) {
  constexpr size_t kEmulatedRegisters = 64;  // bytes of a work-item's, at most
  const Arguments& a = plan.arguments;
  const size_t elements = size_t{keys} * (whole(a.depth, kDepthPiece) + kPadding) +
                          size_t{whole(a.columns, piece(unit))} * (keys + kPadding);
  const size_t items = size_t{kWaves} * static_cast<uint32_t>(unit.size);
  return 2 * elements + (unit.emulated ? kEmulatedRegisters * items : 0);
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
  return is_aligned(problem.query, a.query) && is_aligned(problem.key, a.key) &&
         is_aligned(problem.value, a.value) && is_aligned(plan.out, a.out);
}

/// gfx908 has its sums in registers of their own, and half as many of the others.
bool has_few_registers(const Plan& plan) { return gemm::amd_target(plan.device) == 0x908; }

/// Keys at a time. More need more registers: of scores, and of rows on their way. So they serve
/// narrow heads that come 16 bytes at a time.
uint32_t keys_at_a_time(const Plan& plan, const gemm::WaveUnit& unit) {
  constexpr uint32_t kFew = 32, kMany = 64;
  const Arguments& a = plan.arguments;
  const bool many = std::max(a.depth, a.columns) <= kNarrow && a.keys > kFew && is_aligned(plan) &&
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
  if (plan.gradients != nullptr) return "it has no gradients";
  if (!c10::isReducedFloatingType(plan.problem.query.scalar_type())) return "no half type";
  if (a.depth == 0 || a.columns == 0 || a.keys == 0 || a.queries == 0) {
    return "there is nothing to sum";
  }
  const bool few = !is_aligned(plan) && has_few_registers(plan);
  if (std::max(a.depth, a.columns) > (few ? kNarrow : kMostColumns)) {
    return "heads with more columns than fit into registers";
  }
  if (!is_near(a.query) || !is_near(a.key) || !is_near(a.value)) return "rows are far apart";
  const gemm::WaveAnswer answer = gemm::wave_unit(plan.queue, plan.in);
  if (answer.unit == nullptr) return answer.reason;
  if (!answer.unit->chains) return "the device's waves don't multiply by their own sums";
  const DeviceProperties& properties = plan.device.properties();
  if (kWaves * static_cast<size_t>(answer.unit->size) > properties.max_work_group_size) {
    return "work-groups are too small";
  }
  return local_bytes(plan, *answer.unit, keys_at_a_time(plan, *answer.unit)) >
                 properties.local_memory
             ? "the tiles exceed the local memory"
             : nullptr;
}

void run(Plan& plan) {
  static const KernelFamily family{"attention/forward_wave_matrix.cl",
                                   "attention_forward_wave_matrix"};
  Arguments& a = plan.arguments;
  const gemm::WaveUnit& unit = *gemm::wave_unit(plan.queue, plan.in).unit;
  const uint32_t keys = keys_at_a_time(plan, unit), units = plan.device.properties().compute_units;
  const size_t heads = size_t{plan.batch} * a.heads;
  const uint32_t query_blocks = ceil_div(a.queries, kWaves * piece(unit));
  const uint64_t groups = query_blocks * heads;
  const Modification* m = plan.problem.modification;
  const bool needs_maxima = m != nullptr && m->maxima.defined();  // which no split has
  if (!needs_maxima && 2 * groups <= units) split_keys(plan, groups, 2 * uint64_t{units}, keys);
  constexpr uint32_t kWidth = 4;
  const uint32_t vectors = ceil_div(a.columns, kWidth);
  const auto operands = forward_operands(plan, vectors * kWidth);
  const std::array<Define, 12> defines{{{"IN", plan.in},
                                        {"MASK", plan.mask},
                                        {"DROPOUT", plan.dropout},
                                        {"DEPTH", a.depth},
                                        {"COLUMNS", a.columns},
                                        {"BK", keys},
                                        {"ALIGNED", is_aligned(plan)},
                                        {"SPLIT", a.splits > 1},
                                        {"SIZE", unit.size},
                                        {"FRAGMENTS", static_cast<int>(unit.fragments)},
                                        {"EMULATED", unit.emulated},
                                        {"AS_FLOATS", unit.as_floats}}};
  const auto items = static_cast<size_t>(kWaves * unit.size);
  const NDRange range{2, {size_t{query_blocks} * a.splits * items, heads, 1}, {items, 1, 1}};
  plan.launch(plan.kernel(family, defines), range, operands, {}, 0);
  if (a.splits > 1) combine_splits(plan, operands, kWidth, vectors);
}

}  // namespace

const Implementation<Plan> wave_matrix{"wave_matrix", refuse, run};

}  // namespace ocl::attention
