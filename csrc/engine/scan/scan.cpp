#include "engine/scan/scan.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/geometry.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/allocator.h"
#include "runtime/stream.h"

namespace ocl::scan {

namespace {

using namespace kernel_types;
#include "scan/arguments.clh"

using c10::ScalarType;
using reduce::Dimension;
using reduce::Geometry;

constexpr int kCpuItems = 8;
constexpr int64_t kLeastColumns = 4;
// Every chunk combines the partials of all chunks before it, one by one in columns.
constexpr int64_t kMaxColumnSplits = 128;

/// Phases in kernels/scan/geometry.clh.
enum Phase : int { kOnly, kReduce, kScan };

const KernelFamily rows_family{"scan/rows.cl", "scan_rows"};
const KernelFamily columns_family{"scan/columns.cl", "scan_columns"};

ScalarType acc_dtype(const Device& device, ScalarType out) {
  if (out == ScalarType::Float && has_fast_fp64(device)) return ScalarType::Double;
  if (out == ScalarType::ComplexFloat && device.properties().has_fp64) {
    return ScalarType::ComplexDouble;
  }
  return compute_dtype(out);
}

/// One scan on its way: geometry in, launches out.
class Plan {
 public:
  Plan(const Op& op, const at::Tensor& self, const at::Tensor& out, const at::Tensor& positions,
       Dimension line, Geometry& others);

  const Device& device() const { return device_; }
  /// Elements of a line.
  int64_t length() const { return static_cast<int64_t>(arguments_.length); }
  /// Lines that lie side by side in memory, where the elements of one don't; else 0.
  int64_t columns() const { return columns_; }
  std::string describe() const;

  /// `group`: work-items that share a chunk.
  void run_rows(size_t group);
  void run_columns();

 private:
  /// Chunks of a multiple of `step` elements, so that there are about as many as the device can
  /// use, given `parts` work-items or work-groups per chunk, and each has `worthwhile` of them.
  void choose_chunks(int64_t parts, int64_t wanted, int64_t step, int64_t worthwhile,
                     int64_t max_splits);
  void allocate_partials();
  /// Runs `launch` for each phase.
  template <class Launch>
  void in_phases(const Launch& launch);
  /// The family's kernel of a phase, with up to three parameters of its own.
  Kernel& kernel(const KernelFamily& family, Phase phase, std::initializer_list<Define> own) const;
  void enqueue(Kernel& kernel, const NDRange& range);

  const Op& op_;
  Queue& queue_;
  Device& device_;
  const ScalarType in_, out_, load_, acc_;
  const bool pairs_;  // accumulates in pairs of single precision, for want of a fast double
  const void *in_data_, *out_data_, *second_data_;
  Arguments arguments_{};
  bool contiguous_;  // the elements of a line are neighbours
  int64_t columns_ = 0;
  c10::DataPtr partials_;
};

Plan::Plan(const Op& op, const at::Tensor& self, const at::Tensor& out, const at::Tensor& positions,
           Dimension line, Geometry& others)
    : op_(op),
      queue_(current_queue(self.device().index())),
      device_(queue_.device()),
      in_(self.scalar_type()),
      out_(out.scalar_type()),
      load_(compute_dtype(out_)),
      acc_(op.state == State::arg ? load_ : acc_dtype(device_, out_)),
      pairs_(op.state == State::value && out_ == ScalarType::Float && acc_ == ScalarType::Float),
      in_data_(self.const_data_ptr()),
      out_data_(out.mutable_data_ptr()),
      second_data_(positions.defined() ? positions.mutable_data_ptr() : nullptr),
      contiguous_(line.in == self.element_size()) {
  others.order();
  if (!contiguous_ && line.size > 1 && others.column_first(self.element_size())) {
    columns_ = others.kept[0].size;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(others.kept_count <= kMaxDims, "ocl: a scan with more than ",
                              kMaxDims, " other dimensions that can't be merged");
  const int64_t lines = others.outputs();
  TORCH_CHECK_NOT_IMPLEMENTED(lines <= INT32_MAX, "ocl: a scan of ", lines, " lines");
  arguments_.length = static_cast<uint64_t>(line.size);
  arguments_.in_step = line.in;
  for (int k = 0; k < 2; ++k) arguments_.out_step[k] = line.out[k];
  arguments_.lines = static_cast<uint32_t>(lines);
  arguments_.dims = static_cast<uint32_t>(others.kept_count);
  for (int d = 0; d < others.kept_count; ++d) {
    const Dimension& dimension = others.kept[d];
    arguments_.in_stride[d] = dimension.in;
    for (int k = 0; k < 2; ++k) arguments_.out_stride[k][d] = dimension.out[k];
    arguments_.size[d] = static_cast<uint32_t>(dimension.size);
  }
}

void Plan::choose_chunks(int64_t parts, int64_t wanted, int64_t step, int64_t worthwhile,
                         int64_t max_splits) {
  const int64_t length = static_cast<int64_t>(arguments_.length);
  const int64_t splits = std::clamp<int64_t>(
      std::min(wanted / std::max<int64_t>(1, parts), length / worthwhile), 1, max_splits);
  const int64_t chunk = std::max<int64_t>(1, ceil_div(length, splits));
  arguments_.chunk = static_cast<uint64_t>(ceil_div(chunk, step) * step);
  arguments_.splits =
      static_cast<uint32_t>(std::max<uint64_t>(1, ceil_div(arguments_.length, arguments_.chunk)));
}

void Plan::allocate_partials() {
  const uint64_t states = uint64_t{arguments_.splits} * arguments_.lines;
  const uint64_t value = c10::elementSize(acc_) * (pairs_ ? 2 : 1);
  const uint64_t values = (value * states + 63) / 64 * 64;
  // Freed when this object goes: the allocator hands the memory out again in the queue's order.
  partials_ = allocator()->allocate(values + (op_.state == State::arg ? 8 * states : 0));
  arguments_.partial_start[1] = values;
}

Kernel& Plan::kernel(const KernelFamily& family, Phase phase,
                     std::initializer_list<Define> own) const {
  std::array<Define, 11> defines{{{"STATE", static_cast<int>(op_.state)},
                                  {"OP", op_.functor},
                                  {"IN", tag(in_)},
                                  {"OUT", tag(out_)},
                                  {"C", tag(load_)},
                                  {"ACC", tag(acc_)},
                                  {"PAIRS", pairs_},
                                  {"PHASE", static_cast<int>(phase)}}};
  const auto end = std::copy(own.begin(), own.end(), defines.begin() + 8);
  return family.get(device_, std::span<const Define>(defines.begin(), end));
}

void Plan::enqueue(Kernel& kernel, const NDRange& range) {
  launch(kernel, queue_,
         range.of_work(static_cast<int64_t>(2 * arguments_.lines * arguments_.length)),
         Pointer{in_data_}, Pointer{out_data_}, Pointer{second_data_}, Pointer{partials_.get()},
         arguments_);
}

template <class Launch>
void Plan::in_phases(const Launch& launch) {
  if (arguments_.splits == 1) {
    launch(kOnly);
    return;
  }
  allocate_partials();
  launch(kReduce);
  launch(kScan);
}

void Plan::run_rows(size_t group) {
  const bool cpu = device_.is_cpu(), grouped = group > 1;
  const bool together = op_.state == State::arg || op_.regroup == Op::always ||
                        (op_.regroup == Op::real_doubles && acc_ == ScalarType::Double);
  const int items = grouped ? device_row(device_).scan.items : together ? kCpuItems : 1;
  if (cpu || grouped) {
    choose_chunks(arguments_.lines, cpu ? items_of_cores(device_) : groups_of_units(device_),
                  static_cast<int64_t>(group) * items, device_row(device_).item_elements,
                  INT32_MAX);
  } else {
    arguments_.splits = 1;
    arguments_.chunk = arguments_.length;
  }
  arguments_.lines_per_item = 1;
  if (cpu && arguments_.splits == 1) {
    const int64_t worthwhile = device_row(device_).item_elements / std::max<int64_t>(1, length());
    const int64_t wanted = arguments_.lines / items_of_cores(device_, 8);
    arguments_.lines_per_item = static_cast<uint32_t>(std::max<int64_t>({1, worthwhile, wanted}));
  }
  const uint32_t per_item = arguments_.lines_per_item;
  const size_t groups = size_t{ceil_div(arguments_.lines, per_item)} * arguments_.splits;
  const size_t local = group > 1 ? group : cpu ? 1 : group_of_rows(device_);
  in_phases([&](Phase phase) {
    Kernel& chosen = kernel(rows_family, phase,
                            {{"GROUP", group}, {"ITEMS", items}, {"CONTIGUOUS", contiguous_}});
    enqueue(chosen, NDRange::linear(groups * group, local));
  });
}

void Plan::run_columns() {
  const bool cpu = device_.is_cpu();
  const int width = !cpu ? 1 : columns_ >= 16 ? 16 : 4;
  const uint32_t columns = arguments_.size[0];
  const uint32_t w = static_cast<uint32_t>(width);
  arguments_.columns = columns;
  arguments_.tiles = ceil_div(columns, w);
  const int64_t blocks = int64_t{arguments_.tiles} * (arguments_.lines / columns);
  // A GPU's work-item should walk some hundred elements, a CPU's some thousand.
  choose_chunks(blocks, busy_items(device_), 1, device_row(device_).scan.column_elements / width,
                kMaxColumnSplits);
  in_phases([&](Phase phase) {
    enqueue(kernel(columns_family, phase, {{"WIDTH", width}}),
            NDRange::linear(static_cast<size_t>(blocks) * arguments_.splits,
                            cpu ? 1 : group_of_rows(device_)));
  });
}

std::string Plan::describe() const {
  return std::string("scan ") + op_.functor + " " + std::to_string(arguments_.lines) + "x" +
         std::to_string(arguments_.length) + " " + tag(in_) + "->" + tag(out_);
}

const char* refuse_columns(const Plan& plan) {
  if (plan.columns() == 0) return "no lines lie side by side";
  return plan.columns() < kLeastColumns ? "few lines lie side by side" : nullptr;
}
void run_columns(Plan& plan) { plan.run_columns(); }

const char* refuse_group_rows(const Plan& plan) {
  if (plan.device().is_cpu()) return "only for GPU devices";
  return plan.length() < device_row(plan.device()).scan.group_length ? "the lines are short"
                                                                     : nullptr;
}
void run_group_rows(Plan& plan) { plan.run_rows(group_of_elements(plan.device())); }

const char* refuse_rows(const Plan&) { return nullptr; }
void run_rows(Plan& plan) { plan.run_rows(1); }

constexpr Implementation<Plan> kColumns{"columns", refuse_columns, run_columns},
    kGroupRows{"group_rows", refuse_group_rows, run_group_rows},
    kRows{"rows", refuse_rows, run_rows};
constexpr const Implementation<Plan>* kImplementations[] = {&kColumns, &kGroupRows, &kRows};

Engine engine{"scan", kImplementations};

}  // namespace

void run(const Op& op, const at::Tensor& self, int64_t dim, const at::Tensor& out,
         const at::Tensor& positions) {
  if (out.numel() == 0) return;
  const int64_t in_size = self.element_size();
  const int64_t out_size = out.element_size();
  const auto dimension = [&](int64_t d) {
    return Dimension{self.size(d),
                     self.stride(d) * in_size,
                     {out.stride(d) * out_size, positions.defined() ? positions.stride(d) * 8 : 0}};
  };
  Dimension line{1, 0, {0, 0}};
  Geometry others;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d == dim) {
      line = dimension(d);
    } else {
      others.add(false, dimension(d));
    }
  }
  Plan plan(op, self, out, positions, line, others);
  run_first(engine, kImplementations, plan, [](const Plan& plan) { return plan.describe(); });
}

}  // namespace ocl::scan
