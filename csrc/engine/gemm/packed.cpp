// Products on CPUs: both operands packed into panels, then register tiles (kernels/gemm/packed.cl).
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/gemm/launch.h"
#include "engine/gemm/plan.h"
#include "engine/gemm/split_k.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

namespace {

// Row panels whose sums a work-item has at a time, 4 KiB each.
constexpr int64_t kMostAmxPanels = 8;

#include "gemm/packed_arguments.clh"

/// Panels hold real numbers; a complex product takes twice the depth and twice the columns.
int64_t parts_of(const Plan& plan) { return plan.complex ? 2 : 1; }
const char* panel_tag(const Plan& plan) {
  return !plan.complex ? plan.compute_tag : plan.compute_size == 8 ? "f32" : "f64";
}
/// Columns of the product in a panel, and the bytes of a panel of either operand.
int64_t columns_of(const Plan& plan) {
  const PackedParameters& parameters = plan.parameters.packed;
  return int64_t{parameters.vectors} * parameters.width / parts_of(plan);
}
/// Whether the operands and what they are multiplied in have those tags.
bool are(const Plan& plan, std::string_view in, std::string_view compute) {
  return plan.a_tag == in && plan.b_tag == in && plan.compute_tag == compute;
}
/// Whether the processor's AMX multiplies the panels (kernels/gemm/amx.clh).
bool by_amx(const Plan& plan) { return plan.parameters.packed.rows == kAmxRows; }
/// Values of a row or column of a panel: groups of elements along k.
int64_t panel_depth(const Plan& plan) {
  const int64_t values = ceil_div(plan.problem.k, packed_group(plan));
  return by_amx(plan) ? round_up(values, 16) : values;
}
int64_t panel_line_bytes(const Plan& plan) {
  return panel_depth(plan) * static_cast<int64_t>(plan.compute_size);
}
int64_t row_panel_bytes(const Plan& plan) {
  return plan.parameters.packed.rows * panel_line_bytes(plan);
}
int64_t column_panel_bytes(const Plan& plan) {
  return columns_of(plan) * parts_of(plan) * panel_line_bytes(plan);
}

uint64_t aligned(uint64_t bytes) { return round_up(bytes, 512); }

/// Whether the inner loop is the processor's own language (kernels/gemm/fma_rows.clh).
bool by_fma_rows(const Plan& plan) {
  const PackedParameters& packed = plan.parameters.packed;
  return plan.device.properties().has_avx512 && std::string_view(panel_tag(plan)) == "f32" &&
         packed_group(plan) == 1 && packed.rows == 12 && packed.vectors == 2 && packed.width == 16;
}

/// Who packs b: a launch of its own, the work-item that multiplies it, or nobody, because it is
/// packed or because AMX takes it as it lies.
enum class PacksB { apart, inside, in_place, never };

/// A product allocates nothing for them.
using Defines = c10::SmallVector<Define, 11>;

Defines defines_of(const Plan& plan, PacksB packs_b) {
  const PackedParameters& parameters = plan.parameters.packed;
  Defines defines{{"R", panel_tag(plan)},        {"PARTS", parts_of(plan)},
                  {"WIDTH", parameters.width},   {"MR", parameters.rows},
                  {"NV", parameters.vectors},    {"KC", parameters.kc},
                  {"K_PACK", packed_group(plan)}};
  if (by_fma_rows(plan)) defines.push_back({"FMA_ROWS", 1});
  if (packs_b == PacksB::inside) defines.push_back({"PACK_B", 1});
  if (packs_b == PacksB::in_place) defines.push_back({"B_IN_PLACE", 1});
  if (by_amx(plan)) {
    defines.push_back({"AMX", 1});
    defines.push_back({"MOST_PANELS", kMostAmxPanels});
  }
  return defines;
}

/// Packs what `panels` says of a, and b where that is done apart.
void pack(const Plan& plan, const PackedArguments& panels, PacksB packs_b, void* workspace) {
  static const KernelFamily family{"gemm/packed.cl", "gemm_pack"};
  const Arguments& p = plan.problem;
  const int64_t row_panels = panels.a_batches * ceil_div(p.m, plan.parameters.packed.rows);
  const int64_t column_panels =
      packs_b == PacksB::apart ? panels.b_batches * ceil_div(p.n, columns_of(plan)) : 0;
  launch_gemm(get_kernel(family, plan, defines_of(plan, packs_b)), plan,
              NDRange::grid(ceil_div(p.k, kPackDepth), row_panels + column_panels, 1, 1), workspace,
              {reinterpret_cast<const unsigned char*>(&panels), sizeof panels});
}

/// Packs and multiplies a problem whose panels fit the workspace.
void run_block(const Plan& source) {
  static const KernelFamily family{"gemm/packed.cl", "gemm_packed"};
  Plan plan = source;
  const PackedParameters& parameters = plan.parameters.packed;
  Arguments& p = plan.problem;
  const int64_t row_panels = ceil_div(p.m, parameters.rows);
  const int64_t column_panels = ceil_div(p.n, columns_of(plan));
  const int64_t cores = plan.device.properties().compute_units;

  // As many row panels per work-item as the cache holds beside a column panel, but enough
  // work-items for every core to get its share.
  const int64_t tiles = row_panels * column_panels * p.batch;
  const int64_t most = by_amx(plan) ? kMostAmxPanels : 16;
  int64_t block = std::clamp<int64_t>(parameters.block_bytes / row_panel_bytes(plan), 1, most);
  block = std::clamp<int64_t>(tiles / (cores * 8), 1, block);
  const int64_t items = ceil_div(row_panels, block) * column_panels * p.batch;
  split_k(p, items, cores * 2, 2048, parameters.kc);

  PackedArguments panels{};
  panels.a_batches = p.a.batch == 0 ? 1 : p.batch;
  panels.b_batches = p.b.batch == 0 ? 1 : p.batch;
  panels.block = static_cast<uint32_t>(block);
  panels.b_packed = plan.b_packed;
  const int64_t a_panels = panels.a_batches * row_panels;
  const int64_t b_panels = plan.b_packed ? 0 : panels.b_batches * column_panels;
  panels.b_panels = aligned(a_panels * row_panel_bytes(plan));
  panels.sums = panels.b_panels + aligned(b_panels * column_panel_bytes(plan));
  const Workspace workspace(panels.sums + split_bytes(plan));

  // Where no other work-item needs the column panel, the one that multiplies it packs it: what it
  // has written is still in its cache.
  const bool alone = row_panels <= block && panels.b_batches == p.batch;
  const PacksB packs_b = plan.b_packed                                        ? PacksB::never
                         : alone && by_amx(plan) && p.b.row == 1 && p.n >= 32 ? PacksB::in_place
                         : alone                                              ? PacksB::inside
                                                                              : PacksB::apart;
  pack(plan, panels, packs_b, workspace.data());
  launch_gemm(get_kernel(family, plan, defines_of(plan, packs_b)), plan,
              NDRange::volume({static_cast<size_t>(column_panels * p.splits),
                               static_cast<size_t>(ceil_div(row_panels, block)), p.batch},
                              {1, 1, 1}),
              workspace.data(), {reinterpret_cast<const unsigned char*>(&panels), sizeof panels});
  finish_split(plan, workspace.data() + panels.sums);
}

/// The rows [row0, row0 + m), columns [column0, column0 + n) and batches [z0, z0 + batch) of a
/// plan.
Plan part_of(const Plan& plan, int64_t row0, int64_t m, int64_t column0, int64_t n, int64_t z0,
             int64_t batch) {
  Plan part = plan;
  Arguments& p = part.problem;
  p.m = static_cast<uint32_t>(m);
  p.n = static_cast<uint32_t>(n);
  p.batch = static_cast<uint32_t>(batch);
  p.row0 += static_cast<uint32_t>(row0);
  p.column0 += static_cast<uint32_t>(column0);
  p.batch0 += static_cast<uint32_t>(z0);
  part.a += (row0 * p.a.row + z0 * p.a.batch) * plan.a_size;
  part.b += plan.b_packed ? column0 / columns_of(plan) * column_panel_bytes(plan)
                          : (column0 * p.b.column + z0 * p.b.batch) * plan.b_size;
  if (p.flags & kAddend) {
    part.c += (row0 * p.c.row + column0 * p.c.column + z0 * p.c.batch) * plan.out_size;
  }
  part.out += (row0 * p.out.row + column0 * p.out.column + z0 * p.out.batch) * plan.out_size;
  return part;
}

bool too_deep(const Plan& plan) {
  return row_panel_bytes(plan) + column_panel_bytes(plan) > plan.parameters.max_workspace;
}

const char* refuse(const Plan& plan) {
  const Arguments& p = plan.problem;
  if (p.k == 0) return "k is 0";
  if (columns_of(plan) == 0) return "a complex number is wider than a panel";
  if (too_deep(plan)) return "one panel of each operand exceeds the workspace";
  // Two launches and padding to a tile cost more than they save.
  if (int64_t{p.m} * p.n * p.k <= 4096) return "tiny";
  return nullptr;
}

void run(const Plan& plan) {
  // The epilogue stores rows of vectors.
  if (plan.problem.out.column != 1 && plan.problem.out.row == 1) return run(plan.transposed());
  const Arguments& p = plan.problem;
  const int64_t rows = plan.parameters.packed.rows, columns = columns_of(plan);
  const int64_t row_panel = row_panel_bytes(plan), column_panel = column_panel_bytes(plan);
  const int64_t limit = plan.parameters.max_workspace;
  const int64_t rows_bytes = ceil_div(p.m, rows) * row_panel;
  const int64_t matrix_bytes = rows_bytes + ceil_div(p.n, columns) * column_panel;
  if (matrix_bytes <= limit) {
    const int64_t batches = std::max<int64_t>(1, limit / matrix_bytes);
    for (int64_t z = 0; z < p.batch; z += batches) {
      run_block(part_of(plan, 0, p.m, 0, p.n, z, std::min<int64_t>(batches, p.batch - z)));
    }
    return;
  }
  // Half of the workspace for each operand, or what one of them leaves to the other.
  const int64_t columns_limit =
      std::min(std::max({limit / 2, limit - rows_bytes, column_panel}), limit - row_panel);
  const int64_t n_step = std::min<int64_t>(p.n, columns_limit / column_panel * columns);
  const int64_t rows_limit = limit - ceil_div(n_step, columns) * column_panel;
  const int64_t m_step = std::min<int64_t>(p.m, rows_limit / row_panel * rows);
  for (int64_t z = 0; z < p.batch; ++z) {
    for (int64_t column = 0; column < p.n; column += n_step) {
      for (int64_t row = 0; row < p.m; row += m_step) {
        run_block(part_of(plan, row, std::min<int64_t>(m_step, p.m - row), column,
                          std::min<int64_t>(n_step, p.n - column), z, 1));
      }
    }
  }
}

/// Sums kept in registers of that many bytes: what the accumulators leave of 32 or 16 registers
/// holds the operands. Fewer rows or columns suit small matrices.
struct RegisterTile {
  int bytes, rows, vectors;
};
constexpr RegisterTile kRegisterTiles[] = {{64, 12, 2}, {64, 14, 2}, {64, 8, 3}, {64, 6, 4},
                                           {64, 8, 2},  {64, 12, 1}, {32, 6, 2}, {32, 4, 3},
                                           {32, 4, 2},  {32, 12, 1}, {16, 6, 2}, {16, 4, 2}};

std::vector<Variation> vary(const Plan& plan, int stage) {
  Parameters parameters = plan.parameters;
  PackedParameters& packed = parameters.packed;
  const PackedParameters usual = packed;
  std::vector<Variation> list;
  // On others the kernel is only for what no other takes.
  if (!plan.device.is_cpu()) return list;
  if (stage == 0) {
    const int real_size = static_cast<int>(plan.compute_size) / static_cast<int>(parts_of(plan));
    for (const RegisterTile& tile : kRegisterTiles) {
      // Half a register's vectors too: on some CPUs wide ones slow the clock down.
      if (tile.bytes != usual.width * real_size && tile.bytes * 2 != usual.width * real_size) {
        continue;
      }
      packed = {tile.bytes / real_size, tile.rows, tile.vectors, usual.kc, usual.block_bytes};
      if (packed.width * packed.vectors < parts_of(plan)) continue;
      if (std::tie(packed.width, packed.rows, packed.vectors) ==
          std::tie(usual.width, usual.rows, usual.vectors)) {
        continue;
      }
      std::string name = std::to_string(packed.rows) + "x" + std::to_string(packed.vectors) + "x" +
                         std::to_string(packed.width);
      list.push_back({std::move(name), parameters});
    }
  } else if (stage == 1) {
    // Longer sums would gain little and round more.
    for (const int kc : {256, 512, 1024}) {
      // Where k is shorter the number does nothing.
      if (kc == usual.kc || std::min(kc, usual.kc) >= static_cast<int64_t>(plan.problem.k))
        continue;
      packed.kc = kc;
      list.push_back({"kc=" + std::to_string(kc), parameters});
    }
  } else if (stage == 2) {
    for (const int64_t block : {64 << 10, 128 << 10, 256 << 10, 512 << 10, 1024 << 10}) {
      if (block == usual.block_bytes) continue;
      packed.block_bytes = block;
      list.push_back({"block=" + std::to_string(block), parameters});
    }
  }
  return list;
}

}  // namespace

int packed_group(const Plan& plan) {
  const PackedParameters& packed = plan.parameters.packed;
  const bool amx = by_amx(plan);
  if (!amx && packed.rows != 12) return 1;
  if (packed.vectors != 2 || packed.width != 16) return 1;
  const DeviceProperties& properties = plan.device.properties();
  if ((amx || properties.has_bf16_dot) && are(plan, "bf16", "f32")) return 2;
  if ((amx || properties.has_int8_dot) && are(plan, "i8", "u32")) return 4;
  return 1;
}

bool takes_amx(const Plan& plan) {
  return plan.device.properties().has_amx && plan.device.is_cpu() &&
         (are(plan, "bf16", "f32") || are(plan, "i8", "u32"));
}

Panels panels_of(const Plan& plan) {
  if (too_deep(plan)) return {};
  Panels panels;
  panels.group = packed_group(plan);
  panels.dtype = panels.group == 2        ? c10::ScalarType::BFloat16
                 : plan.compute_size == 4 ? c10::ScalarType::Float
                                          : c10::ScalarType::Double;
  panels.columns = columns_of(plan);
  panels.panels = ceil_div(plan.problem.n, panels.columns);
  panels.depth = panel_depth(plan);
  return panels;
}

void pack_columns(const Plan& plan, void* panels) {
  PackedArguments columns_alone{};
  columns_alone.b_batches = 1;
  pack(plan, columns_alone, PacksB::apart, panels);
}

const Implementation packed{"packed", refuse, run, vary};

}  // namespace ocl::gemm
