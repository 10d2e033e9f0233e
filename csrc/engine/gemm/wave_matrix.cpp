// Products by what waves of AMD's GPUs have for them: WMMA, MFMA, or dot products of two halves
// (kernels/gemm/subgroup.cl, by fragments.clh).
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "engine/device_table.h"
#include "engine/device_tiles.h"
#include "engine/gemm/fragments.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/tiles.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

using Candidates = TileCandidates<SubgroupShape>;

Candidates candidates_of(const WaveUnit& unit) {
  if (unit.fragments == kDot2) return unit.size == 64 ? Candidates(kDot64) : Candidates(kDot32);
  if (unit.size == 32) return Candidates(kWmma);
  return unit.as_floats ? Candidates(kMfmaFloats) : Candidates(kMfma);
}

/// A bit for each shape that the device has the local memory for.
uint64_t fitting(const Plan& plan, const WaveUnit& unit) {
  const DeviceProperties& properties = plan.device.properties();
  const std::span<const SubgroupShape> shapes = candidates_of(unit).shapes;
  uint64_t fits = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const SubgroupShape& s = shapes[i];
    const auto stage = static_cast<size_t>((s.tile.m + s.tile.n) * s.tile.k);
    const size_t tiles = 2 * stage * (unit.as_floats ? 4 : 2);
    // The epilogue's lines are a piece's rows of every wave.
    const auto lines = static_cast<size_t>(s.tile.m / s.rows * std::min(s.rows, 32) * s.tile.n * 4);
    const size_t more = unit.emulated ? kEmulatedBytes * static_cast<size_t>(s.tile.items) : 0;
    if (std::max(tiles, lines) + more <= properties.local_memory &&
        static_cast<size_t>(s.tile.items) <= properties.max_work_group_size) {
      fits |= uint64_t{1} << i;
    }
  }
  return fits;
}

const char* refuse(const Plan& plan) {
  if (plan.exact_terms > 1) return "operands are bfloat16x3's parts";
  if (std::strcmp(plan.a_tag, plan.b_tag) != 0 ||
      (std::strcmp(plan.a_tag, plan.out_tag) != 0 && std::strcmp(plan.out_tag, "f32") != 0)) {
    return "operands of several types";
  }
  const WaveAnswer answer = wave_unit(plan.queue, plan.a_tag);
  if (answer.unit == nullptr) return answer.reason;
  return fitting(plan, *answer.unit) == 0 ? "its tiles exceed what the device has" : nullptr;
}

void run(const Plan& source) {
  static const KernelFamily family{"gemm/subgroup.cl", "gemm_subgroup"};
  // The epilogue's neighbouring work-items store along a row.
  if (source.windows == nullptr && source.problem.out.column != 1 && source.problem.out.row == 1) {
    return run(source.transposed());
  }
  const WaveUnit& unit = *wave_unit(source.queue, source.a_tag).unit;
  const Candidates candidates = candidates_of(unit);
  const uint64_t fits = fitting(source, unit);
  const DeviceRow& row = device_row(source.device);
  const bool matrix = unit.fragments != kDot2 && !unit.as_floats;
  TileChoice choice = choose_tile(source, candidates.tiles, fits,
                                  matrix ? row.tensor_launch_cost : row.launch_cost);
  // A forced tile that isn't there.
  if (choice.index < 0) choice.index = std::countr_zero(fits);
  const SubgroupShape& s = candidates.shapes[static_cast<size_t>(choice.index)];
  run_tiles(family, source, s.tile, choice.splits,
            {{"WM", s.rows},
             {"WN", s.columns},
             {"SIZE", s.size},
             {"FRAGMENTS", static_cast<int>(unit.fragments)},
             {"EMULATED", unit.emulated},
             {"AS_FLOATS", unit.as_floats}},
            unit.as_floats ? 4 : 8);  // a chunk of chunks.clh
}

std::vector<Variation> vary(const Plan& plan, int stage) {
  const WaveUnit* unit = wave_unit(plan.queue, plan.a_tag).unit;
  if (unit == nullptr) return {};
  return vary_tile(plan, candidates_of(*unit).tiles, fitting(plan, *unit), stage);
}

}  // namespace

const Implementation wave_matrix{"wave_matrix", refuse, run, vary};

}  // namespace ocl::gemm
