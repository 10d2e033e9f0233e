#include <c10/util/Exception.h>

#include <array>
#include <string_view>

#include "engine/norm/launch.h"
#include "engine/norm/norm.h"
#include "engine/row_share.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"

namespace ocl {

namespace {

using c10::ScalarType;

constexpr int64_t kLeastRowsPerItem = 4;  // each item leaves partial sums that are read again
// Partial sums grow by so many rows at most, which bounds their rounding error.
constexpr int64_t kMostRowsPerItem = 1024;
// Without them: most rows are worked off beside the one before.
constexpr int64_t kMostRowsAlone = 64;

// A row of kernels/norm/rows_backward_ahead.cl: what is kept of it and the sums of the weight's
// gradients take five times as much of a CPU's first cache.
constexpr size_t kMostAheadBytes = 4096;

// Of kernels/norm/rows_backward_kept.cl: elements of a row in a work-item's registers, and its
// groups.
constexpr int64_t kMostKept = 16;
constexpr uint32_t kSmallGroup = 64, kLargeGroup = 256;
// As measured on an NVIDIA H200: with so few registers so many groups of a compute unit run at a
// time.
constexpr int64_t kKeptSharesPerUnit = 10, kKeptRegisters = 96;

const KernelFamily rows_family{"norm/rows.cl", "norm_rows"};
const KernelFamily kept_family{"norm/rows_kept.cl", "norm_rows_kept"};
const KernelFamily rows_backward_family{"norm/rows_backward.cl", "norm_rows_backward"};
const KernelFamily backward_ahead_family{"norm/rows_backward_ahead.cl", "norm_rows_backward_ahead"};
const KernelFamily kept_backward_family{"norm/rows_backward_kept.cl", "norm_rows_backward_kept"};
const KernelFamily runs_backward_family{"norm/runs_backward.cl", "norm_runs_backward"};
const KernelFamily finish_family{"norm/finish.cl", "norm_finish"};
const KernelFamily finish_group_family{"norm/finish.cl", "norm_finish_group"};
constexpr int64_t kFinishColumns = 16, kFinishGroup = 256;  // of norm_finish_group

/// RowArgs of kernels/norm/rows.clh.
struct RowArguments {
  uint64_t offset[8];
  uint32_t rows, length, run, runs, groups, rows_per_item;
};

/// FinishArgs of kernels/norm/finish.cl.
struct FinishArguments {
  uint64_t offset[3];
  uint32_t parts, length, first, unused;
};

/// The launch geometry and the compile parameters that all kernels of a problem share.
struct Problem {
  Problem(const at::Tensor& x, const at::Tensor& rstd, const RowShape& shape)
      : device(ocl::device(x.device().index())),
        queue(current_queue(x.device().index())),
        acc(compute_dtype(x.scalar_type())),
        in_tag(tag(x.scalar_type())),
        stat_tag(tag(rstd.scalar_type())),
        acc_tag(tag(acc)),
        stretch(shape.grouped ? shape.run : shape.length) {
    TORCH_CHECK_NOT_IMPLEMENTED(shape.rows <= UINT32_MAX && shape.length <= UINT32_MAX,
                                "ocl: normalisation of more than 2^32 rows or elements of a row");
    arguments.rows = static_cast<uint32_t>(shape.rows);
    arguments.length = static_cast<uint32_t>(shape.length);
    arguments.run = static_cast<uint32_t>(shape.run);
    arguments.runs = static_cast<uint32_t>(shape.length / shape.run);
    arguments.groups = static_cast<uint32_t>(shape.groups);
    arguments.rows_per_item = 1;
    width = norm_width(device, acc, stretch);
    const int64_t vectors = shape.length / width;
    group = device.is_cpu() ? 1 : vectors >= 256 ? 256 : 64;
  }

  /// Whether all vectors are aligned.
  bool aligned(const NormLaunch<RowArguments>& launch) const {
    return width > 1 && stretch % width == 0 && launch.aligned(width);
  }

  /// Whether results go past a CPU's caches, which can't hold them anyway: what is read and written
  /// has so many `bytes`.
  bool streaming(const NormLaunch<RowArguments>& launch, int64_t bytes) const {
    return device.is_cpu() && aligned(launch) &&
           static_cast<size_t>(bytes) >= device.properties().last_level_cache;
  }

  /// Compile parameters for vectors that are aligned: -DALIGNED_VECTORS for GPUs, which move them
  /// in one piece then; on CPUs only together with -DSTREAMING_STORES.
  std::array<Define, 2> access(const NormLaunch<RowArguments>& launch, int64_t bytes) const {
    const bool past = streaming(launch, bytes);
    return {
        Define{past || (!device.is_cpu() && aligned(launch)) ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT",
               1},
        Define{past ? "STREAMING_STORES" : "CACHED_STORES", 1}};
  }

  /// Whether kernels/include/vector_pairs.clh may take a row's vectors by pairs.
  bool paired(const NormLaunch<RowArguments>& launch, const char* param_tag) const {
    const std::string_view half = tag(ScalarType::BFloat16);
    return device.is_cpu() && width == 16 && stretch == arguments.length &&
           arguments.length % 32 == 0 && in_tag == half && param_tag == half && launch.aligned(32);
  }

  /// Vectors that each of `items` work-items of a GPU keeps of a row between the passes over it,
  /// where they can keep all; else 0.
  int64_t kept(const RowShape& shape, int64_t items) const {
    const int64_t each = (shape.length / width + items - 1) / items;
    return device.is_cpu() || shape.grouped || each * width > kMostKept || shape.length % width != 0
               ? 0
               : each;
  }

  /// Chooses lanes and group for kernels/norm/rows_backward_kept.cl, and returns the vectors that a
  /// work-item keeps; 0 if the rows are too long for it. Rows that aren't whole vectors are taken
  /// as single elements.
  int64_t keep(const RowShape& shape) {
    const uint32_t widest = width, usual = group;
    for (const uint32_t lanes : {widest, 1U}) {
      for (const uint32_t items : {kSmallGroup, kLargeGroup}) {
        width = lanes;
        group = items;
        if (const int64_t vectors = kept(shape, items); vectors > 0) return vectors;
      }
    }
    width = widest;
    group = usual;
    return 0;
  }

  NDRange range() const {
    const size_t items =
        (size_t{arguments.rows} + arguments.rows_per_item - 1) / arguments.rows_per_item;
    return NDRange::linear(items * group, group);
  }

  Device& device;
  Queue& queue;
  const ScalarType acc;
  const char *in_tag, *stat_tag, *acc_tag;
  const int64_t stretch;  // the contiguous elements that vectors are taken from
  RowArguments arguments{};
  uint32_t width, group;
};

void finish(Problem& problem, const void* partial, int64_t parts, int64_t length,
            const at::Tensor& dweight, const at::Tensor& dbias) {
  const bool cpu = problem.device.is_cpu();
  const uint32_t width = cpu ? norm_width(problem.device, problem.acc, length) : 1;
  Kernel& kernel =
      (cpu ? finish_family : finish_group_family)
          .get(problem.device, {{"IN", problem.in_tag},
                                {"PARAM", tag((dweight.defined() ? dweight : dbias).scalar_type())},
                                {"STAT", problem.stat_tag},
                                {"ACC", problem.acc_tag},
                                {"WIDTH", width}});
  const size_t which = dweight.defined() && dbias.defined() ? 2 : 1;
  FinishArguments arguments{{},
                            static_cast<uint32_t>(parts),
                            static_cast<uint32_t>(length),
                            dbias.defined() ? 0u : 1u,
                            0};
  const NDRange range =
      cpu ? NDRange::grid(static_cast<size_t>((length + width - 1) / width), which, 1, 1)
          : NDRange::grid(
                static_cast<size_t>((length + kFinishColumns - 1) / kFinishColumns * kFinishGroup),
                which, static_cast<size_t>(kFinishGroup), 1);
  NormLaunch(problem.device, arguments)
      .add(partial)
      .add(dbias)
      .add(dweight)
      .enqueue(problem.queue, kernel, range);
}

}  // namespace

void norm_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
               const RowShape& shape, const at::Tensor& y, const at::Tensor& mean,
               const at::Tensor& rstd) {
  if (shape.rows == 0) return;
  Problem problem(x, rstd, shape);
  int64_t kept = 0;
  if (problem.device.is_cpu()) {
    problem.arguments.rows_per_item =
        static_cast<uint32_t>(std::max<int64_t>(1, kNormElementsPerItem / shape.length));
  } else if (!shape.grouped) {
    problem.width = static_cast<uint32_t>(gpu_row_width(shape.length, x.element_size()));
    // Half types: half the bytes of a row in each work-item, and of layer norm, which meets at
    // twice as many barriers, two rows.
    const bool half = x.element_size() == 2;
    RowShare share = share_row(shape.length, problem.width, x.element_size(), half ? 2 : 1);
    if (half && share.vectors == 0) {
      share = share_row(shape.length, problem.width, x.element_size());
    } else if (half && mean.defined()) {
      problem.arguments.rows_per_item = 2;
    }
    kept = share.vectors;
    problem.group = std::max<uint32_t>(share.items, kLeastSharers);
  }
  NormLaunch launch(problem.device, problem.arguments);
  launch.add(x).add(y).add(mean).add(rstd).add(weight).add(bias);
  const auto access = problem.access(launch, 2 * static_cast<int64_t>(x.nbytes()));
  const char* param_tag = tag_or(weight, tag_or(bias, problem.in_tag));
  Kernel& kernel =
      (kept > 0 ? kept_family : rows_family)
          .get(problem.device, {{"IN", problem.in_tag},
                                {"PARAM", param_tag},
                                {"PAIRS", problem.paired(launch, param_tag)},
                                {"STAT", problem.stat_tag},
                                {"ACC", problem.acc_tag},
                                {"WEIGHT", weight.defined()},
                                {"BIAS", bias.defined()},
                                {"RMS", !mean.defined()},
                                {"RUNS", shape.grouped},
                                {"ROW_VECTORS", kept},
                                {"ROWS", kept > 0 ? int64_t{problem.arguments.rows_per_item} : 1},
                                {"WIDTH", problem.width},
                                {"GROUP", problem.group},
                                access[0],
                                access[1]});
  launch.enqueue(problem.queue, kernel, problem.range(), {scalar_argument(problem.acc, eps)});
}

void norm_rows_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& mean,
                        const at::Tensor& rstd, const at::Tensor& weight, const RowShape& shape,
                        const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias) {
  const bool parameters = dweight.defined() || dbias.defined();
  if (shape.rows == 0 || (!parameters && !dx.defined())) return;
  Problem problem(x, rstd, shape);
  RowArguments& arguments = problem.arguments;
  const size_t acc_size = c10::elementSize(problem.acc);
  const int64_t kept = problem.keep(shape);
  // Partial sums: a sample's channels, or the elements of a row per share of the rows.
  int64_t parts = 1, columns = shape.length;
  const int64_t shares =
      int64_t{problem.device.properties().compute_units} * (kept > 0 ? kKeptSharesPerUnit : 16);
  if (shape.grouped) {
    parts = shape.rows / shape.groups;
    columns = shape.groups * (shape.length / shape.run);
  } else if (parameters) {
    const int64_t per_share = (shape.rows + shares - 1) / shares;
    arguments.rows_per_item =
        static_cast<uint32_t>(std::clamp(per_share, kLeastRowsPerItem, kMostRowsPerItem));
    parts = (shape.rows + arguments.rows_per_item - 1) / arguments.rows_per_item;
  } else if (problem.device.is_cpu()) {
    arguments.rows_per_item =
        static_cast<uint32_t>(std::max({int64_t{1}, kNormElementsPerItem / shape.length,
                                        std::min(shape.rows / shares, kMostRowsAlone)}));
  }
  c10::DataPtr partial;
  if (parameters || shape.grouped) {
    partial = allocator()->allocate(static_cast<size_t>(parts * columns) * 2 * acc_size);
  }
  NormLaunch launch(problem.device, arguments);
  launch.add(grad).add(x).add(mean).add(rstd).add(weight).add(dx).add(partial.get(), acc_size);
  const int64_t bytes = 3 * static_cast<int64_t>(x.nbytes());
  const auto access = problem.access(launch, bytes);
  const char* param_tag = tag_or(weight, problem.in_tag);
  const bool ahead = !shape.grouped && dx.defined() && problem.streaming(launch, bytes) &&
                     static_cast<size_t>(shape.length) * acc_size <= kMostAheadBytes;
  const KernelFamily& family = shape.grouped ? runs_backward_family
                               : ahead       ? backward_ahead_family
                               : kept > 0    ? kept_backward_family
                                             : rows_backward_family;
  // What a family has no use for is left out: it would make programs that differ in nothing.
  const bool paired = !shape.grouped && problem.paired(launch, param_tag);
  Kernel& kernel = family.get(problem.device, {{"IN", problem.in_tag},
                                               {"PARAM", param_tag},
                                               {"PAIRS", paired},
                                               {"STAT", problem.stat_tag},
                                               {"ACC", problem.acc_tag},
                                               {"WEIGHT", weight.defined()},
                                               {"RMS", !shape.grouped && !mean.defined()},
                                               {"DX", dx.defined()},
                                               {"DPARAM", shape.grouped || parameters},
                                               {"ROW_VECTORS", kept},
                                               {"SCRATCH", ahead ? kMostAheadBytes / acc_size : 0},
                                               {"OCL_MAX_REGISTERS", kept > 0 ? kKeptRegisters : 0},
                                               {"WIDTH", problem.width},
                                               {"GROUP", problem.group},
                                               access[0],
                                               access[1]});
  launch.enqueue(problem.queue, kernel, problem.range());
  if (parameters) finish(problem, partial.get(), parts, columns, dweight, dbias);
}

}  // namespace ocl
