// Attention in half types on NVIDIA's tensor cores, both ways.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>

#include <array>

#include "engine/attention/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::attention {

namespace {

using kernel_arguments::kTensorCoreItems, kernel_arguments::kTensorCoreRows;

// Sizes in kernels/attention/forward_tensor_core.cl.
constexpr uint32_t kPiece = 16;
constexpr uint32_t kMostColumns = 128;  // more exceed the registers

/// Elements of 16 bytes, what rows are copied by.
uint32_t chunk(const Plan& plan) { return 16 / c10::elementSize(plan.problem.query.scalar_type()); }

uint32_t whole_pieces(uint32_t columns) { return ceil_div(columns, kPiece) * kPiece; }

/// Keys at a time: as many as fit twice into local memory, 0 if none do.
uint32_t keys_at_a_time(const Plan& plan) {
  const Arguments& a = plan.arguments;
  const size_t line = 2 * size_t{whole_pieces(a.depth) + whole_pieces(a.columns) + 16};
  for (const uint32_t keys : {64U, 32U}) {
    if (2 * keys * line <= plan.device.properties().local_memory) return keys;
  }
  return 0;
}

/// Whether rows can be copied 16 bytes at a time.
bool is_aligned(const at::Tensor& tensor, const Strides& strides, uint32_t chunk) {
  return strides.column == 1 && strides.batch % chunk == 0 && strides.head % chunk == 0 &&
         strides.row % chunk == 0 && reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

const char* refuse(const Plan& plan) {
  const Arguments& a = plan.arguments;
  const Problem& problem = plan.problem;
  if (!plan.device.properties().has_tensor_cores) return "the device has none of NVIDIA's";
  const bool floats = problem.query.scalar_type() == at::kFloat;
  if (floats && plan.gradients == nullptr) return "float32 does better in local memory";
  if (!floats && !c10::isReducedFloatingType(problem.query.scalar_type()))
    return "double precision";
  if (a.depth == 0 || a.columns == 0 || a.keys == 0 || a.queries == 0)
    return "there is nothing to sum";
  const uint32_t most = floats ? kMostColumns / 2 : kMostColumns;
  if (a.depth > most || a.columns > most) return "heads with more columns than fit into registers";
  const uint32_t whole = chunk(plan);
  if (a.depth % whole != 0 || a.columns % whole != 0) return "rows are no multiple of 16 bytes";
  const auto aligned = [&](const at::Tensor& t) { return is_aligned(t, strides_of(t), whole); };
  if (!is_aligned(problem.query, a.query, whole) || !aligned(problem.key) ||
      !aligned(problem.value) || !aligned(plan.out)) {
    return "rows aren't contiguous and aligned";
  }
  if (const Gradients* g = plan.gradients) {
    if (!aligned(g->out) || !aligned(g->query) || !aligned(g->key) || !aligned(g->value)) {
      return "gradients' rows aren't contiguous and aligned";
    }
  }
  return keys_at_a_time(plan) == 0 ? "the tiles exceed the local memory" : nullptr;
}

void run_forward(Plan& plan) {
  static const KernelFamily family{"attention/forward_tensor_core.cl",
                                   "attention_forward_tensor_core"};
  Arguments& a = plan.arguments;
  const uint32_t keys = keys_at_a_time(plan), units = plan.device.properties().compute_units;
  const size_t heads = size_t{plan.batch} * a.heads;
  const uint32_t query_blocks = ceil_div(a.queries, kTensorCoreRows);
  const uint64_t items = query_blocks * heads;
  split_few(plan, items, units / 2, keys);
  constexpr uint32_t kWidth = 4;
  const uint32_t vectors = ceil_div(a.columns, kWidth);
  const auto operands = forward_operands(plan, vectors * kWidth);
  const std::array<Define, 7> defines{{{"IN", plan.in},
                                       {"MASK", plan.mask},
                                       {"DROPOUT", plan.dropout},
                                       {"DEPTH", whole_pieces(a.depth)},
                                       {"COLUMNS", whole_pieces(a.columns)},
                                       {"BK", keys},
                                       {"SPLIT", a.splits > 1}}};
  Kernel& kernel = plan.kernel(family, defines);
  const NDRange range{
      2, {size_t{query_blocks} * a.splits * kTensorCoreItems, heads, 1}, {kTensorCoreItems, 1, 1}};
  plan.launch(kernel, range, operands, {}, 0);
  if (a.splits > 1) combine_splits(plan, operands, kWidth, vectors);
}

void run_backward(Plan& plan) {
  static const KernelFamily query_gradient{"attention/backward_tensor_core.cl",
                                           "attention_query_gradient_tensor_core"};
  static const KernelFamily key_gradient{"attention/backward_tensor_core.cl",
                                         "attention_key_gradient_tensor_core"};
  const auto operands = backward_operands(plan);
  const Arguments& a = plan.arguments;
  const uint32_t depth = whole_pieces(a.depth), columns = whole_pieces(a.columns);
  // As many rows at a time as registers allow: sums of keys and values take twice as many as those
  // of queries. Floats, whose pieces are split in registers, are faster with fewer.
  constexpr uint32_t kFloatRows = 16;
  const bool narrow = std::max(depth, columns) <= 64;
  const bool floats = plan.problem.query.scalar_type() == at::kFloat;
  const auto run = [&](const KernelFamily& family, uint32_t walk, uint32_t rows, size_t heads) {
    const std::array<Define, 6> defines{{{"IN", plan.in},
                                         {"MASK", plan.mask},
                                         {"DROPOUT", plan.dropout},
                                         {"DEPTH", depth},
                                         {"COLUMNS", columns},
                                         {"WALK", floats ? kFloatRows : walk}}};
    Kernel& kernel = plan.kernel(family, defines);
    plan.launch(kernel,
                {2,
                 {size_t{ceil_div(rows, kTensorCoreRows)} * kTensorCoreItems, heads, 1},
                 {kTensorCoreItems, 1, 1}},
                operands, {plan.scalar(plan.problem.scale)}, 0);
  };
  run(query_gradient, narrow ? 64 : 32, a.queries, size_t{plan.batch} * a.heads);
  run(key_gradient, narrow ? 64 : 16, a.keys, size_t{plan.batch} * plan.key_heads);
}

}  // namespace

const Implementation<Plan> tensor_core{
    "tensor_core", refuse,
    [](Plan& plan) { (plan.gradients == nullptr ? run_forward : run_backward)(plan); }};

}  // namespace ocl::attention
