// Products that one launch of a simple kernel finishes before others have packed their operands
// (kernels/gemm/small.cl).
#include <algorithm>
#include <array>
#include <bit>

#include "engine/gemm/launch.h"
#include "engine/gemm/plan.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

constexpr uint32_t kRows = 4;
// Multiplications of one matrix: past that, packing pays.
constexpr int64_t kMost = 48 * 48 * 48;
// Sums are not split: longer ones would lose digits.
constexpr uint32_t kMostDepth = 256;

const char* refuse(const Plan& plan) {
  const Arguments& p = plan.problem;
  if (!plan.device.is_cpu()) return "only for CPU devices";
  if (p.m == 1 || p.n == 1) return "a vector";
  if (p.k > kMostDepth) return "k is long";
  if (int64_t{p.m} * p.n * p.k > kMost) return "large enough for packing to pay";
  return nullptr;
}

void run(const Plan& source) {
  static const KernelFamily family{"gemm/small.cl", "gemm_small"};
  // The vectors are of columns: of what lies side by side in b, or at least in the result.
  const Arguments& given = source.problem;
  const bool turns = given.b.column != 1 && (given.a.row == 1 || given.out.row == 1);
  const Plan plan = turns ? source.transposed() : source;
  const Arguments& p = plan.problem;
  const auto most = static_cast<uint32_t>(plan.parameters.packed.width);
  const uint32_t width = plan.complex ? 1 : std::min(most, std::bit_floor(p.n));
  const std::array<Define, 2> defines{{{"ROWS", kRows}, {"WIDTH", width}}};
  const size_t columns = ceil_div(p.n, width), rows = ceil_div(p.m, kRows);
  // One work-group where there is little to do, for it costs more than its work-items.
  const size_t local = std::min<size_t>(rows, 8);
  launch_gemm(get_kernel(family, plan, defines), plan,
              NDRange::volume({columns, round_up(rows, local), p.batch}, {1, local, 1}));
}

}  // namespace

const Implementation small{"small", refuse, run};

}  // namespace ocl::gemm
