// Products in half, bfloat16, TF32 and 8-bit integers by NVIDIA's tensor cores
// (kernels/gemm/tensor_core.cl).
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>

#include "engine/device_table.h"
#include "engine/device_tiles.h"
#include "engine/gemm/launch.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/split_k.h"
#include "engine/gemm/tiles.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "opencl/log.h"

namespace ocl::gemm {

namespace {

constexpr int64_t kChunkBytes = 16;  // which are copied at once

constexpr bool fits_hopper(const TensorCoreShape& s) {
  return s.local_memory() <= kAssembledLocalMemory;
}
static_assert(std::ranges::all_of(kTensorCore.shapes, fits_hopper));
static_assert(std::ranges::all_of(kTensorCoreParts.shapes, fits_hopper));

using Candidates = TileCandidates<TensorCoreShape>;

Candidates candidates_of(const Plan& plan) {
  if (plan.exact_terms > 1) return Candidates(kTensorCoreParts);
  if (plan.a_size == 1) return Candidates(kTensorCoreBytes);
  return plan.a_size == 4 ? Candidates(kTensorCoreFloats) : Candidates(kTensorCore);
}

/// Set where the driver turns out not to take programs assembled from PTX (see opencl/retarget.h):
/// with more local memory than it compiles for, or at all.
std::atomic<bool> large_tiles_failed{false}, warpgroups_failed{false};
// By whether tiles are large and by Hopper's instructions.
std::array<std::array<std::atomic<bool>, 2>, 2> first_works{};

/// Whether Hopper's instructions take the operands as they lie.
bool lies_for_warpgroups(const Plan& plan) {
  const Arguments& p = plan.problem;
  return plan.a_size == 2 || (reads_by_k(p.a.row, p.a.column) && reads_by_k(p.b.column, p.b.row));
}

size_t local_memory_of(const Plan& plan, const TensorCoreShape& shape) {
  const Arguments& p = plan.problem;
  return shape.local_memory(reads_by_k(p.a.row, p.a.column), reads_by_k(p.b.column, p.b.row));
}

uint64_t fitting(const Plan& plan) {
  const DeviceProperties& properties = plan.device.properties();
  const bool warpgroups =
      properties.has_warpgroup_mma && !warpgroups_failed.load() && lies_for_warpgroups(plan);
  const bool large = properties.has_assembled_local_memory && !large_tiles_failed.load();
  const std::span<const TensorCoreShape> shapes = candidates_of(plan).shapes;
  uint64_t fits = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const TensorCoreShape& s = shapes[i];
    const bool beyond = local_memory_of(plan, s) > properties.local_memory;
    // Where there are large tiles, the small ones for the same instructions have no use.
    if (s.warpgroup ? warpgroups && beyond == large : !beyond || large) fits |= uint64_t{1} << i;
  }
  return fits;
}

bool is_one_of(const char* tag, std::initializer_list<const char*> tags) {
  return std::any_of(tags.begin(), tags.end(),
                     [&](const char* other) { return std::strcmp(tag, other) == 0; });
}

/// Elements that are copied at once.
int64_t chunk_of(const Plan& plan) { return kChunkBytes / static_cast<int64_t>(plan.a_size); }

/// The windows' operand is aligned.
bool has_windows(const Plan& plan, Windows::Side side) {
  return plan.windows != nullptr && plan.windows->side == side;
}

bool takes_a(const Plan& plan) {
  if (has_windows(plan, Windows::a)) return true;
  const Arguments& p = plan.problem;
  return takes_vectors(plan.a, plan.a_size, chunk_of(plan), p.m, p.a.row, p.k, p.a.column,
                       p.a.batch, false);
}
bool takes_b(const Plan& plan) {
  if (has_windows(plan, Windows::b)) return true;
  const Arguments& p = plan.problem;
  return takes_vectors(plan.b, plan.a_size, chunk_of(plan), p.n, p.b.column, p.k, p.b.row,
                       p.b.batch, false);
}

const char* refuse(const Plan& plan) {
  const Arguments& p = plan.problem;
  const bool bytes = is_one_of(plan.a_tag, {"i8", "u8"});
  if (!plan.device.properties().has_tensor_cores) return "the device has no tensor cores of NVIDIA";
  const bool floats = is_one_of(plan.a_tag, {"f32"});
  if (floats && !plan.tf32) return "single precision, where TF32 isn't allowed";
  if (!bytes && !floats && !is_one_of(plan.a_tag, {"f16", "bf16"})) {
    return "neither of 16 bits nor of 8, nor TF32";
  }
  if (std::strcmp(plan.a_tag, plan.b_tag) != 0 ||
      (bytes ? std::strcmp(plan.compute_tag, "u32") != 0
             : !is_one_of(plan.out_tag, {plan.a_tag, "f32"}))) {
    return "operands of several types";
  }
  if (p.k == 0) return "k is 0";
  if (bytes && !lies_for_warpgroups(plan)) {
    return "operands of 8 bits that aren't contiguous along k";
  }
  if (fitting(plan) == 0) {
    return bytes ? "only Hopper's instructions take 8 bits" : "the tiles exceed the local memory";
  }
  // Copying an operand costs as much as multiplying it by that many lines.
  if ((!takes_a(plan) && p.n < 64) || (!takes_b(plan) && p.m < 64)) {
    return "an operand isn't aligned, and its copy costs more than it gains";
  }
  return nullptr;
}

/// An operand copied so that it is aligned: lines of p.k elements, or, where it is rather
/// contiguous the other way, p.k lines.
class AlignedOperand {
 public:
  AlignedOperand(const Plan& plan, bool aligned, const char*& data, uint64_t& line_stride,
                 uint64_t& k_stride, uint64_t& batch_stride, uint32_t lines)
      : workspace_(aligned ? 0
                           : bytes(plan, lines, reads_by_k(line_stride, k_stride)) *
                                 matrices(plan, batch_stride)) {
    if (aligned) return;
    const bool along_k = reads_by_k(line_stride, k_stride);
    const uint32_t length = along_k ? plan.problem.k : lines;
    const uint32_t count = along_k ? lines : plan.problem.k;
    const uint64_t pitch = round_up(length, chunk_of(plan));
    Plan copied = plan;
    copied.problem.batch = matrices(plan, batch_stride);
    copy_lines(copied, data, plan.a_size, along_k ? k_stride : line_stride,
               along_k ? line_stride : k_stride, batch_stride, length, count, pitch,
               workspace_.data());
    data = workspace_.data();
    line_stride = along_k ? pitch : 1;
    k_stride = along_k ? 1 : pitch;
    batch_stride = batch_stride == 0 ? 0 : pitch * count;
  }

 private:
  static size_t bytes(const Plan& plan, uint32_t lines, bool along_k) {
    const size_t length = along_k ? plan.problem.k : lines,
                 count = along_k ? lines : plan.problem.k;
    return count * round_up(length, chunk_of(plan)) * plan.a_size;
  }
  static uint32_t matrices(const Plan& plan, uint64_t batch_stride) {
    return batch_stride == 0 ? 1 : plan.problem.batch;
  }
  Workspace workspace_;
};

/// Whether out, and the addend where there is one, can be accessed 16 bytes at a time. An epilogue
/// looks at what it accesses itself, and takes columns of a row.
bool is_wide(const Plan& plan) {
  const int64_t chunk = kChunkBytes / static_cast<int64_t>(plan.out_size);
  const auto wide = [&](const char* data, const Strides& s) {
    return s.column == 1 && reinterpret_cast<uintptr_t>(data) % 16 == 0 && s.row % chunk == 0 &&
           s.batch % chunk == 0;
  };
  const Arguments& p = plan.problem;
  if (plan.windows != nullptr && !plan.windows->rows_are_multiples(chunk)) return false;
  const bool out =
      plan.epilogue == nullptr ? wide(plan.out, p.out) : (p.flags & (kTransposed | kKeepSums)) == 0;
  return plan.a_size > 1 && p.n % chunk == 0 && out &&
         ((p.flags & kAddend) == 0 || wide(plan.c, p.c));
}

Kernel& kernel_of(const Plan& plan, const TensorCoreShape& s) {
  static const KernelFamily family{"gemm/tensor_core.cl", "gemm_tensor_core"};
  const Arguments& p = plan.problem;
  const size_t local = local_memory_of(plan, s);
  const int windows = plan.windows == nullptr ? Windows::none : plan.windows->side;
  const int axes = plan.windows == nullptr ? 3 : plan.windows->axes();
  const std::array<Define, 17> defines{{{"BM", s.tile.m},
                                        {"BN", s.tile.n},
                                        {"BK", s.tile.k},
                                        {"WM", s.warp_m},
                                        {"WN", s.warp_n},
                                        {"STAGES", s.stages},
                                        {"LAG", s.lag},
                                        {"PREFETCHED", s.stages - s.lag - 1},
                                        {"LINE_BYTES", s.tile.k * s.element},
                                        {"A_BY_K", reads_by_k(p.a.row, p.a.column)},
                                        {"B_BY_K", reads_by_k(p.b.column, p.b.row)},
                                        {"WARPGROUP", s.warpgroup},
                                        {"WINDOWS", windows},
                                        {"AXES", axes},
                                        {"EXACT_TERMS", plan.exact_terms},
                                        {"OCL_PTX_TARGET", "sm_90a"},
                                        {"OCL_PTX_LOCAL", local}}};
  const bool large = local > plan.device.properties().local_memory;
  return get_kernel(family, plan, std::span(defines).first(large ? 17 : s.warpgroup ? 16 : 15));
}

void run(const Plan& source) {
  if (source.windows == nullptr && source.problem.out.column != 1 && source.problem.out.row == 1) {
    return run(source.transposed());
  }
  Plan plan = source;
  Arguments& p = plan.problem;
  if (is_wide(plan)) p.flags |= kWide;
  const uint64_t fits = fitting(plan);
  const Candidates candidates = candidates_of(plan);
  const DeviceRow& row = device_row(plan.device);
  TileChoice choice = choose_tile(plan, candidates.tiles, fits, row.tensor_launch_cost,
                                  {.part = row.tensor_part_cost});
  if (choice.index < 0) choice.index = std::countr_zero(fits);
  const TensorCoreShape& s = candidates.shapes[static_cast<size_t>(choice.index)];
  const AlignedOperand a(plan, takes_a(plan), plan.a, p.a.row, p.a.column, p.a.batch, p.m);
  const AlignedOperand b(plan, takes_b(plan), plan.b, p.b.column, p.b.row, p.b.batch, p.n);
  // The parts' sums are added up row by row.
  const bool whole = plan.windows != nullptr && plan.windows->is_apart();
  set_splits(p, whole ? 1 : choice.splits, s.tile.k);
  const Workspace sums(split_bytes(plan));
  Kernel* kernel = nullptr;
  try {
    kernel = &kernel_of(plan, s);
    // Whether the driver takes the first of its kind decides on all: that one is waited for.
    const bool large = local_memory_of(plan, s) > plan.device.properties().local_memory;
    std::atomic<bool>& works = first_works[large][s.warpgroup];
    if ((large || s.warpgroup) && !works.load(std::memory_order_relaxed)) {
      kernel->handle();
      works.store(true);
    }
  } catch (const Error& error) {
    const bool large = local_memory_of(plan, s) > plan.device.properties().local_memory;
    if (!s.warpgroup && !large) throw;
    warn((large ? "smaller tiles of products: " : "products without Hopper's instructions: ") +
         std::string(error.what()));
    (large ? large_tiles_failed : warpgroups_failed).store(true);
    return run_again(source);
  }
  const size_t items = static_cast<size_t>(s.tile.items);
  launch_gemm(*kernel, plan, NDRange::linear(tile_groups(p, s.tile) * items, items), sums.data(),
              windows_of(plan));
  finish_split(plan, sums.data());
}

std::vector<Variation> vary(const Plan& plan, int stage) {
  return vary_tile(plan, candidates_of(plan).tiles, fitting(plan), stage);
}

}  // namespace

bool warpgroups_fail() { return warpgroups_failed.load(); }

const Implementation tensor_core{"tensor_core", refuse, run, vary};

}  // namespace ocl::gemm
