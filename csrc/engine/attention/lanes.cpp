// Attention on CPUs: how the queries and keys are cut into blocks and handed to the kernels.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "engine/attention/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::attention {

namespace {

const KernelFamily forward_family{"attention/forward_lanes.cl", "attention_forward"};
const KernelFamily backward_family{"attention/backward_lanes.cl", "attention_backward"};

/// The parameters of kernels/attention/lanes.clh.
struct Lanes {
  uint32_t width, vectors, rows, row_tile, block, depth_vectors, column_vectors, depth_tile,
      column_tile;
  bool staged;

  uint32_t queries() const { return width * vectors; }
};

/// Whether rows are whole vectors of the dtype computed in, and contiguous.
bool as_they_lie(const Plan& plan, const Strides& strides, uint32_t columns, uint32_t width) {
  return plan.in == plan.compute && strides.column == 1 && columns % width == 0;
}

Lanes make_lanes(const Plan& plan) {
  const Arguments& a = plan.arguments;
  Lanes lanes{};
  const uint32_t bytes = register_bytes(plan.device);
  // With 32 registers 16 sums fit beside the operands, with 16 registers 8 do.
  const int most = bytes == 64 ? 4 : 2;
  lanes.width = bytes / static_cast<uint32_t>(plan.compute_size);
  lanes.depth_vectors = row_vectors(a.depth, lanes.width, most);
  lanes.column_vectors = row_vectors(a.columns, lanes.width, most);
  lanes.depth_tile = tile_vectors(lanes.depth_vectors, most);
  lanes.column_tile = tile_vectors(lanes.column_vectors, most);
  lanes.vectors = static_cast<uint32_t>(most);
  while (lanes.vectors > 1 && lanes.queries() >= 2 * a.queries) lanes.vectors /= 2;
  lanes.block = 64;
  return lanes;
}

void finish(Lanes& lanes, int most) {
  const uint32_t sums = most == 4 ? 16 : 8;
  lanes.rows = std::clamp(sums / lanes.vectors, 4U, 8U);
  lanes.row_tile = std::min({8U, lanes.queries(), std::max(4U, sums / lanes.column_tile)});
  if (lanes.row_tile > 4 && lanes.row_tile < 8) lanes.row_tile = 4;
}

/// Takes fewer keys and queries at a time until `bytes` of the lanes fit in local memory.
template <class Bytes>
size_t fit(const Plan& plan, Lanes& lanes, const Bytes& bytes) {
  while (bytes(lanes) > plan.device.properties().local_memory) {
    if (lanes.block > 16) {
      lanes.block /= 2;
    } else if (lanes.vectors > 1) {
      lanes.vectors /= 2;
    } else {
      break;
    }
  }
  finish(lanes, register_bytes(plan.device) == 64 ? 4 : 2);
  return bytes(lanes);
}

std::array<Define, 16> defines_of(const Plan& plan, const Lanes& lanes, int for_query,
                                  int for_key) {
  return {{{"IN", plan.in},
           {"C", plan.compute},
           {"MASK", plan.mask},
           {"DROPOUT", plan.dropout},
           {"WIDTH", lanes.width},
           {"NV", lanes.vectors},
           {"R", lanes.rows},
           {"RO", lanes.row_tile},
           {"BLOCK", lanes.block},
           {"DV", lanes.depth_vectors},
           {"VV", lanes.column_vectors},
           {"NK", lanes.depth_tile},
           {"NO", lanes.column_tile},
           {"STAGED", lanes.staged},
           {"FOR_QUERY", for_query},
           {"FOR_KEY", for_key}}};
}

void run_forward(Plan& plan) {
  const Arguments& a = plan.arguments;
  Lanes lanes = make_lanes(plan);
  lanes.staged = !as_they_lie(plan, a.key, a.depth, 1) ||
                 !as_they_lie(plan, a.value, a.columns, lanes.width * lanes.column_vectors);
  const size_t local = fit(plan, lanes, [&](const Lanes& l) {
    const size_t staged = l.staged ? l.block * (l.depth_vectors + l.column_vectors) : 0;
    return plan.compute_size * l.width *
           ((a.depth + l.block + 1) * l.vectors + l.queries() * l.column_vectors + staged);
  });
  const auto defines = defines_of(plan, lanes, 0, 0);
  const std::array<at::Tensor, 6> operands{plan.problem.query, plan.problem.key, plan.problem.value,
                                           plan.problem.mask,  plan.out,         plan.logsumexp};
  plan.launch(
      plan.kernel(forward_family, std::span(defines).first(14)),
      NDRange::grid(ceil_div(a.queries, lanes.queries()), size_t{plan.batch} * a.heads, 1, 1),
      operands, {}, local);
}

void run_backward(Plan& plan) {
  const auto& [grad, grad_query, grad_key, grad_value] = *plan.gradients;
  Arguments& a = plan.arguments;
  Lanes lanes = make_lanes(plan);
  const uint32_t depth = lanes.width * lanes.depth_vectors;
  const uint32_t columns = lanes.width * lanes.column_vectors;
  lanes.staged =
      !as_they_lie(plan, a.query, a.depth, depth) || !as_they_lie(plan, a.key, a.depth, depth) ||
      !as_they_lie(plan, a.value, a.columns, 1) || !as_they_lie(plan, a.grad, a.columns, columns);

  // Gradients of key and value are sums over the queries, kept in memory: their own, if that is of
  // the dtype computed in and holds whole vectors.
  const auto sums_of = [&](const at::Tensor& to, uint32_t padded) {
    if (as_they_lie(plan, strides_of(to), static_cast<uint32_t>(to.size(3)), padded)) {
      return to;
    }
    return at::empty({to.size(0), to.size(1), to.size(2), padded},
                     to.options().dtype(plan.compute_type));
  };
  const at::Tensor key_sums = sums_of(grad_key, depth), value_sums = sums_of(grad_value, columns);
  a.grad_key = strides_of(key_sums);
  a.grad_value = strides_of(value_sums);

  const auto bytes = [&](const Lanes& l) {
    const size_t both = l.depth_vectors + l.column_vectors;
    return plan.compute_size * l.width *
           ((a.depth + a.columns + 2 * l.block) * l.vectors + l.queries() * l.depth_vectors +
            (l.staged ? (l.block + l.queries()) * both : 0));
  };
  const size_t local = fit(plan, lanes, bytes);
  const std::array<at::Tensor, 10> operands{plan.problem.query,
                                            plan.problem.key,
                                            plan.problem.value,
                                            plan.problem.mask,
                                            plan.out,
                                            plan.logsumexp,
                                            grad,
                                            grad_query,
                                            key_sums,
                                            value_sums};
  const auto run = [&](bool for_query, bool for_key, uint32_t ranges, size_t heads) {
    const auto defines = defines_of(plan, lanes, for_query, for_key);
    plan.launch(plan.kernel(backward_family, std::span(defines).first(16)),
                NDRange::grid(ranges, plan.batch * heads, 1, 1), operands,
                {plan.scalar(plan.problem.scale)}, local);
  };

  // A work-item per head needs five products instead of seven, if that leaves no core idle for
  // long.
  const size_t heads = size_t{plan.batch} * plan.key_heads;
  const size_t cores = plan.device.properties().compute_units;
  const size_t rounds = ceil_div(heads, cores);
  if (5 * rounds * cores <= 7 * heads) {
    a.per_item = std::max(1U, a.keys);
    run(true, true, 1, plan.key_heads);
  } else {
    const size_t wanted = ceil_div(4 * cores, heads);
    const auto share = static_cast<uint32_t>(ceil_div(a.keys, wanted));
    a.per_item = std::max(lanes.block, ceil_div(share, lanes.block) * lanes.block);
    run(false, true, ceil_div(a.keys, a.per_item), plan.key_heads);
    run(true, false, ceil_div(a.queries, lanes.queries()), a.heads);
  }
  if (!key_sums.is_same(grad_key)) grad_key.copy_(key_sums.narrow(3, 0, a.depth));
  if (!value_sums.is_same(grad_value)) grad_value.copy_(value_sums.narrow(3, 0, a.columns));
}

}  // namespace

const Implementation<Plan> lanes{
    "lanes", [](const Plan&) -> const char* { return nullptr; },
    [](Plan& plan) { (plan.gradients == nullptr ? run_forward : run_backward)(plan); }};

}  // namespace ocl::attention
