// Attention of bfloat16 by x86's AMX (kernels/attention/forward_amx.cl): the forward pass, on CPUs.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/attention/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::attention {

namespace {

constexpr uint32_t kTile = 32;          // queries of a work-item, and what rows are multiples of
constexpr uint32_t kLeastQueries = 16;  // below it most of a tile is idle

const char* refuse(const Plan& plan) {
  const Arguments& a = plan.arguments;
  if (!plan.device.properties().has_amx || !plan.device.is_cpu()) return "there is no AMX";
  if (plan.gradients != nullptr) return "it doesn't serve gradients";
  if (std::string_view(plan.in) != "bf16") return "not of bfloat16";
  if (plan.problem.modification != nullptr) return "a modification of scores";
  if (plan.dropout) return "dropout";
  if (a.depth == 0 || a.columns == 0 || a.depth % kTile != 0 || a.columns % kTile != 0) {
    return "rows fill no tiles";
  }
  if (a.key.column != 1) return "a key's elements lie apart";
  if (a.queries < kLeastQueries || a.keys == 0) return "queries are few";
  return nullptr;
}

void run(Plan& plan) {
  static const KernelFamily value_family{"attention/amx_values.cl", "attention_amx_values"};
  static const KernelFamily family{"attention/forward_amx.cl", "attention_forward_amx"};
  const Arguments& a = plan.arguments;
  const Problem& problem = plan.problem;
  const std::array<Define, 5> defines{{{"IN", plan.in},
                                       {"C", plan.compute},
                                       {"MASK", plan.mask},
                                       {"STEPS", a.depth / kTile},
                                       {"COLUMN_TILES", a.columns / kTile}}};
  // Rows that are no power of two apart don't meet in the same places of a cache.
  const uint32_t row = round_up(a.keys, kTile) + kTile;
  const size_t heads = size_t{plan.batch} * plan.key_heads;
  const at::Tensor values = at::empty(
      {static_cast<int64_t>(heads), int64_t{a.columns}, int64_t{row}}, problem.value.options());
  launch(value_family.get(plan.device, std::span(defines).first(1)), plan.queue,
         NDRange::grid(row / 16, heads, 1, 1), Pointer{problem.value.const_data_ptr()},
         Pointer{values.mutable_data_ptr()}, a, row);
  const std::array<at::Tensor, 6> operands{problem.query, problem.key, values,
                                           problem.mask,  plan.out,    plan.logsumexp};
  ScalarArgument of_row{};
  of_row.size = sizeof row;
  std::memcpy(of_row.bytes, &row, sizeof row);
  plan.launch(family.get(plan.device, defines),
              NDRange::grid(ceil_div(a.queries, kTile), size_t{plan.batch} * a.heads, 1, 1),
              operands, {of_row}, 0, false);
}

}  // namespace

const Implementation<Plan> amx{"amx", refuse, run};

}  // namespace ocl::attention
