#include "engine/softmax/logsumexp.h"

#include <algorithm>
#include <limits>
#include <string>

#include "engine/device_table.h"
#include "engine/dispatch.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/row_share.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::softmax {

namespace {

using namespace kernel_types;
#include "softmax/arguments.clh"

const KernelFamily rows_family{"softmax/logsumexp.cl", "logsumexp_rows"};
const KernelFamily columns_family{"softmax/logsumexp.cl", "logsumexp_columns"};

// A work-item, or a work-group of a GPU, goes along that many elements whatever the others do.
constexpr int64_t kShortRow = 1 << 14;

struct Plan {
  Queue& queue;
  const at::Tensor& input;
  const at::Tensor& out;
  int64_t outer, length, inner;
  int64_t width = 1;  ///< elements of a vector
  RowShare share;     ///< work-items of a row
  int64_t items = 0;  ///< of all rows or columns

  Device& device() const { return queue.device(); }
  bool is_cpu() const { return queue.device().is_cpu(); }
  int64_t along() const { return length / share.items; }
};

const char* refuse_long(const Plan& plan) {
  return plan.along() > kShortRow && plan.items < parts_of_work(plan.device())
             ? "few long reductions are shared among more work-items by the reduce engine"
             : nullptr;
}

const char* refuse_rows(const Plan& plan) {
  return plan.inner != 1 ? "the dimension isn't the innermost" : refuse_long(plan);
}

const char* refuse_columns(const Plan& plan) {
  if (plan.inner == 1) return "the dimension is the innermost";
  if (plan.width == 1 && plan.input.numel() > kShortRow) {
    return "single columns are many small reads, which the reduce engine shares among cores";
  }
  if (!plan.is_cpu() && plan.along() > 64 && plan.items < items_of_units(plan.device())) {
    return "there are few columns for a GPU";
  }
  return refuse_long(plan);
}

void run(const KernelFamily& family, Plan& plan, size_t count, size_t local,
         const Arguments& arguments) {
  const at::ScalarType dtype = plan.input.scalar_type();
  Kernel& kernel = family.get(plan.device(), {{"IN", tag(dtype)},
                                              {"OUT", tag(dtype)},
                                              {"ACC", tag(compute_dtype(dtype))},
                                              {"LOG", 1},
                                              {"STASH", 0},
                                              {"WIDTH", plan.width},
                                              {"GROUP", size_t{plan.share.items}}});
  launch(kernel, plan.queue, NDRange::linear(count, local).of_work(4 * plan.input.numel()),
         Pointer{plan.input.const_data_ptr()}, Pointer{plan.out.data_ptr()}, arguments);
}

Arguments arguments_of(const Plan& plan) {
  Arguments arguments{};
  arguments.outer = static_cast<uint32_t>(plan.outer);
  arguments.length = static_cast<uint32_t>(plan.length);
  arguments.inner = static_cast<uint32_t>(plan.inner);
  arguments.outer_per_item = 1;
  return arguments;
}

void run_rows(Plan& plan) {
  Arguments arguments = arguments_of(plan);
  if (plan.is_cpu()) {
    const int64_t rows = device_row(plan.device()).item_elements / plan.length;
    arguments.outer_per_item = static_cast<uint32_t>(std::max<int64_t>(1, rows));
  }
  const size_t group = plan.share.items;
  const size_t local = group > 1 ? group : plan.is_cpu() ? 1 : group_of_rows(plan.device());
  const size_t count = ceil_div(plan.outer, int64_t{arguments.outer_per_item}) * group;
  run(rows_family, plan, count, local, arguments);
}

void run_columns(Plan& plan) {
  const size_t local = plan.is_cpu() ? 1 : group_of_rows(plan.device());
  run(columns_family, plan, static_cast<size_t>(plan.items), local, arguments_of(plan));
}

const Implementation<Plan> by_rows{"rows", refuse_rows, run_rows};
const Implementation<Plan> by_columns{"columns", refuse_columns, run_columns};

std::string describe(const Plan& plan) {
  return "softmax logsumexp " + std::to_string(plan.outer) + "x" + std::to_string(plan.length) +
         "x" + std::to_string(plan.inner) + " " + tag(plan.input.scalar_type());
}

}  // namespace

bool logsumexp(const at::Tensor& input, int64_t outer, int64_t length, int64_t inner,
               const at::Tensor& out) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (outer > kMost || inner > kMost || length > kMost) return false;
  Plan plan{current_queue(input.device().index()), input, out, outer, length, inner};
  const bool rows = inner == 1;
  const auto bytes = static_cast<int64_t>(c10::elementSize(compute_dtype(input.scalar_type())));
  plan.width = plan.is_cpu() ? 64 / bytes
               : rows        ? gpu_row_width(length, input.element_size())
                             : 16 / bytes;
  if (!rows && inner < plan.width) plan.width = 1;
  if (rows && !plan.is_cpu()) {
    plan.share = share_row(plan.device(), length, plan.width, input.element_size());
  }
  plan.items = rows ? outer * plan.share.items : outer * ceil_div(inner, plan.width);
  for (const Implementation<Plan>* implementation : {&by_rows, &by_columns}) {
    if (!accepts(engine, *implementation, plan, describe)) continue;
    implementation->run(plan);
    return true;
  }
  return false;
}

}  // namespace ocl::softmax
