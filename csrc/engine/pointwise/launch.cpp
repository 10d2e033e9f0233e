#include "engine/pointwise/launch.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <initializer_list>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/kernel_types.h"
#include "engine/pointwise/kernel.h"
#include "opencl/kernel_family.h"

namespace ocl::pointwise {

namespace {

using namespace kernel_types;
#define NOPS kMaxOperands
#include "pointwise/arguments.clh"
#undef NOPS

// Below this many elements in the innermost dimension a work-item per element beats one per vector.
constexpr int64_t kMinRow = 16;
constexpr size_t kMaxRun = 64;       // chunks of a row to a work-item
constexpr int64_t kMinShortRow = 4;  // of few elements, but all operands' next to each other
// Short rows that a CPU's work-item takes together, and elements of them.
constexpr int64_t kMaxTogether = 64;
constexpr size_t kTogetherElements = 2048;
// Fewer elements in short rows are left to the one program that takes any strides.
constexpr int64_t kMinTogether = 8192;
// Rows have a program per combination of steps, which small tensors do not pay back.
constexpr int64_t kMinRowsElements = 2048;
// Tiles pay where both dimensions fill one.
constexpr int64_t kMinTile = 16;

const KernelFamily contiguous_family{"pointwise/contiguous.cl", "pointwise_contiguous"};
const KernelFamily rows_family{"pointwise/rows.cl", "pointwise_rows"};
const KernelFamily tiles_family{"pointwise/tiles.cl", "pointwise_tiles"};
const KernelFamily strided_family{"pointwise/strided.cl", "pointwise_strided"};

const char* step_name(const Operands& operands, int i) {
  static constexpr const char* kOut[] = {"STEP_OUT_0", "STEP_OUT_1"};
  static constexpr const char* kIn[] = {"STEP_IN_0", "STEP_IN_1", "STEP_IN_2", "STEP_IN_3",
                                        "STEP_IN_4"};
  return i < operands.outputs ? kOut[i] : kIn[operands.input_number[i]];
}

/// The arguments of a geometry of at most kMaxDims dimensions.
Arguments make_arguments(const Operands& operands, const Geometry& geometry, int64_t n) {
  Arguments arguments;
  arguments.n = static_cast<uint32_t>(n);
  arguments.dims = geometry.dims;
  arguments.run = arguments.together = 1;
  for (int d = 0; d < kMaxDims; ++d) arguments.size[d] = d < geometry.dims ? geometry.size[d] : 1;
  for (int i = 0; i < operands.count; ++i) {
    for (int d = 0; d < kMaxDims; ++d) {
      arguments.stride[i][d] = d < geometry.dims ? geometry.stride[i][d] : 0;
    }
  }
  return arguments;
}

/// As much of them as a kernel of so many operands has.
Bytes used_part(const Arguments& arguments, const Operands& operands) {
  return {&arguments, offsetof(Arguments, stride) + operands.count * sizeof arguments.stride[0]};
}

/// Whether an operand starts at a multiple of `bytes`: so do the addresses of segments.
bool is_aligned_start(const Operands& operands, int i, size_t bytes) {
  return reinterpret_cast<uintptr_t>(operands.data[i]) % bytes == 0;
}

/// Chunks that a CPU's work-item takes: several, as long as every core gets work-groups.
size_t row_run(const Device& device, const Operands& operands, const Op& op, const Access& access,
               size_t chunks) {
  if (!device.is_cpu() || is_special(device, operands, op)) return 1;
  if (access.width == 1 && !(op.flags & flag::bits)) return 1;
  const size_t groups = static_cast<size_t>(items_of_cores(device, 2));
  const size_t most = chunks / (groups * group_of_rows(device));
  return std::clamp<size_t>(most, 1, kMaxRun);
}

/// `together`: rows to a work-item, the product of the first dimensions but dimension 0.
void launch_rows(Queue& queue, const Operands& operands, const Op& op, const Geometry& geometry,
                 int64_t together = 1) {
  int64_t ny = 1;
  for (int d = 1; d < geometry.dims; ++d) ny *= geometry.size[d];
  uint64_t moved = 0;
  for (int i = 0; i < operands.count; ++i) {
    uint64_t bytes = operands.element_size[i];
    for (int d = 0; d < geometry.dims; ++d) {
      if (geometry.stride[i][d] != 0) bytes *= geometry.size[d];
    }
    moved += bytes;
  }
  Access access = choose_access(queue.device(), operands, op, moved, [&](int i, size_t bytes) {
    if (geometry.stride[i][0] != static_cast<int64_t>(operands.element_size[i])) return true;
    for (int d = 1; d < geometry.dims; ++d) {
      if (geometry.stride[i][d] % static_cast<int64_t>(bytes) != 0) return false;
    }
    return is_aligned_start(operands, i, bytes);
  });
  if (geometry.size[0] < access.width) {
    access = {static_cast<int>(std::bit_floor(static_cast<uint64_t>(geometry.size[0])))};
  }
  DefineList defines;
  common_defines(defines, queue.device(), operands, op, access);
  for (int i = 0; i < operands.count; ++i) {
    const int64_t step = geometry.stride[i][0];
    defines.add({step_name(operands, i), step == 0 ? 0
                                         : step == static_cast<int64_t>(operands.element_size[i])
                                             ? 1
                                             : 2});
  }
  Kernel& kernel = kernel_of(rows_family, queue.device(), defines, operands, op);
  const size_t chunks = ceil_div(geometry.size[0], access.width);
  size_t run = row_run(queue.device(), operands, op, access, chunks * ceil_div(ny, together));
  if (together > 1) {
    const size_t longest = std::max<size_t>(1, kTogetherElements / (access.width * together));
    run = std::min({access.width == 1 ? chunks : run, chunks, longest});
  } else if (run > chunks) {
    together = std::clamp<int64_t>(run / chunks, 1, kTogetherElements / geometry.size[0]);
    run = chunks;
  }
  Arguments arguments = make_arguments(operands, geometry, ny);
  arguments.run = static_cast<uint32_t>(run);
  arguments.together = static_cast<uint32_t>(together);
  const size_t runs = ceil_div(chunks, run);
  // Rows shorter than a work-group share it, so that no lane idles.
  const size_t group = group_of_rows(queue.device());
  size_t local_x = 1;
  while (local_x < runs && local_x < group) local_x *= 2;
  enqueue(kernel, queue,
          NDRange::grid(runs, ceil_div(ny, together), local_x, group / local_x)
              .of_work(ny * geometry.size[0]),
          operands, op, used_part(arguments, operands));
}

/// Whether dimension 0, though short, is worth vectors: no operand steps through memory along it.
bool short_vectors(const Operands& operands, const Geometry& geometry) {
  if (geometry.size[0] < kMinShortRow || operands.complex || operands.has_complex) return false;
  for (int i = 0; i < operands.count; ++i) {
    const int64_t step = geometry.stride[i][0];
    if (step != static_cast<int64_t>(operands.element_size[i]) &&
        (step != 0 || i < operands.outputs)) {
      return false;
    }
  }
  return true;
}

/// Where the first dimensions are too short for vectors, a longer one that can take their place in
/// rows.cl: of those that stand behind few elements the first along which an operand is contiguous,
/// or else the first. 0 if there is none.
int long_dim(const Operands& operands, const Geometry& geometry) {
  int found = 0;
  int64_t before = geometry.size[0];
  for (int d = 1; d < geometry.dims && before <= kMaxTogether; before *= geometry.size[d++]) {
    if (geometry.size[d] < kMinRow) continue;
    for (int i = 0; i < operands.count; ++i) {
      if (geometry.stride[i][d] == static_cast<int64_t>(operands.element_size[i])) return d;
    }
    if (found == 0) found = d;
  }
  return found;
}

/// The geometry with its dimensions in another order: `first` ones, then the rest as they are.
Geometry reordered(const Operands& operands, const Geometry& geometry,
                   std::initializer_list<int> first) {
  Geometry result;
  const auto add = [&](int from) {
    const int to = result.dims++;
    result.size[to] = geometry.size[from];
    for (int i = 0; i < operands.count; ++i) result.stride[i][to] = geometry.stride[i][from];
  };
  for (const int d : first) add(d);
  for (int d = 0; d < geometry.dims; ++d) {
    if (std::find(first.begin(), first.end(), d) == first.end()) add(d);
  }
  return result;
}

/// Rows along dimension `dim`, a work-item taking those of all positions in the dimensions below.
void launch_short_rows(Queue& queue, const Operands& operands, const Op& op,
                       const Geometry& geometry, int dim) {
  int64_t together = 1;
  for (int d = 0; d < dim; ++d) together *= geometry.size[d];
  launch_rows(queue, operands, op, reordered(operands, geometry, {dim}), together);
}

/// The dimension along which inputs are contiguous that step through memory along dimension 0, if
/// the outputs don't: 0 if there is none worth tiles.
int transposed_dim(const Operands& operands, const Geometry& geometry) {
  for (int k = 0; k < operands.outputs; ++k) {
    if (geometry.stride[k][0] != static_cast<int64_t>(operands.element_size[k])) return 0;
  }
  for (int i = operands.outputs; i < operands.count; ++i) {
    const auto element = static_cast<int64_t>(operands.element_size[i]);
    if (geometry.stride[i][0] == element || geometry.stride[i][0] == 0) continue;
    for (int d = 1; d < geometry.dims; ++d) {
      if (geometry.stride[i][d] == element && geometry.size[d] >= kMinTile) return d;
    }
  }
  return 0;
}

/// x is dimension 0, y is dimension `dim`.
void launch_tiles(Queue& queue, const Operands& operands, const Op& op, const Geometry& geometry,
                  int dim) {
  const bool cpu = queue.device().is_cpu();
  const bool vectors = cpu && !operands.complex && !operands.has_complex;
  const size_t width = vectors ? std::min<size_t>(16, 64 / operands.compute_size) : 1;
  const size_t side = vectors && !is_special(queue.device(), operands, op) ? width : kScalarTile;
  DefineList defines;
  common_defines(defines, queue.device(), operands, op, {static_cast<int>(width), false, false});
  for (int i = 0; i < operands.count; ++i) {
    const auto element = static_cast<int64_t>(operands.element_size[i]);
    const int64_t step = geometry.stride[i][0];
    const bool transposed = i >= operands.outputs && geometry.stride[i][dim] == element;
    defines.add({step_name(operands, i), step == 0 ? 0 : step == element ? 1 : transposed ? 3 : 2});
  }
  Kernel& kernel = kernel_of(tiles_family, queue.device(), defines, operands, op);
  const int64_t nx = geometry.size[0], ny = geometry.size[dim];
  size_t outer = 1;
  for (int d = 1; d < geometry.dims; ++d) outer *= d == dim ? 1 : geometry.size[d];
  const Arguments arguments =
      make_arguments(operands, reordered(operands, geometry, {0, dim}), nx * ny);
  const NDRange range =
      cpu ? NDRange::volume({ceil_div(nx, side), ceil_div(ny, side * kTilesPerItem), outer},
                            {1, 1, 1})
          : NDRange::volume(
                {ceil_div(nx, kGpuTile) * kGpuTile, ceil_div(ny, kGpuTile) * kGpuTileRows, outer},
                {kGpuTile, kGpuTileRows, 1});
  enqueue(kernel, queue, range, operands, op, used_part(arguments, operands));
}

void launch_strided(Queue& queue, const Operands& operands, const Op& op, const Geometry& geometry,
                    int64_t n) {
  DefineList defines;
  const Access access;
  common_defines(defines, queue.device(), operands, op, access);
  Kernel& kernel = kernel_of(strided_family, queue.device(), defines, operands, op);
  const Arguments arguments = make_arguments(operands, geometry, n);
  // An element takes a division per dimension.
  enqueue(kernel, queue, NDRange::linear(n, group_of_rows(queue.device())).of_work(4 * n), operands,
          op, used_part(arguments, operands));
}

/// Whether all is bfloat16, in whole cache lines, and computed with as float.
bool takes_pairs(const Operands& operands, c10::function_ref<bool(int, size_t)> is_aligned) {
  if (operands.compute_tag != tag(at::kFloat)) return false;
  for (int i = 0; i < operands.count; ++i) {
    if (operands.tags[i] != tag(at::kBFloat16) || !is_aligned(i, 64)) return false;
  }
  return true;
}

void launch_contiguous(Queue& queue, const Operands& operands, const Op& op, int64_t n) {
  uint64_t moved = 0;
  for (int i = 0; i < operands.count; ++i) moved += n * operands.element_size[i];
  const auto is_aligned = [&](int i, size_t bytes) { return is_aligned_start(operands, i, bytes); };
  Access access = choose_access(queue.device(), operands, op, moved, is_aligned);
  access.vectors = vectors_per_item(queue.device(), operands, op, access);
  access.paired = access.vectors % 2 == 0 && takes_pairs(operands, is_aligned);
  DefineList defines;
  if (takes_complex_vectors(queue.device(), operands, op)) {
    access.width = static_cast<int>(64 / operands.compute_size);
    bool aligned = should_stream(queue.device(), operands, moved);
    for (int i = 0; i < operands.count; ++i) aligned = aligned && is_aligned(i, 64);
    access.aligned = access.streaming = aligned;
    defines.add({"COMPLEX_VECTORS", 1});
  }
  common_defines(defines, queue.device(), operands, op, access);
  Kernel& kernel = kernel_of(contiguous_family, queue.device(), defines, operands, op);
  const auto elements = static_cast<uint32_t>(n);
  const size_t items = ceil_div(n, access.width * access.vectors);
  enqueue(kernel, queue,
          NDRange::linear(items, local_size(queue.device(), items, access.vectors)).of_work(n),
          operands, op, {&elements, sizeof elements});
}

constexpr char kInOrder[] = "operands in the order of iteration";

const char* refuse_tiles(const Plan& plan) {
  if (plan.geometry == nullptr) return kInOrder;
  const Geometry& geometry = *plan.geometry;
  if (geometry.dims == 0 || geometry.size[0] < kMinRow) return "short rows";
  if (plan.n < kMinRowsElements) return "few elements";
  return transposed_dim(plan.operands, geometry) == 0 ? "nothing to transpose" : nullptr;
}

const char* refuse_rows(const Plan& plan) {
  if (plan.geometry == nullptr) return kInOrder;
  const Geometry& geometry = *plan.geometry;
  if (geometry.dims == 0) return "one element";
  if (geometry.size[0] >= kMinRow) {
    return plan.n < kMinRowsElements ? "few elements" : nullptr;
  }
  if (!plan.queue.device().is_cpu()) return "short rows";
  if (plan.n < kMinTogether) return "short rows of few elements";
  return short_vectors(plan.operands, geometry) ? nullptr : "short rows that are not contiguous";
}

const char* refuse_short_rows(const Plan& plan) {
  if (plan.geometry == nullptr) return kInOrder;
  if (!plan.queue.device().is_cpu()) return "it is for CPUs";
  if (plan.geometry->dims == 0 || plan.n < kMinTogether) return "few elements";
  return long_dim(plan.operands, *plan.geometry) == 0 ? "no longer rows behind short ones"
                                                      : nullptr;
}

constexpr Implementation<Plan> contiguous{
    "contiguous",
    [](const Plan& plan) { return plan.contiguous ? nullptr : "operands in another order"; },
    [](Plan& plan) { launch_contiguous(plan.queue, plan.operands, plan.op, plan.n); }};
constexpr Implementation<Plan> tiles{"tiles", refuse_tiles, [](Plan& plan) {
                                       launch_tiles(plan.queue, plan.operands, plan.op,
                                                    *plan.geometry,
                                                    transposed_dim(plan.operands, *plan.geometry));
                                     }};
constexpr Implementation<Plan> rows{
    "rows", refuse_rows,
    [](Plan& plan) { launch_rows(plan.queue, plan.operands, plan.op, *plan.geometry); }};
constexpr Implementation<Plan> short_rows{"short_rows", refuse_short_rows, [](Plan& plan) {
                                            launch_short_rows(
                                                plan.queue, plan.operands, plan.op, *plan.geometry,
                                                long_dim(plan.operands, *plan.geometry));
                                          }};
constexpr Implementation<Plan> strided{
    "strided", [](const Plan& plan) { return plan.geometry == nullptr ? kInOrder : nullptr; },
    [](Plan& plan) { launch_strided(plan.queue, plan.operands, plan.op, *plan.geometry, plan.n); }};
constexpr const Implementation<Plan>* kImplementations[] = {&contiguous, &tiles, &rows, &short_rows,
                                                            &strided};

const Engine engine{"pointwise", kImplementations};

std::string describe(const Plan& plan) {
  std::string line = std::string("pointwise ") + plan.op.name + " ";
  if (plan.geometry == nullptr || plan.geometry->dims == 0) {
    line += std::to_string(plan.n);
  } else {
    for (int d = plan.geometry->dims - 1; d >= 0; --d) {
      line += std::to_string(plan.geometry->size[d]) + (d > 0 ? "x" : "");
    }
  }
  const Operands& operands = plan.operands;
  for (int i = operands.outputs; i < operands.count; ++i) {
    line += std::string(i == operands.outputs ? " " : ",") + operands.tags[i];
  }
  for (int i = 0; i < operands.outputs; ++i) {
    line += std::string(i == 0 ? "->" : ",") + operands.tags[i];
  }
  return line;
}

}  // namespace

bool is_forced() { return engine.forced() != nullptr; }

void launch(Plan& plan) { run_first(engine, kImplementations, plan, describe); }

/// Launches dimensions [0, kMaxDims) and loops over the rest on the host: tensors of more than 16
/// dimensions that don't coalesce are rare and small.
void launch_geometry(Queue& queue, Operands operands, const Op& op, Geometry& geometry,
                     bool contiguous) {
  if (geometry.dims > kMaxDims) {
    const int last = --geometry.dims;
    for (int64_t i = 0; i < geometry.size[last]; ++i) {
      launch_geometry(queue, operands, op, geometry, contiguous);
      for (int k = 0; k < operands.count; ++k) operands.data[k] += geometry.stride[k][last];
    }
    ++geometry.dims;
    return;
  }
  int64_t n = 1;
  for (int d = 0; d < geometry.dims; ++d) n *= geometry.size[d];
  Plan plan{queue, operands, op, n, contiguous, &geometry};
  launch(plan);
}

}  // namespace ocl::pointwise
