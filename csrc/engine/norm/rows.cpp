#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "engine/device_table.h"
#include "engine/norm/norm.h"
#include "engine/norm/plan.h"
#include "engine/row_share.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::norm {

using c10::ScalarType;

/// Rows that are normalised, or their gradients.
struct RowPlan {
  RowPlan(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd,
          const at::Tensor& weight, const RowShape& shape);

  // Both directions have these; an undefined mean is RMS norm.
  const at::Tensor &x, &mean, &rstd, &weight;
  const RowShape& shape;
  // Forward.
  const at::Tensor *bias = nullptr, *y = nullptr;
  double eps = 0;
  // Backward.
  const at::Tensor *grad = nullptr, *dx = nullptr, *dweight = nullptr, *dbias = nullptr;

  Device& device;
  Queue& queue;
  const ScalarType acc;
  const char *in_tag, *stat_tag, *acc_tag;
  const int64_t stretch;  // the contiguous elements that vectors are taken from
  RowArguments arguments{};
  // Kernels that read a row again have these.
  uint32_t width, group;
  // A GPU's kernels that hold rows in registers have these: lanes, work-items to a row, vectors of
  // each (0: the rows don't fit), and rows at once.
  uint32_t held_width = 1, held_group = 1;
  int64_t held_vectors = 0;
  uint32_t held_rows = 1;

  bool wants_parameters() const { return dweight->defined() || dbias->defined(); }
  /// Whether all vectors are aligned.
  bool aligned(uint32_t lanes) const {
    if (lanes == 1 || stretch % lanes != 0) return false;
    return grad ? begin_aligned(lanes, {grad, &x, &weight, dx})
                : begin_aligned(lanes, {&x, y, &weight, bias});
  }
  /// Whether results go past a CPU's caches, which can't hold them anyway.
  bool streaming() const {
    const size_t moved = static_cast<size_t>(grad ? 3 : 2) * x.nbytes();
    return device.is_cpu() && aligned(width) && moved >= device.properties().last_level_cache;
  }
  /// Whether kernels/include/vector_pairs.clh may take a row's vectors by pairs.
  bool paired(const char* param_tag) const {
    const std::string_view half = tag(ScalarType::BFloat16);
    return device.is_cpu() && !shape.grouped && width == 16 && arguments.length % 32 == 0 &&
           in_tag == half && param_tag == half && aligned(32);
  }
  void hold_forward();
  void hold_backward();
};

RowPlan::RowPlan(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd,
                 const at::Tensor& weight, const RowShape& shape)
    : x(x),
      mean(mean),
      rstd(rstd),
      weight(weight),
      shape(shape),
      device(ocl::device(x.device().index())),
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
  width = vector_width(device, acc, stretch);
  const int64_t vectors = shape.length / width;
  const auto large = static_cast<int64_t>(group_of_elements(device));
  group = device.is_cpu() ? 1 : vectors >= large ? large : group_of_lanes(device);
}

namespace {

constexpr int64_t kLeastRowsPerItem = 4;  // each work-item leaves partial sums that are read again
// Partial sums grow by so many rows at most, which bounds their rounding error.
constexpr int64_t kMostRowsPerItem = 1024;
// Without them: most rows are worked off beside the one before.
constexpr int64_t kMostRowsAlone = 64;

const KernelFamily rows_family{"norm/rows.cl", "norm_rows"};
const KernelFamily registers_family{"norm/rows_registers.cl", "norm_rows_registers"};
const KernelFamily rows_backward_family{"norm/rows_backward.cl", "norm_rows_backward"};
const KernelFamily registers_backward_family{"norm/rows_registers_backward.cl",
                                             "norm_rows_registers_backward"};
const KernelFamily runs_backward_family{"norm/runs_backward.cl", "norm_runs_backward"};
const KernelFamily sums_family{"norm/partial_sums.cl", "norm_partial_sums"};
const KernelFamily group_sums_family{"norm/partial_sums.cl", "norm_partial_sums_group"};

Kernel& kernel_of(const RowPlan& plan, const KernelFamily& family, const char* param_tag,
                  uint32_t width, uint32_t group, std::initializer_list<Define> more) {
  std::array<Define, 16> defines{{{"IN", plan.in_tag},
                                  {"PARAM", param_tag},
                                  {"STAT", plan.stat_tag},
                                  {"ACC", plan.acc_tag},
                                  {"WEIGHT", plan.weight.defined()},
                                  {"WIDTH", width},
                                  {"GROUP", group}}};
  std::copy(more.begin(), more.end(), defines.begin() + 7);
  return family.get(plan.device, std::span<const Define>(defines.data(), 7 + more.size()));
}

/// -DALIGNED_VECTORS for GPUs, which move aligned vectors in one piece; on CPUs only together with
/// -DSTREAMING_STORES.
Define alignment(const RowPlan& plan, uint32_t width) {
  const bool says = plan.device.is_cpu() ? plan.streaming() : plan.aligned(width);
  return {says ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT", 1};
}
Define stores(const RowPlan& plan) {
  return {plan.streaming() ? "STREAMING_STORES" : "CACHED_STORES", 1};
}

NDRange range_of(const RowPlan& plan, uint32_t group) {
  const size_t items = ceil_div(size_t{plan.arguments.rows}, size_t{plan.arguments.rows_per_item});
  return NDRange::linear(items * group, group);
}

void launch_forward(const RowPlan& plan, Kernel& kernel, uint32_t group) {
  launch(kernel, plan.queue, range_of(plan, group).of_work(2 * plan.x.numel()),
         Pointer{plan.x.const_data_ptr()}, Pointer{plan.y->const_data_ptr()},
         Pointer{address_of(plan.mean)}, Pointer{plan.rstd.const_data_ptr()},
         Pointer{address_of(plan.weight)}, Pointer{address_of(*plan.bias)},
         scalar_argument(plan.acc, plan.eps), plan.arguments);
}

/// Enqueues the kernel, and then the sums of its `parts` partial ones of `columns` elements.
void launch_backward(const RowPlan& plan, Kernel& kernel, uint32_t group, int64_t parts,
                     int64_t columns) {
  const bool parameters = plan.wants_parameters();
  c10::DataPtr partial;
  NDRange range = range_of(plan, group);
  if (parameters || plan.shape.grouped) {
    partial = allocator()->allocate(static_cast<size_t>(parts * columns) * 2 *
                                    c10::elementSize(plan.acc));
  } else {
    range = range.of_work(2 * plan.x.numel());
  }
  launch(kernel, plan.queue, range, Pointer{plan.grad->const_data_ptr()},
         Pointer{plan.x.const_data_ptr()}, Pointer{address_of(plan.mean)},
         Pointer{plan.rstd.const_data_ptr()}, Pointer{address_of(plan.weight)},
         Pointer{address_of(*plan.dx)}, Pointer{partial.get()}, plan.arguments);
  if (!parameters) return;
  const bool cpu = plan.device.is_cpu(), both = plan.dweight->defined() && plan.dbias->defined();
  const uint32_t width = cpu ? vector_width(plan.device, plan.acc, columns) : 1;
  const at::Tensor& any = plan.dweight->defined() ? *plan.dweight : *plan.dbias;
  const int64_t together = cpu ? 1 : static_cast<int64_t>(group_of_elements(plan.device));
  Kernel& sums = (cpu ? sums_family : group_sums_family)
                     .get(plan.device, {{"IN", plan.in_tag},
                                        {"PARAM", tag(any.scalar_type())},
                                        {"STAT", plan.stat_tag},
                                        {"ACC", plan.acc_tag},
                                        {"WIDTH", width},
                                        {"PART_ITEMS", cpu ? 1 : together / kSumColumns}});
  const size_t items = cpu ? ceil_div(columns, width) : ceil_div(columns, kSumColumns) * together;
  launch(sums, plan.queue, NDRange::grid(items, both ? 2 : 1, together, 1), Pointer{partial.get()},
         Pointer{address_of(*plan.dbias)}, Pointer{address_of(*plan.dweight)},
         PartialSumArguments{static_cast<uint32_t>(parts), static_cast<uint32_t>(columns),
                             plan.dbias->defined() ? 0u : 1u});
}

int64_t shares_per_unit(const Device& device) {
  const DeviceRow& row = device_row(device);
  return device.is_cpu() ? 4 * row.core_items : 2 * row.groups_per_unit;
}

/// Launches for rows that work-items or work-groups share, each with partial sums of its own:
/// chooses how many rows each takes.
void launch_shares(RowPlan& plan, Kernel& kernel, uint32_t group, int64_t shares_per_unit) {
  const int64_t rows = plan.shape.rows, length = plan.shape.length;
  const int64_t shares = int64_t{plan.device.properties().compute_units} * shares_per_unit;
  int64_t each = 1;
  if (plan.wants_parameters()) {
    each = std::clamp(ceil_div(rows, shares), kLeastRowsPerItem, kMostRowsPerItem);
  } else if (plan.device.is_cpu()) {
    each = std::max({int64_t{1}, elements_per_item(plan.device) / length,
                     std::min(rows / shares, kMostRowsAlone)});
  }
  plan.arguments.rows_per_item = static_cast<uint32_t>(each);
  launch_backward(plan, kernel, group, ceil_div(rows, each), length);
}

const char* refuse_long_rows(const RowPlan& plan) {
  if (plan.device.is_cpu()) return "only for GPU devices";
  if (plan.shape.grouped) return "group norm";
  return plan.held_vectors == 0 ? "a row is short, too long or not whole vectors" : nullptr;
}

void run_registers(RowPlan& plan) {
  plan.arguments.rows_per_item = plan.held_rows;
  Kernel& kernel =
      kernel_of(plan, registers_family, tag_or(plan.weight, tag_or(*plan.bias, plan.in_tag)),
                plan.held_width, plan.held_group,
                {{"BIAS", plan.bias->defined()},
                 {"RMS", !plan.mean.defined()},
                 {"ROW_VECTORS", plan.held_vectors},
                 {"ROWS", plan.held_rows},
                 alignment(plan, plan.held_width)});
  launch_forward(plan, kernel, plan.held_group);
}

const char* refuse_nothing(const RowPlan&) { return nullptr; }

void run_rows(RowPlan& plan) {
  if (plan.device.is_cpu()) {
    plan.arguments.rows_per_item = static_cast<uint32_t>(
        std::max<int64_t>(1, elements_per_item(plan.device) / plan.shape.length));
  }
  const char* param_tag = tag_or(plan.weight, tag_or(*plan.bias, plan.in_tag));
  Kernel& kernel = kernel_of(plan, rows_family, param_tag, plan.width, plan.group,
                             {{"BIAS", plan.bias->defined()},
                              {"RMS", !plan.mean.defined()},
                              {"RUNS", plan.shape.grouped},
                              {"PAIRS", plan.paired(param_tag)},
                              alignment(plan, plan.width),
                              stores(plan)});
  launch_forward(plan, kernel, plan.group);
}

void run_registers_backward(RowPlan& plan) {
  const DeviceRow& row = device_row(plan.device);
  Kernel& kernel = kernel_of(plan, registers_backward_family, tag_or(plan.weight, plan.in_tag),
                             plan.held_width, plan.held_group,
                             {{"RMS", !plan.mean.defined()},
                              {"DX", plan.dx->defined()},
                              {"DPARAM", plan.wants_parameters()},
                              {"ROW_VECTORS", plan.held_vectors},
                              {"OCL_MAX_REGISTERS", row.norm_registers},
                              alignment(plan, plan.held_width)});
  launch_shares(plan, kernel, plan.held_group, row.norm_groups_per_unit);
}

const char* refuse_rows_backward(const RowPlan& plan) {
  return plan.shape.grouped ? "group norm" : nullptr;
}

void run_rows_backward(RowPlan& plan) {
  const char* param_tag = tag_or(plan.weight, plan.in_tag);
  Kernel& kernel = kernel_of(plan, rows_backward_family, param_tag, plan.width, plan.group,
                             {{"RMS", !plan.mean.defined()},
                              {"DX", plan.dx->defined()},
                              {"DPARAM", plan.wants_parameters()},
                              {"PAIRS", plan.paired(param_tag)},
                              alignment(plan, plan.width),
                              stores(plan)});
  launch_shares(plan, kernel, plan.group, shares_per_unit(plan.device));
}

const char* refuse_runs_backward(const RowPlan& plan) {
  return plan.shape.grouped ? nullptr : "not group norm";
}

void run_runs_backward(RowPlan& plan) {
  Kernel& kernel = kernel_of(
      plan, runs_backward_family, tag_or(plan.weight, plan.in_tag), plan.width, plan.group,
      {{"DX", plan.dx->defined()}, alignment(plan, plan.width), stores(plan)});
  // Partial sums: a sample's channels.
  launch_backward(plan, kernel, plan.group, plan.shape.rows / plan.shape.groups,
                  plan.shape.groups * (plan.shape.length / plan.shape.run));
}

constexpr Implementation<RowPlan> kRegisters{"rows_registers", refuse_long_rows, run_registers},
    kRows{"rows", refuse_nothing, run_rows};
constexpr const Implementation<RowPlan>* kForward[] = {&kRegisters, &kRows};

constexpr Implementation<RowPlan> kRegistersBackward{"rows_registers", refuse_long_rows,
                                                     run_registers_backward},
    kRowsBackward{"rows", refuse_rows_backward, run_rows_backward},
    kRunsBackward{"runs", refuse_runs_backward, run_runs_backward};
constexpr const Implementation<RowPlan>* kBackward[] = {&kRegistersBackward, &kRowsBackward,
                                                        &kRunsBackward};

std::string describe(const RowPlan& plan) {
  return std::string("norm of rows") + (plan.grad ? ", gradients " : " ") +
         std::to_string(plan.shape.rows) + "x" + std::to_string(plan.shape.length) + " " +
         plan.in_tag +
         (plan.shape.grouped    ? " group"
          : plan.mean.defined() ? " layer"
                                : " RMS");
}

}  // namespace

void RowPlan::hold_forward() {
  if (device.is_cpu() || shape.grouped) return;
  width = held_width = static_cast<uint32_t>(gpu_row_width(shape.length, x.element_size()));
  // Half types: half the bytes of a row in each work-item, and of layer norm, which meets at twice
  // as many barriers, two rows, if there are the registers. An element of weight and of bias is
  // beside those of the rows.
  const bool half = x.element_size() == 2;
  RowShare share = share_row(device, shape.length, width, x.element_size(), 1, 3);
  if (half) {
    const int64_t rows = mean.defined() ? 2 : 1;
    const RowShare less = share_row(device, shape.length, width, x.element_size(), 2, rows + 2);
    if (less.vectors > 0 && less.occupied >= share.occupied) {
      share = less;
      held_rows = static_cast<uint32_t>(rows);
    }
  }
  held_vectors = share.vectors;
  group = held_group =
      std::max(share.items, static_cast<uint32_t>(device_row(device).least_sharers));
}

/// Rows that aren't whole vectors are taken as single elements. Among the groups that hold a row,
/// that one is taken which does best by the device's registers.
void RowPlan::hold_backward() {
  if (device.is_cpu() || shape.grouped) return;
  const auto small = static_cast<uint32_t>(group_of_rows(device)) / 2;
  const auto large = static_cast<uint32_t>(group_of_elements(device));
  // An element takes four registers beside 32 others.
  constexpr int64_t kValues = 4;
  const int64_t most = (device_row(device).norm_registers - 32) / kValues;
  int64_t best = 0;
  for (const uint32_t lanes : {width, 1U}) {
    for (const uint32_t items : {small, large}) {
      const int64_t each = ceil_div(shape.length / lanes, items);
      if (each * lanes > most || shape.length % lanes != 0) continue;
      const int64_t occupied = held_occupancy(device, kValues * each * lanes,
                                              std::max<size_t>(x.element_size(), 4), items);
      if (occupied <= best) continue;
      best = occupied;
      held_width = lanes;
      held_group = items;
      held_vectors = each;
    }
  }
}

constinit const std::span<const Implementation<RowPlan>* const> forward_of_rows = kForward,
                                                                backward_of_rows = kBackward;

Engine engine{"norm", forward_of_rows, backward_of_rows, of_channels};

void rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
          const RowShape& shape, const at::Tensor& y, const at::Tensor& mean,
          const at::Tensor& rstd) {
  if (shape.rows == 0) return;
  RowPlan plan(x, mean, rstd, weight, shape);
  plan.bias = &bias;
  plan.y = &y;
  plan.eps = eps;
  plan.hold_forward();
  run_first(engine, forward_of_rows, plan, describe);
}

void rows_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& mean,
                   const at::Tensor& rstd, const at::Tensor& weight, const RowShape& shape,
                   const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dbias) {
  if (shape.rows == 0 || (!dweight.defined() && !dbias.defined() && !dx.defined())) return;
  RowPlan plan(x, mean, rstd, weight, shape);
  plan.grad = &grad;
  plan.dx = &dx;
  plan.dweight = &dweight;
  plan.dbias = &dbias;
  plan.hold_backward();
  run_first(engine, backward_of_rows, plan, describe);
}

}  // namespace ocl::norm
