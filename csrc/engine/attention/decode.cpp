// Attention of a few queries over many keys: the keys are split (kernels/attention/decode.cl).
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "engine/attention/plan.h"
#include "engine/device_table.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::attention {

namespace {

const KernelFamily decode_family{"attention/decode.cl", "attention_decode"};
const KernelFamily combine_family{"attention/combine.cl", "attention_combine"};

constexpr uint32_t kLeastKeys = 256;  // of a split

/// For what the splits leave, rows of `columns` elements; undefined for one split.
at::Tensor decode_workspace(const Plan& plan, uint32_t columns) {
  const Arguments& a = plan.arguments;
  if (a.splits == 1) return {};
  const int64_t rows = int64_t{plan.batch} * a.heads * a.queries;
  return at::empty({rows * a.splits * (2 + columns)}, plan.out.options().dtype(plan.compute_type));
}

}  // namespace

std::array<at::Tensor, 7> forward_operands(const Plan& plan, uint32_t columns) {
  const Problem& p = plan.problem;
  return {
      p.query, p.key, p.value, p.mask, plan.out, plan.logsumexp, decode_workspace(plan, columns)};
}

void split_keys(Plan& plan, uint64_t items, uint64_t wanted, uint32_t multiple) {
  Arguments& a = plan.arguments;
  const uint64_t most = std::max(1U, a.keys / kLeastKeys);
  const auto splits = static_cast<uint32_t>(std::clamp<uint64_t>(ceil_div(wanted, items), 1, most));
  a.per_item = std::max(1U, ceil_div(ceil_div(a.keys, splits), multiple)) * multiple;
  a.splits = std::max(1U, ceil_div(a.keys, a.per_item));
}

void split_few(Plan& plan, uint64_t groups, uint64_t few, uint32_t multiple) {
  const Modification* m = plan.problem.modification;
  const bool needs_maxima = m != nullptr && m->maxima.defined();
  if (needs_maxima || groups > few) return;
  split_keys(plan, groups, 2 * uint64_t{plan.device.properties().compute_units}, multiple);
}

void combine_splits(const Plan& plan, std::span<const at::Tensor> operands, uint32_t width,
                    uint32_t vectors) {
  const Arguments& a = plan.arguments;
  Kernel& kernel = combine_family.get(
      plan.device, {{"IN", plan.in}, {"C", plan.compute}, {"WIDTH", width}, {"VV", vectors}});
  const size_t heads = size_t{plan.batch} * plan.key_heads;
  // A CPU's work-item takes a vector; a GPU's work-group, a row.
  const size_t together = plan.device.is_cpu() ? 1 : vectors;
  plan.launch(kernel, NDRange::volume({a.group * a.queries, heads, vectors}, {1, 1, together}),
              operands, {}, 0, false);
}

namespace {

const char* refuse(const Plan& plan) {
  if (plan.gradients != nullptr) return "it serves no gradients";
  if (plan.problem.modification != nullptr) return "scores are modified";
  if (plan.arguments.queries > 4) return "there are more than 4 queries";
  return plan.arguments.keys == 0 ? "there are no keys" : nullptr;
}

void run(Plan& plan) {
  Arguments& a = plan.arguments;
  const uint32_t width = register_bytes(plan.device) / static_cast<uint32_t>(plan.compute_size);
  const uint32_t depth_vectors = ceil_div(std::max(1U, a.depth), width);
  const uint32_t column_vectors = ceil_div(std::max(1U, a.columns), width);
  constexpr uint32_t kBlock = 64;
  // Rows whose queries and results fit the registers share the keys they load.
  const uint32_t all_rows = a.group * a.queries;
  uint32_t rows = 4;
  while (rows > 1 && (rows * column_vectors > 16 || rows > all_rows || rows > width)) rows /= 2;
  const auto whole = [&](const Strides& strides, uint32_t columns) {
    return strides.column == 1 && columns % width == 0;
  };

  const uint32_t heads = plan.batch * plan.key_heads;
  const uint32_t row_blocks = ceil_div(all_rows, rows);
  const uint64_t items = uint64_t{heads} * row_blocks;
  split_keys(plan, items, static_cast<uint64_t>(parts_of_work(plan.device)), kBlock);
  const std::array<Define, 10> defines{
      {{"IN", plan.in},
       {"C", plan.compute},
       {"MASK", plan.mask},
       {"DROPOUT", plan.dropout},
       {"WIDTH", width},
       {"RQ", rows},
       {"DV", depth_vectors},
       {"VV", column_vectors},
       {"BLOCK", kBlock},
       {"WHOLE", whole(a.query, a.depth) && whole(a.key, a.depth) && whole(a.value, a.columns) &&
                     whole(a.out, a.columns)}}};
  const auto operands = forward_operands(plan, column_vectors * width);
  plan.launch(decode_family.get(plan.device, defines),
              NDRange::grid(size_t{a.splits} * row_blocks, heads, 1, 1), operands, {}, 0);
  if (a.splits > 1) combine_splits(plan, operands, width, column_vectors);
}

}  // namespace

const Implementation<Plan> decode{"decode", refuse, run};

}  // namespace ocl::attention
