#include "engine/softmax/softmax.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/lanes.h"
#include "engine/row_share.h"
#include "engine/softmax/logsumexp.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::softmax {

namespace {

using namespace kernel_types;
#include "softmax/arguments.clh"

using c10::ScalarType;

// Rows of a CPU's work-item: enough that most are worked off beside the next and the one before,
// and work-items enough for each core.
constexpr int64_t kMostRowsPerItem = 64, kLeastRowsToPrefetch = 4;

const KernelFamily rows_family{"softmax/rows.cl", "softmax_rows"};
const KernelFamily rows_backward_family{"softmax/rows.cl", "softmax_rows_backward"};
const KernelFamily prefetch_family{"softmax/rows_prefetch.cl", "softmax_rows_prefetch"};
const KernelFamily registers_family{"softmax/rows_registers.cl", "softmax_rows_registers"};
const KernelFamily registers_backward_family{"softmax/rows_registers.cl",
                                             "softmax_rows_registers_backward"};
const KernelFamily held_family{"softmax/rows_held.cl", "softmax_rows_held"};
const KernelFamily held_backward_family{"softmax/rows_held.cl", "softmax_rows_held_backward"};
const KernelFamily columns_family{"softmax/columns.cl", "softmax_columns"};
const KernelFamily columns_backward_family{"softmax/columns.cl", "softmax_columns_backward"};

/// A softmax or its gradient.
struct Plan {
  Device& device;
  Queue& queue;
  const bool backward, log;
  // As the kernels take them: input and output; or gradient of the result, result, gradient of the
  // input.
  std::array<const void*, 3> operands{};
  std::array<size_t, 3> element_sizes{};
  int count = 0;
  const char *in = nullptr, *out = nullptr, *grad = nullptr, *acc = nullptr;
  int64_t acc_bytes = 4;
  int width = 1;
  bool stash = false;
  Arguments arguments{};

  // Rows, inner == 1, have these: on a GPU how a work-group shares one; on a CPU the elements that
  // local memory holds, if a row of a forward pass fits, and whether results are stored past the
  // caches.
  RowShare share = {};
  int64_t local_elements = 0;
  bool fits = false, streaming = false;

  void add(const at::Tensor& tensor) {
    element_sizes[count] = tensor.element_size();
    operands[count++] = tensor.const_data_ptr();
  }

  /// Whether each operand begins at a multiple of `elements` of its elements.
  bool begins_aligned(size_t elements) const {
    for (int i = 0; i < count; ++i) {
      if (reinterpret_cast<uintptr_t>(operands[i]) % (elements * element_sizes[i]) != 0)
        return false;
    }
    return true;
  }

  /// Whether every vector of a row starts at a multiple of its size.
  bool aligned_rows() const {
    return width > 1 && arguments.length % width == 0 && begins_aligned(width);
  }

  /// Whether kernels/include/vector_pairs.clh may take a row's vectors by pairs.
  bool paired_rows() const {
    const std::string_view half = tag(ScalarType::BFloat16);
    return width == 16 && arguments.length % 32 == 0 && in == half && grad == half && out == half &&
           begins_aligned(32);
  }

  /// Bytes that are read and written.
  size_t moved_bytes() const {
    size_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += element_sizes[i];
    return bytes * arguments.outer * arguments.length * arguments.inner;
  }

  void choose_rows(ScalarType acc_dtype);
  Kernel& kernel(const KernelFamily& family, int lanes, size_t group,
                 std::initializer_list<Define> more = {}) const;
  void enqueue(Kernel& kernel, const NDRange& range) const;
};

void Plan::choose_rows(ScalarType acc_dtype) {
  const int64_t length = arguments.length, outer = arguments.outer;
  arguments.outer_per_item = 1;
  if (!device.is_cpu()) {
    share = share_row(device, length, width, element_sizes[0], 1, backward ? 2 : 1);
    return;
  }
  // A row's elements and exponentials.
  local_elements =
      device_row(device).staged_bytes / static_cast<int64_t>(c10::elementSize(acc_dtype));
  fits = !backward && length <= local_elements;
  // Stores go past caches that can't hold the results anyway, unless the kernel reads them again.
  streaming = aligned_rows() && !(!backward && !log && stash && !fits) &&
              moved_bytes() >= device.properties().last_level_cache;
  int64_t each = std::max<int64_t>(1, device_row(device).item_elements / length);
  if (fits) {
    const int64_t items = items_of_cores(device, 4);
    each = std::max(each, std::min(outer / items, kMostRowsPerItem));
  }
  arguments.outer_per_item = static_cast<uint32_t>(each);
}

Kernel& Plan::kernel(const KernelFamily& family, int lanes, size_t group,
                     std::initializer_list<Define> more) const {
  std::array<Define, 12> defines{{{"IN", in},
                                  {"OUT", out},
                                  {"GRAD", grad},
                                  {"ACC", acc},
                                  {"LOG", log},
                                  {"STASH", stash},
                                  {"WIDTH", lanes},
                                  {"GROUP", group}}};
  std::copy(more.begin(), more.end(), defines.begin() + 8);
  return family.get(device, std::span<const Define>(defines.data(), 8 + more.size()));
}

void Plan::enqueue(Kernel& kernel, const NDRange& range) const {
  const int64_t elements = int64_t{arguments.outer} * arguments.length * arguments.inner;
  const NDRange timed = range.of_work(4 * elements);  // an exponential each
  if (backward) {
    launch(kernel, queue, timed, Pointer{operands[0]}, Pointer{operands[1]}, Pointer{operands[2]},
           arguments);
  } else {
    launch(kernel, queue, timed, Pointer{operands[0]}, Pointer{operands[1]}, arguments);
  }
}

NDRange row_groups(const Plan& plan, size_t group, size_t local) {
  const size_t groups = ceil_div(size_t{plan.arguments.outer}, plan.arguments.outer_per_item);
  return NDRange::linear(groups * group, local);
}

constexpr const char* kNotInnermost = "the dimension isn't the innermost";

const char* refuse_prefetch(const Plan& plan) {
  if (!plan.device.is_cpu()) return "only for CPU devices";
  if (plan.arguments.inner != 1) return kNotInnermost;
  if (plan.backward) return "a gradient";
  if (!plan.fits) return "a row doesn't fit into the first cache";
  return plan.arguments.outer_per_item < kLeastRowsToPrefetch ? "a work-item has too few rows"
                                                              : nullptr;
}

void run_prefetch(Plan& plan) {
  Kernel& kernel = plan.kernel(prefetch_family, plan.width, 1,
                               {{"LOCAL_ELEMENTS", plan.local_elements},
                                {"PAIRS", plan.paired_rows()},
                                {plan.streaming ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT", 1},
                                {plan.streaming ? "STREAMING_STORES" : "CACHED_STORES", 1}});
  plan.enqueue(kernel, row_groups(plan, 1, 1));
}

const char* refuse_registers(const Plan& plan) {
  if (plan.device.is_cpu()) return "only for GPU devices";
  if (plan.arguments.inner != 1) return kNotInnermost;
  return plan.share.vectors == 0 ? "a row is short, too long or not whole vectors" : nullptr;
}

void run_registers(Plan& plan) {
  const size_t group = plan.share.items;
  Kernel& kernel =
      plan.kernel(plan.backward ? registers_backward_family : registers_family, plan.width, group,
                  {{"ROW_VECTORS", plan.share.vectors},
                   {plan.aligned_rows() ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT", 1}});
  plan.enqueue(kernel, row_groups(plan, group, group));
}

const char* refuse_held(const Plan& plan) {
  if (plan.device.is_cpu()) return "only for GPU devices";
  if (plan.arguments.inner != 1) return kNotInnermost;
  const int64_t length = plan.arguments.length;
  return length < device_row(plan.device).least_sharers ? "a row is short" : nullptr;
}

/// The fewest work-items that hold a row, as many vectors to each as where rows are whole ones; of
/// a row for which they don't suffice, more work-items with more registers.
void run_held(Plan& plan) {
  const DeviceRow& row = device_row(plan.device);
  const int64_t length = plan.arguments.length, bytes = plan.acc_bytes;
  int64_t items = row.least_sharers, registers = row.row_register_bytes;
  while (items < row.most_sharers && items * registers < length * bytes) items *= 2;
  if (items * registers < length * bytes) {
    registers = row.long_row_register_bytes;
    const auto most = static_cast<int64_t>(plan.device.properties().max_work_group_size);
    while (items * registers < length * bytes &&
           2 * items <= std::min(row.long_row_sharers, most)) {
      items *= 2;
    }
  }
  // The gradient of softmax needs two operands at once.
  if (plan.backward && !plan.log) registers /= 2;
  // Vectors of 16 bytes in memory, aligned in each operand.
  int64_t width = 16 / static_cast<int64_t>(plan.element_sizes[plan.backward ? 1 : 0]);
  if (!plan.begins_aligned(width)) width = 1;
  const int64_t held =
      std::clamp<int64_t>(registers / (width * bytes), 1, ceil_div(ceil_div(length, width), items));
  const auto group = static_cast<size_t>(items);
  Kernel& kernel =
      plan.kernel(plan.backward ? held_backward_family : held_family, static_cast<int>(width),
                  group, {{"HELD", held}, {"ALIGNED_VECTORS", 1}});
  plan.enqueue(kernel, row_groups(plan, group, group));
}

const char* refuse_rows(const Plan& plan) {
  return plan.arguments.inner != 1 ? kNotInnermost : nullptr;
}

/// A GPU wants all vectors aligned; a CPU cares only where results go past its caches.
void run_rows(Plan& plan) {
  const bool cpu = plan.device.is_cpu(), aligned = cpu ? plan.streaming : plan.aligned_rows();
  const size_t group = plan.share.items;
  Kernel& kernel =
      plan.kernel(plan.backward ? rows_backward_family : rows_family, plan.width, group,
                  {{"LOCAL_ELEMENTS", plan.fits ? plan.local_elements : 0},
                   {aligned ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT", 1},
                   {plan.streaming ? "STREAMING_STORES" : "CACHED_STORES", 1},
                   {"ONLY", plan.backward ? 2 : 1}});
  plan.enqueue(kernel, row_groups(plan, group,
                                  group > 1 ? group
                                  : cpu     ? 1
                                            : group_of_rows(plan.device)));
}

const char* refuse_columns(const Plan&) { return nullptr; }

/// Whole vectors of columns, then the columns left over one by one: tiles must not overlap, for the
/// output is read again.
void run_columns(Plan& plan) {
  const KernelFamily& family = plan.backward ? columns_backward_family : columns_family;
  const size_t local = plan.device.is_cpu() ? 1 : group_of_rows(plan.device);
  Arguments& arguments = plan.arguments;
  const uint32_t vectors = arguments.inner / static_cast<uint32_t>(plan.width);
  arguments.columns = vectors * static_cast<uint32_t>(plan.width);
  if (vectors > 0) {
    plan.enqueue(plan.kernel(family, plan.width, 1),
                 NDRange::linear(size_t{vectors} * arguments.outer, local));
  }
  arguments.first_column = arguments.columns;
  arguments.columns = arguments.inner - arguments.first_column;
  if (arguments.columns > 0) {
    plan.enqueue(plan.kernel(family, 1, 1),
                 NDRange::linear(size_t{arguments.columns} * arguments.outer, local));
  }
}

constexpr Implementation<Plan> kRowsPrefetch{"rows_prefetch", refuse_prefetch, run_prefetch},
    kRowsRegisters{"rows_registers", refuse_registers, run_registers},
    kRowsHeld{"rows_held", refuse_held, run_held}, kRows{"rows", refuse_rows, run_rows},
    kColumns{"columns", refuse_columns, run_columns};
constexpr const Implementation<Plan>* kImplementations[] = {&kRowsPrefetch, &kRowsRegisters,
                                                            &kRowsHeld, &kRows, &kColumns};

}  // namespace

Engine engine{"softmax", kImplementations};

namespace {

std::string describe(const Plan& plan) {
  const Arguments& a = plan.arguments;
  return std::string("softmax") + (plan.backward ? " backward " : " ") + std::to_string(a.outer) +
         "x" + std::to_string(a.length) + "x" + std::to_string(a.inner) + " " + plan.in + "->" +
         plan.out + (plan.log ? " log" : "");
}

void run(const at::Tensor& in, const at::Tensor& grad, const at::Tensor& out, int64_t dim,
         bool log) {
  Device& device = ocl::device(in.device().index());
  Plan plan{device, current_queue(in.device().index()), grad.defined(), log};
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < dim; ++d) outer *= in.size(d);
  for (int64_t d = dim + 1; d < in.dim(); ++d) inner *= in.size(d);
  const int64_t length = in.dim() == 0 ? 1 : in.size(dim);
  TORCH_CHECK_NOT_IMPLEMENTED(outer <= UINT32_MAX && inner <= UINT32_MAX && length <= UINT32_MAX,
                              "ocl: softmax of a dimension past 2^32 elements");
  plan.arguments.outer = static_cast<uint32_t>(outer);
  plan.arguments.length = static_cast<uint32_t>(length);
  plan.arguments.inner = static_cast<uint32_t>(inner);
  if (grad.defined()) plan.add(grad);
  plan.add(in);
  plan.add(out);
  const ScalarType acc = compute_dtype(in.scalar_type());
  plan.in = tag(in.scalar_type());
  plan.grad = tag((grad.defined() ? grad : in).scalar_type());
  plan.out = tag(out.scalar_type());
  plan.acc = tag(acc);
  plan.acc_bytes = static_cast<int64_t>(c10::elementSize(acc));
  plan.width = static_cast<int>(device.is_cpu() ? longest_lanes(acc)
                                : inner == 1    ? gpu_row_width(length, in.element_size())
                                                : 16 / c10::elementSize(acc));
  // A CPU reads its exponentials back from its cache; a GPU computes them again sooner.
  plan.stash = device.is_cpu() && out.scalar_type() == acc;
  if (inner == 1) plan.choose_rows(acc);
  run_first(engine, kImplementations, plan, describe);
}

}  // namespace

void forward(const at::Tensor& input, int64_t dim, bool log, const at::Tensor& out) {
  if (input.numel() > 0) run(input, {}, out, dim, log);
}

void backward(const at::Tensor& grad, const at::Tensor& result, int64_t dim, bool log,
              const at::Tensor& grad_input) {
  if (result.numel() > 0) run(result, grad, grad_input, dim, log);
}

}  // namespace ocl::softmax
