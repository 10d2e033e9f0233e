#include "engine/gemm/tiles.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/device_table.h"
#include "engine/gemm/launch.h"
#include "engine/gemm/split_k.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "opencl/log.h"

namespace ocl::gemm {

namespace {

/// A weight's gradient has few tiles and a long k.
constexpr int64_t kMostParts = 256;

/// The tile that TORCH_OCL_GEMM_TILE asks for; zeros without one.
std::array<int, 3> forced_tile() {
  static const std::array<int, 3> tile = [] {
    std::array<int, 3> sizes{};
    const char* text = std::getenv("TORCH_OCL_GEMM_TILE");
    if (text == nullptr || *text == '\0') return sizes;
    char rest = '\0';
    const int read = std::sscanf(text, "%dx%dx%d%c", &sizes[0], &sizes[1], &sizes[2], &rest);
    if (read == 3 && *std::min_element(sizes.begin(), sizes.end()) > 0) return sizes;
    warn(std::string("TORCH_OCL_GEMM_TILE=") + text + ": expected <m>x<n>x<k>, ignored");
    return std::array<int, 3>{};
  }();
  return tile;
}

/// Says once that a product has no kernel of that tile: others, of another dtype, may.
void warn_of_forced_tile() {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  warn(std::string("TORCH_OCL_GEMM_TILE=") + std::getenv("TORCH_OCL_GEMM_TILE") +
       ": a product has no such tile, ignored there");
}

/// Elements per load of an operand: up to 16 bytes.
int load_width(const Plan& plan, const char* data, size_t size, uint64_t lines,
               uint64_t line_stride, uint64_t k_stride, uint64_t batch_stride,
               size_t most_along_k) {
  if (plan.complex) return 1;
  const size_t most = reads_by_k(line_stride, k_stride) ? most_along_k : 4;
  const int width = static_cast<int>(std::min(most, 16 / size));
  return takes_vectors(data, size, width, lines, line_stride, plan.problem.k, k_stride,
                       batch_stride, true)
             ? width
             : 1;
}

/// Whether the elements of an operand's tile are less than 4 GiB apart.
bool is_near(uint64_t lines, uint64_t line_stride, uint64_t depth, uint64_t k_stride,
             size_t element) {
  constexpr uint64_t kFar = uint64_t{1} << 31;
  return line_stride < kFar && k_stride < kFar &&
         (lines * line_stride + depth * k_stride) * element < 2 * kFar;
}

}  // namespace

double tile_cost(const TileShape& shape, const TileModel& model, int64_t groups, int64_t depth,
                 const Device& device) {
  const int64_t each = ceil_div(groups, int64_t{device.properties().compute_units});
  const int registers = std::min(255, shape.registers) * shape.items;
  const int64_t resident = std::max(
      1, registers > 0 ? device_row(device).unit_registers / registers : 384 / shape.items);
  const auto time = [&](int64_t together) {
    const double warps = static_cast<double>(together * shape.items) / 32;
    return static_cast<double>(together) * (warps + model.warps) / warps;
  };
  double sum = static_cast<double>(each / resident) * time(resident);
  if (each % resident != 0) sum += time(each % resident);
  const double sums =
      static_cast<double>(shape.m) * shape.n * (static_cast<double>(depth) + model.ends);
  return sum * sums / static_cast<double>(shape.efficiency);
}

void check_forced_tile() { forced_tile(); }

TileChoice cheapest_tile(const TileSearch& search, std::span<const TileShape> shapes, uint64_t fits,
                         const TileModel& model) {
  const TileSearch& s = search;
  const int64_t least = s.least_splits, most = std::max(least, s.most_splits);
  const int64_t units = s.device.properties().compute_units;
  TileChoice best;
  double best_cost = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const TileShape& shape = shapes[i];
    if ((fits >> i & 1) == 0) continue;
    const int64_t tiles = ceil_div(s.m, shape.m) * ceil_div(s.n, shape.n) * s.batch;
    for (int64_t splits = least; splits <= most; splits *= 2) {
      const int64_t part = ceil_div(s.k, splits);
      if (splits > least && (part < s.least_part || tiles * splits > groups_of_units(s.device))) {
        break;
      }
      double cost = tile_cost(shape, model, tiles * splits, part * s.terms, s.device);
      if (splits > 1) {
        const double parts = static_cast<double>(splits * s.batch * s.m * s.n);
        cost +=
            model.split_launches * s.launch_cost + parts * model.part / static_cast<double>(units);
      }
      if (best.index < 0 || cost < best_cost) {
        best = {static_cast<int>(i), splits};
        best_cost = cost;
      }
    }
  }
  return best;
}

TileChoice choose_tile(const Plan& plan, std::span<const TileShape> shapes, uint64_t fits,
                       double launch_cost, const TileModel& model) {
  constexpr int64_t kLeastPart = 256;
  const Arguments& p = plan.problem;
  const std::array<int, 3> forced = forced_tile();
  TileParameters tuned = plan.parameters.tile;
  if (forced[0] != 0 || tuned.shape < 0 || (fits >> tuned.shape & 1) == 0) tuned = {};
  if (tuned.splits > 0) return {tuned.shape, tuned.splits};
  if (tuned.shape >= 0) fits = uint64_t{1} << tuned.shape;
  for (size_t i = 0; forced[0] != 0 && i < shapes.size(); ++i) {
    const TileShape& shape = shapes[i];
    if (forced != std::array{shape.m, shape.n, shape.k}) fits &= ~(uint64_t{1} << i);
  }
  const TileSearch search{plan.device, p.m,        p.n,        p.k,         p.batch,
                          1,           kMostParts, kLeastPart, launch_cost, plan.exact_terms};
  const TileChoice best = cheapest_tile(search, shapes, fits, model);
  if (best.index < 0 && forced[0] != 0) warn_of_forced_tile();
  return best;
}

std::vector<Variation> vary_tile(const Plan& plan, std::span<const TileShape> shapes, uint64_t fits,
                                 int stage) {
  constexpr int64_t kLeastPart = 64, kMostTried = 32;
  const Arguments& p = plan.problem;
  Parameters parameters = plan.parameters;
  std::vector<Variation> list;
  if (forced_tile()[0] != 0) return list;
  if (stage == 0) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const TileShape& s = shapes[i];
      if ((fits >> i & 1) == 0) continue;
      parameters.tile = {static_cast<int>(i), 0};
      std::string name = std::to_string(s.m) + "x" + std::to_string(s.n) + "x" +
                         std::to_string(s.k) + "/" + std::to_string(s.items);
      list.push_back({std::move(name), parameters});
    }
  } else if (stage == 1 && parameters.tile.shape >= 0) {
    const TileShape& s = shapes[static_cast<size_t>(parameters.tile.shape)];
    const int64_t tiles = ceil_div(p.m, s.m) * ceil_div(p.n, s.n) * p.batch;
    const int64_t most = 2 * groups_of_units(plan.device);
    for (int64_t splits = 1; splits <= kMostTried; splits *= 2) {
      if (splits > 1 && (p.k / splits < kLeastPart || tiles * splits > most)) break;
      parameters.tile.splits = static_cast<int>(splits);
      list.push_back({"splits=" + std::to_string(splits), parameters});
    }
  }
  return list;
}

int64_t least_parts(int64_t k, size_t result_bytes) {
  constexpr int64_t kLongestPart = 4096;
  constexpr size_t kTotalBytes = size_t{64} << 20;
  const auto most = static_cast<int64_t>(kTotalBytes / std::max<size_t>(1, result_bytes));
  return std::max<int64_t>(1, std::min(k / kLongestPart, most));
}

void set_splits(Arguments& problem, int64_t splits, int64_t multiple) {
  if (problem.k == 0) return;
  const int64_t part = ceil_div(ceil_div(problem.k, splits), multiple) * multiple;
  problem.splits = static_cast<uint32_t>(ceil_div(problem.k, part));
  problem.split_k = static_cast<uint32_t>(part);
}

size_t tile_groups(const Arguments& problem, const TileShape& shape) {
  return static_cast<size_t>(ceil_div(problem.m, shape.m) * ceil_div(problem.n, shape.n)) *
         problem.batch * problem.splits;
}

bool takes_vectors(const char* data, size_t element_size, int64_t width, uint64_t lines,
                   uint64_t line_stride, uint64_t k, uint64_t k_stride, uint64_t batch_stride,
                   bool whole_lines) {
  const bool along_k = reads_by_k(line_stride, k_stride);
  const uint64_t within = along_k ? k_stride : line_stride;
  const uint64_t between = along_k ? line_stride : k_stride;
  const uint64_t others = along_k ? lines : k, vector = static_cast<uint64_t>(width);
  return within == 1 && reinterpret_cast<uintptr_t>(data) % (vector * element_size) == 0 &&
         (others <= 1 || between % vector == 0) && batch_stride % vector == 0 &&
         (!whole_lines || along_k || lines % vector == 0);
}

void run_tiles(const KernelFamily& family, const Plan& source, const TileShape& tile,
               int64_t splits, std::initializer_list<Define> parameters, size_t most_along_k) {
  constexpr size_t kFetchDefines = 8, kMostParameters = 7, kWindowDefines = 2;
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(parameters.size() <= kMostParameters);
  Plan plan = source;
  Arguments& p = plan.problem;
  const Windows* windows = plan.windows;
  // The parts' sums are added up row by row.
  const bool whole = windows != nullptr && windows->is_apart();
  set_splits(p, whole ? 1 : splits, tile.k);
  const Workspace sums(split_bytes(plan));
  const auto m = static_cast<uint64_t>(tile.m), n = static_cast<uint64_t>(tile.n),
             k = static_cast<uint64_t>(tile.k);
  const bool near = is_near(m, p.a.row, k, p.a.column, plan.a_size) &&
                    is_near(n, p.b.column, k, p.b.row, plan.b_size);
  const int a_width =
      load_width(plan, plan.a, plan.a_size, p.m, p.a.row, p.a.column, p.a.batch, most_along_k);
  const int b_width =
      load_width(plan, plan.b, plan.b_size, p.n, p.b.column, p.b.row, p.b.batch, most_along_k);
  std::array<Define, kFetchDefines + kMostParameters + kWindowDefines> defines{
      {{"BM", tile.m},
       {"BN", tile.n},
       {"BK", tile.k},
       {"NEAR", near},
       {"A_BY_K", reads_by_k(p.a.row, p.a.column)},
       {"B_BY_K", reads_by_k(p.b.column, p.b.row)},
       {"A_WIDTH", a_width},
       {"B_WIDTH", b_width}}};
  size_t count = kFetchDefines;
  for (const Define& define : parameters) defines[count++] = define;
  if (windows != nullptr) {
    defines[count++] = Define("WINDOWS", static_cast<int>(windows->side));
    defines[count++] = Define("AXES", windows->axes());
  }
  Kernel& kernel = get_kernel(family, plan, std::span(defines).first(count));
  const size_t items = static_cast<size_t>(tile.items);
  launch_gemm(kernel, plan, NDRange::linear(tile_groups(p, tile) * items, items), sums.data(),
              windows_of(plan));
  finish_split(plan, sums.data());
}

}  // namespace ocl::gemm
