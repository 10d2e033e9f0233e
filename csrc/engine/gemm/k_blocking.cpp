// Products of few rows and columns over a long k, such as weights' gradients
// (kernels/gemm/k_blocking.cl).
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "engine/device_table.h"
#include "engine/gemm/launch.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/split_k.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

constexpr uint32_t kDepth = 128;
constexpr uint32_t kMostColumns = 512;
// Below it packing everything at once is little work.
constexpr uint32_t kLeastDepth = 2048;
constexpr uint32_t kMostBatches = 16;

/// The plan with columns of b side by side, the more of m and n as columns.
Plan oriented(const Plan& plan) {
  const Arguments& p = plan.problem;
  const bool may_turn = p.a.row == 1, may_stay = p.b.column == 1;
  return may_turn && (!may_stay || p.m > p.n) ? plan.transposed() : plan;
}

const char* refuse(const Plan& source) {
  if (!source.device.is_cpu()) return "only for CPU devices";
  if (source.complex) return "complex numbers";
  const Plan plan = oriented(source);
  const Arguments& p = plan.problem;
  const PackedParameters& tile = plan.parameters.packed;
  if (std::string_view(plan.a_tag) != plan.compute_tag) return "elements to convert";
  if (p.b.column != 1) return "columns of b do not lie side by side";
  if (p.n % tile.width != 0) return "columns do not fill vectors";
  if (p.m <= static_cast<uint32_t>(tile.rows)) return "too few rows";
  if (p.k < kLeastDepth) return "k is short";
  if (p.batch > kMostBatches) return "many batches";
  if (p.n > kMostColumns || int64_t{p.m} * p.n * static_cast<int64_t>(plan.compute_size) >
                                // A work-item's sums share the second cache with its block of b.
                                device_row(plan.device).reread_bytes) {
    return "sums that do not fit into a cache";
  }
  return nullptr;
}

void run(const Plan& source) {
  static const KernelFamily family{"gemm/k_blocking.cl", "gemm_k_blocking"};
  Plan plan = oriented(source);
  Arguments& p = plan.problem;
  const PackedParameters& tile = plan.parameters.packed;
  // With 32 registers there is room for one more row, and fewer of the last tile's may be idle.
  const auto padded = [&](int rows) { return ceil_div(p.m, rows) * rows; };
  const bool more = tile.rows == 12 && padded(13) < padded(12);
  const int rows = tile.rows + (more ? 1 : 0), columns = tile.vectors * tile.width;
  const std::array<Define, 5> defines{{{"WIDTH", tile.width},
                                       {"MR", rows},
                                       {"NV", tile.vectors},
                                       {"DEPTH", kDepth},
                                       {"ADJACENT", p.a.row == 1 ? 1 : 0}}};
  // Two parts at least: a work-item's sums are parts, that gemm_split_k adds up.
  const int64_t target = items_of_cores(plan.device);
  split_k(p, p.batch, std::max<int64_t>(target, 2 * int64_t{p.batch}), kDepth, kDepth);
  const uint64_t panels = round_up(split_bytes(plan), 512);
  const uint64_t block = ceil_div(p.n, columns) * uint64_t{kDepth} * columns;
  const Workspace workspace(panels + p.splits * p.batch * block * plan.compute_size);
  std::array<unsigned char, sizeof panels> extra;
  std::memcpy(extra.data(), &panels, sizeof panels);
  launch_gemm(get_kernel(family, plan, defines), plan,
              NDRange::volume({p.splits, p.batch, 1}, {1, 1, 1}), workspace.data(), extra);
  finish_split(plan, workspace.data());
}

}  // namespace

const Implementation k_blocking{"k_blocking", refuse, run};

}  // namespace ocl::gemm
