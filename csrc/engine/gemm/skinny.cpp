// Products with few rows or columns: bound by one read of the large matrix
// (kernels/gemm/skinny_*.cl).
#include <algorithm>
#include <array>
#include <bit>

#include "engine/device_table.h"
#include "engine/gemm/launch.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/split_k.h"
#include "engine/gemm/tiles.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

// Columns past which AMX is faster, for a matrix of so many elements: it takes two launches.
constexpr uint32_t kMostBesideAmx = 4, kLargeBesideAmx = 1 << 16;
// Rows for each column beside which a copy of the columns is little.
constexpr uint32_t kRowsOfCopy = 16;
constexpr int kVectorOfBlock = 8;  // numbers that are made of 4 bits together
constexpr int kDotColumns = 4;     // of more, those whose sums are in registers at a time

/// The plan with the large matrix as a: as few columns as there are.
Plan oriented(const Plan& plan) {
  return plan.problem.m < plan.problem.n ? plan.transposed() : plan;
}

int rounded_columns(uint32_t n) { return n <= 1 ? 1 : n <= 2 ? 2 : n <= 4 ? 4 : 8; }

/// The dot kernel reads rows of a and columns of b; where they aren't contiguous they are copied.
bool copies_rows(const Plan& plan) { return plan.problem.a.column != 1; }
bool copies_columns(const Plan& plan) { return plan.problem.b.row != 1; }
/// Without rows of one element, which are contiguous in both directions.
bool by_columns(const Plan& plan) {
  return plan.problem.a.row == 1 && plan.problem.a.column != 1 && plan.problem.m > 1;
}

int64_t copied_bytes(const Plan& plan) {
  const Arguments& p = plan.problem;
  if (by_columns(plan) || !copies_rows(plan)) return 0;
  return int64_t{p.batch} * p.m * p.k * static_cast<int64_t>(plan.a_size);
}

const NormOfA* norm_of(const Plan& plan) {
  return plan.pieces != nullptr ? plan.pieces->norm : nullptr;
}

const ScalesOfB* scales_of(const Plan& plan) {
  return plan.pieces != nullptr ? plan.pieces->scales : nullptr;
}

bool has_four_bits(const Plan& plan) {
  const ScalesOfB* scales = scales_of(plan);
  return scales != nullptr && scales->group > 0;
}

/// Why none of the four takes the plan, in `plan` as oriented() gives it.
const char* refuse(const Plan& plan) {
  const Arguments& p = plan.problem;
  if (p.k == 0) return "k is 0";
  if (takes_amx(plan) && p.n > kMostBesideAmx && uint64_t{p.m} * p.k >= kLargeBesideAmx) {
    return "AMX is faster";
  }
  if (p.n > kSkinnyColumns && !prefers_dots(plan)) {
    return "too many rows and columns";
  }
  if (plan.device.is_cpu() && copied_bytes(plan) > plan.parameters.max_workspace) {
    return "the large matrix is contiguous in no direction and its copy exceeds the workspace";
  }
  return nullptr;
}

/// Whether the other pieces of the large matrix, and a norm's weight, are aligned to vectors, as
/// takes_vectors() asks.
bool pieces_take_vectors(const Plan& plan, int width) {
  if (plan.pieces == nullptr) return true;
  const auto aligned = [&](const void* data, size_t size) {
    return reinterpret_cast<uintptr_t>(data) % (static_cast<size_t>(width) * size) == 0;
  };
  const NormOfA* norm = norm_of(plan);
  return aligned(plan.pieces->second_data, plan.a_size) &&
         aligned(plan.pieces->third_data, plan.a_size) &&
         (norm == nullptr || aligned(norm->weight, c10::elementSize(norm->dtype)));
}

/// Whether the operands of group_dot are vectors of so many elements.
bool takes_vectors_of_k(const Plan& plan, int width) {
  const Arguments& p = plan.problem;
  return p.a.column == 1 && p.b.row == 1 &&
         takes_vectors(plan.a, plan.a_size, width, p.m, p.a.row, p.k, 1, p.a.batch, false) &&
         takes_vectors(plan.b, plan.b_size, width, p.n, p.b.column, p.k, 1, p.b.batch, false) &&
         pieces_take_vectors(plan, width);
}

const char* refuse_four_bits(const Plan& plan) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return aligned(plan.a) && aligned(plan.pieces->second_data) && aligned(plan.pieces->third_data) &&
                 takes_vectors_of_k(plan, kVectorOfBlock)
             ? nullptr
             : "blocks of 4 bits that begin anywhere";
}

template <bool on_cpu, bool columns>
const char* refuse(const Plan& source) {
  if (source.device.is_cpu() != on_cpu) return on_cpu ? "only for CPU devices" : "only for GPUs";
  if (norm_of(source) != nullptr && (on_cpu || columns)) return "a norm";
  if (scales_of(source) != nullptr && (on_cpu || columns)) return "scales";
  const Plan plan = oriented(source);
  if (const char* reason = refuse(plan)) return reason;
  if (has_four_bits(plan)) return refuse_four_bits(plan);
  if (by_columns(plan) == columns) return nullptr;
  return columns ? "the columns of the large matrix aren't contiguous"
                 : "the columns of the large matrix are contiguous";
}

int registers_of_item(const Plan& plan) { return device_row(plan.device).hardware.item_registers; }

void run_axpy(Plan& plan, std::span<const Define> defines) {
  static const KernelFamily family{"gemm/skinny_axpy.cl", "gemm_skinny_axpy"};
  const SkinnyParameters& parameters = plan.parameters.skinny;
  Arguments& p = plan.problem;
  const size_t step = static_cast<size_t>(parameters.rows) * parameters.width;
  const size_t items = ceil_div(p.m, step);
  split_k(p, items * p.batch, items_of_cores(plan.device), 512, 8);
  const Workspace sums(split_bytes(plan));
  launch_gemm(get_kernel(family, plan, defines), plan,
              NDRange::volume({items, p.splits, p.batch}, {1, 1, 1}), sums.data());
  finish_split(plan, sums.data());
}

/// run_axpy() for GPUs.
void run_group_axpy(Plan& plan, std::span<const Define> common) {
  static const KernelFamily family{"gemm/group_axpy.cl", "gemm_group_axpy"};
  constexpr size_t kLanes = 32, kDepth = 8;
  Arguments& p = plan.problem;
  const int most = plan.parameters.skinny.width;
  const bool vectors = most > 1 && takes_vectors(plan.a, plan.a_size, most, p.m, p.a.row, p.k,
                                                 p.a.column, p.a.batch, true);
  const int width = vectors ? most : 1, columns = rounded_columns(p.n);
  const int in_flight = columns <= 4 ? 8 : registers_of_item(plan) >= 128 ? 4 : 2;
  const std::array<Define, 5> defines{{{"WIDTH", width},
                                       common[1],
                                       {"ROW_ITEMS", kLanes},
                                       {"DEPTH", kDepth},
                                       {"IN_FLIGHT", in_flight}}};
  const size_t step = kLanes * static_cast<size_t>(width), groups = ceil_div(p.m, step);
  split_k(p, groups * p.batch, parts_of_work(plan.device), 16 * kDepth, kDepth);
  const Workspace sums(split_bytes(plan));
  launch_gemm(
      get_kernel(family, plan, defines), plan,
      NDRange::volume({groups * kLanes * kDepth, p.splits, p.batch}, {kLanes * kDepth, 1, 1}),
      sums.data());
  finish_split(plan, sums.data());
}

void run_dot(Plan& plan, std::span<const Define> defines) {
  static const KernelFamily family{"gemm/skinny_dot.cl", "gemm_skinny_dot"};
  const SkinnyParameters& parameters = plan.parameters.skinny;
  Arguments& p = plan.problem;
  const size_t items = ceil_div(p.m, parameters.rows);
  split_k(p, items * p.batch, items_of_cores(plan.device), 4096, 64);
  const size_t sums_bytes = round_up(split_bytes(plan), 512);
  const size_t column_bytes = copies_columns(plan) ? size_t{p.batch} * p.n * p.k * plan.b_size : 0;
  const size_t rows_at = sums_bytes + round_up(column_bytes, 512);
  const Workspace workspace(rows_at + copied_bytes(plan));
  Plan copied = plan;
  if (copies_columns(plan)) {
    copied.b = workspace.data() + sums_bytes;
    copied.problem.b = {1, p.k, uint64_t{p.n} * p.k};
    copy_lines(plan, plan.b, plan.b_size, p.b.row, p.b.column, p.b.batch, p.k, p.n, p.k,
               workspace.data() + sums_bytes);
  }
  if (copies_rows(plan)) {
    copied.a = workspace.data() + rows_at;
    copied.problem.a = {p.k, 1, uint64_t{p.m} * p.k};
    copy_lines(plan, plan.a, plan.a_size, p.a.column, p.a.row, p.a.batch, p.k, p.m, p.k,
               workspace.data() + rows_at);
  }
  launch_gemm(get_kernel(family, copied, defines), copied,
              NDRange::volume({items, p.splits, p.batch}, {1, 1, 1}), workspace.data());
  finish_split(plan, workspace.data());
}

/// Rows of a group of group_dot: their sums and loads take two thirds of the registers at most, and
/// each unit has work for some groups.
size_t rows_of_group(const Plan& plan, int columns, int width) {
  constexpr int kMostRows = 8, kGroupsOfUnit = 5;
  const Arguments& p = plan.problem;
  const int most = std::min(kMostRows, registers_of_item(plan) / (3 * width)) / columns;
  size_t rows = std::bit_floor(static_cast<size_t>(std::max(1, most)));
  const uint64_t groups = kGroupsOfUnit * uint64_t{plan.device.properties().compute_units};
  while (rows > 1 && ceil_div(p.m, rows) * p.batch < groups) rows /= 2;
  return rows;
}

/// Work-items of a group whose rows have 4 bits, so many at most: the columns of all their blocks
/// are floats in local memory.
size_t items_of_blocks(const Plan& plan, int columns, size_t most) {
  constexpr size_t kLeast = 16;
  const size_t of_item = static_cast<size_t>(columns * kFourBitBlock) * sizeof(float);
  while (most > kLeast && most * of_item > plan.device.properties().local_memory / 2) most /= 2;
  return most;
}

void run_group_dot(Plan& plan, std::span<const Define> common) {
  static const KernelFamily family{"gemm/group_dot.cl", "gemm_group_dot"};
  Arguments& p = plan.problem;
  const int columns = rounded_columns(p.n);
  // Vectors of the half types have the bytes of single precision's, where the sums of all columns
  // then take half of the registers at most.
  int most = plan.parameters.skinny.width;
  if (!plan.complex && plan.a_size <= 2 && 2 * most * columns <= registers_of_item(plan) / 2) {
    most = std::min(8, 2 * most);
  }
  const ScalesOfB* scales = scales_of(plan);
  const bool four_bits = has_four_bits(plan);
  const int width = four_bits                                    ? kVectorOfBlock
                    : most > 1 && takes_vectors_of_k(plan, most) ? most
                                                                 : 1;
  const NormOfA* norm = norm_of(plan);
  const size_t rows = rows_of_group(plan, columns, width), groups = ceil_div(p.m, rows);
  const size_t in_flight = columns > 2 ? 2 : std::max<size_t>(1, 4 / rows);
  const size_t usual = plan.parameters.skinny.local;
  size_t local = rows > 4 ? usual / 2 : usual;
  if (four_bits) local = items_of_blocks(plan, columns, local);
  std::array<Define, 11> defines{{{"WIDTH", width},
                                  common[1],
                                  {"ROWS", rows},
                                  {"LOCAL", local},
                                  {"IN_FLIGHT", in_flight},
                                  common[4]}};
  size_t given = 6;
  if (norm != nullptr) defines[given++] = {"NORM", tag(norm->dtype)};
  if (scales != nullptr) {
    defines[given++] = {"QUANTISED", four_bits ? 4 : 8};
    defines[given++] = {"SCALES", tag(scales->dtype)};
    if (four_bits) defines[given++] = {"SCALE_GROUP", scales->group};
    if (scales->has_points) defines[given++] = {"POINTS", 1};
  }
  // A norm needs all of k.
  if (norm == nullptr) {
    const auto step = static_cast<size_t>(four_bits ? kFourBitBlock : width);
    split_k(p, static_cast<int64_t>(groups * p.batch), groups_of_units(plan.device), 4096,
            local * step);
  }
  const Workspace sums(split_bytes(plan));
  launch_gemm(get_kernel(family, plan, std::span(defines).first(given)), plan,
              NDRange::volume({groups * local, p.splits, p.batch}, {local, 1, 1}), sums.data());
  finish_split(plan, sums.data());
}

/// Runs one of the above.
template <void (*launch)(Plan&, std::span<const Define>)>
void run(const Plan& source) {
  Plan plan = oriented(source);
  const SkinnyParameters& parameters = plan.parameters.skinny;
  // rows x columns sums stay in registers.
  int columns = rounded_columns(plan.problem.n), rows = 0;
  if (plan.problem.n > kSkinnyColumns) {
    columns = kDotColumns;
    rows = plan.parameters.packed.rows * plan.parameters.packed.vectors / columns;
  } else {
    // A column is read in runs of rows x width elements, so there the runs are as long as possible.
    const int wanted = plan.device.is_cpu() && by_columns(plan) ? 16 : parameters.rows;
    rows = std::max(1, std::min(wanted, 16 / columns));
    // A dot product has one row; copies of it would be loaded and summed with it.
    if (plan.problem.m == 1 && !by_columns(plan)) rows = 1;
  }
  int width = parameters.width;
  if (plan.device.is_cpu() && by_columns(plan)) {
    // Runs are no longer than a column.
    width = std::min(width, static_cast<int>(std::bit_floor(plan.problem.m)));
    while (static_cast<uint32_t>(rows * width) > plan.problem.m) rows = (rows + 1) / 2;
  }
  plan.parameters.skinny.rows = rows;
  plan.parameters.skinny.width = width;
  const std::array<Define, 5> defines{{{"WIDTH", width},
                                       {"NQ", columns},
                                       {"ROWS", rows},
                                       {"LOCAL", parameters.local},
                                       {"PIECES", plan.pieces != nullptr ? 1 : 0}}};
  // The sums of these kernels are no vectors of columns. What finishes split ones takes vectors,
  // which pays for a launch of its own where there are many.
  if (plan.epilogue != nullptr && plan.epilogue->lanes > 1 &&
      uint64_t{plan.problem.m} * plan.problem.n * plan.problem.batch > kSkinnyResults) {
    plan.problem.flags |= kKeepSums;
  }
  launch(plan, defines);
}

std::vector<Variation> vary(const Plan& plan, int stage) {
  Parameters parameters = plan.parameters;
  std::vector<Variation> list;
  if (stage > 0 || oriented(plan).problem.n > kSkinnyColumns) return list;
  const auto add = [&](const char* what, int& value, std::initializer_list<int> others) {
    const int usual = value;
    for (const int other : others) {
      if (other == usual) continue;
      value = other;
      list.push_back({what + std::to_string(other), parameters});
    }
  };
  if (plan.device.is_cpu()) {
    add("rows=", parameters.skinny.rows, {2, 4, 8, 16});
  } else {
    add("local=", parameters.skinny.local, {32, 64, 128, 256});
  }
  return list;
}

}  // namespace

// Packing has the large matrix written once more. Adding up the lanes costs as much as about eight
// elements of k for each sum.
bool prefers_dots(const Plan& plan) {
  const Arguments& p = plan.problem;
  if (!plan.device.is_cpu() || plan.complex || copies_rows(plan)) return false;
  if (copies_columns(plan) && p.m < kRowsOfCopy * p.n) return false;
  // A processor's own dot products, which packed panels take, are twice as fast.
  const uint32_t most = packed_group(plan) > 1 ? 32 : 128;
  return p.n <= most && uint64_t{p.n} * 8 <= p.k;
}

const Implementation skinny_axpy{"skinny_axpy", refuse<true, true>, run<run_axpy>, vary};
const Implementation skinny_dot{"skinny_dot", refuse<true, false>, run<run_dot>, vary};
const Implementation group_axpy{"group_axpy", refuse<false, true>, run<run_group_axpy>, vary};
const Implementation group_dot{"group_dot", refuse<false, false>, run<run_group_dot>, vary};

}  // namespace ocl::gemm
