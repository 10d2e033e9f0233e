#include "engine/softmax/softmax.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "engine/dtype.h"
#include "engine/row_share.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl {

namespace {

using c10::ScalarType;

constexpr int64_t kElementsPerItem = 4096;  // on a CPU, fewer are not worth a work-item
// What a CPU's kernels keep of a row in local memory, twice: its elements and exponentials, its
// gradients and results. Together they are what every OpenCL has, and most of a first cache.
constexpr int64_t kScratchBytes = 16384, kBackwardBytes = 8192;
// Rows of a CPU's work-item: enough that most are worked off beside the next and the one before,
// and work-items enough for each core.
constexpr int64_t kMostRowsPerItem = 64, kLeastRowsAhead = 4, kItemsPerUnit = 16;
constexpr size_t kGpuLocal = 128;

const KernelFamily rows{"softmax/rows.cl", "softmax_rows"};
const KernelFamily rows_ahead{"softmax/rows_ahead.cl", "softmax_rows_ahead"};
const KernelFamily rows_backward{"softmax/rows.cl", "softmax_rows_backward"};
const KernelFamily rows_backward_ahead{"softmax/rows_backward_ahead.cl",
                                       "softmax_rows_backward_ahead"};
const KernelFamily columns{"softmax/columns.cl", "softmax_columns"};
const KernelFamily columns_backward{"softmax/columns.cl", "softmax_columns_backward"};

/// SoftmaxArgs of kernels/softmax/softmax.clh.
struct Arguments {
  uint64_t offset[3];
  uint32_t outer, length, inner, first_column, columns, outer_per_item;
};

struct Plan {
  Device& device;
  Queue& queue;
  Arguments arguments{};
  std::array<cl_mem, 3> buffers{};
  std::array<size_t, 3> element_size{};
  int buffer_count = 0;
  const char *in = nullptr, *out = nullptr, *grad = nullptr, *acc = nullptr;
  ScalarType acc_dtype = ScalarType::Float;
  int width = 1;
  bool log = false, stash = false;

  void add(const at::Tensor& tensor) {
    const Location location = device.addresses().find(tensor.const_data_ptr());
    arguments.offset[buffer_count] = location.offset;
    element_size[buffer_count] = tensor.element_size();
    buffers[buffer_count++] = location.mem;
  }

  /// Whether every vector of a row starts at a multiple of its size.
  bool aligned_rows() const {
    if (width == 1 || arguments.length % width != 0) return false;
    for (int i = 0; i < buffer_count; ++i) {
      if (arguments.offset[i] % (width * element_size[i]) != 0) return false;
    }
    return true;
  }

  /// Whether kernels/include/vector_pairs.clh may take a row's vectors by pairs.
  bool paired_rows() const {
    if (width != 16 || arguments.length % 32 != 0) return false;
    for (int i = 0; i < buffer_count; ++i) {
      if (arguments.offset[i] % 64 != 0) return false;
    }
    const std::string_view half = tag(ScalarType::BFloat16);
    return in == half && grad == half && out == half;
  }

  /// What is read and written.
  size_t moved_bytes() const {
    size_t bytes = 0;
    for (int i = 0; i < buffer_count; ++i) bytes += element_size[i];
    return bytes * arguments.outer * arguments.length * arguments.inner;
  }

  struct RowForm {
    int64_t kept = 0;        // vectors of a row in a GPU's work-item's registers
    bool aligned = false;    // vectors are moved in one piece
    bool streaming = false;  // and stored past the caches, which can't hold the results anyway
    int scratch = 0;         // elements of a row in local memory
    bool paired = false;     // vector_pairs.clh
  };

  /// A GPU wants all vectors aligned; a CPU cares only where results go past its caches, which
  /// those that are read again must not.
  RowForm row_form(bool forward) const {
    const bool aligned = aligned_rows();
    if (!device.is_cpu())
      return {share_row(arguments.length, width, element_size[0]).kept, aligned, false, 0};
    const auto most = static_cast<uint32_t>((forward ? kScratchBytes : kBackwardBytes) /
                                            c10::elementSize(acc_dtype));
    const bool fits = arguments.length <= most;
    const bool streaming = aligned && !(forward && !log && stash && !fits) &&
                           moved_bytes() >= device.properties().last_level_cache;
    // Backward, rows that stay in the caches are read again as soon.
    const bool scratch = fits && (forward || streaming);
    return {0, streaming, streaming, scratch ? static_cast<int>(most) : 0};
  }

  void enqueue(const KernelFamily& family, int lanes, size_t group, const NDRange& range,
               RowForm form) {
    Kernel& kernel =
        family.get(device, {{"IN", in},
                            {"OUT", out},
                            {"GRAD", grad},
                            {"ACC", acc},
                            {"LOG", log},
                            {"STASH", stash},
                            {"WIDTH", lanes},
                            {"GROUP", group},
                            {"SCRATCH", form.scratch},
                            {"PAIRS", form.paired},
                            {"KEPT", form.kept},
                            {form.aligned ? "ALIGNED_VECTORS" : "ANY_ALIGNMENT", 1},
                            {form.streaming ? "STREAMING_STORES" : "CACHED_STORES", 1}});
    cl_uint index = 0;
    for (int i = 0; i < buffer_count; ++i) kernel.set_buffer(index++, buffers[i]);
    kernel.set_value(index, arguments);
    const int64_t elements = int64_t{arguments.outer} * arguments.length * arguments.inner;
    kernel.enqueue(queue, range.of_work(4 * elements));  // an exponential each
  }

  void launch_rows(const KernelFamily& family, bool forward) {
    const bool cpu = device.is_cpu();
    const size_t group = cpu ? 1 : share_row(arguments.length, width, element_size[0]).items;
    RowForm form = row_form(forward);
    int64_t each = cpu ? std::max<int64_t>(1, kElementsPerItem / arguments.length) : 1;
    if (form.scratch > 0) {
      const int64_t items = int64_t{device.properties().compute_units} * kItemsPerUnit;
      each = std::max(each, std::min(arguments.outer / items, kMostRowsPerItem));
    }
    const bool ahead = form.scratch > 0 && each >= kLeastRowsAhead;
    form.paired = ahead && paired_rows();
    const KernelFamily& ahead_family = forward ? rows_ahead : rows_backward_ahead;
    arguments.outer_per_item = static_cast<uint32_t>(each);
    const size_t groups =
        (size_t{arguments.outer} + arguments.outer_per_item - 1) / arguments.outer_per_item;
    const size_t local = group > 1 ? group : cpu ? 1 : kGpuLocal;
    enqueue(ahead ? ahead_family : family, width, group, NDRange::linear(groups * group, local),
            form);
  }

  /// Whole vectors of columns, then the columns left over one by one: tiles must not overlap, for
  /// the output is read again.
  void launch_columns(const KernelFamily& family) {
    const size_t local = device.is_cpu() ? 1 : kGpuLocal;
    const uint32_t vectors = arguments.inner / static_cast<uint32_t>(width);
    arguments.columns = vectors * static_cast<uint32_t>(width);
    if (vectors > 0) {
      enqueue(family, width, 1, NDRange::linear(size_t{vectors} * arguments.outer, local), {});
    }
    arguments.first_column = arguments.columns;
    arguments.columns = arguments.inner - arguments.first_column;
    if (arguments.columns > 0) {
      enqueue(family, 1, 1, NDRange::linear(size_t{arguments.columns} * arguments.outer, local),
              {});
    }
  }
};

Plan make_plan(const at::Tensor& in, const at::Tensor& grad, const at::Tensor& out, int64_t dim,
               bool log) {
  Device& device = ocl::device(in.device().index());
  Plan plan{device, current_queue(in.device().index())};
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < dim; ++d) outer *= in.size(d);
  for (int64_t d = dim + 1; d < in.dim(); ++d) inner *= in.size(d);
  const int64_t length = in.dim() == 0 ? 1 : in.size(dim);
  TORCH_CHECK_NOT_IMPLEMENTED(outer <= UINT32_MAX && inner <= UINT32_MAX && length <= UINT32_MAX,
                              "ocl: softmax of a dimension past 2^32 elements");
  plan.arguments.outer = static_cast<uint32_t>(outer);
  plan.arguments.length = static_cast<uint32_t>(length);
  plan.arguments.inner = static_cast<uint32_t>(inner);
  const ScalarType acc = compute_dtype(in.scalar_type());
  plan.in = tag(in.scalar_type());
  plan.grad = tag(grad.scalar_type());
  plan.out = tag(out.scalar_type());
  plan.acc = tag(acc);
  plan.acc_dtype = acc;
  plan.width = static_cast<int>(device.is_cpu() ? 64 / c10::elementSize(acc)
                                : inner == 1    ? gpu_row_width(length, in.element_size())
                                                : 16 / c10::elementSize(acc));
  plan.log = log;
  // A CPU reads its exponentials back from its cache; a GPU computes them again sooner.
  plan.stash = device.is_cpu() && out.scalar_type() == acc;
  return plan;
}

}  // namespace

void softmax(const at::Tensor& input, int64_t dim, bool log, const at::Tensor& out) {
  if (input.numel() == 0) return;
  Plan plan = make_plan(input, input, out, dim, log);
  plan.add(input);
  plan.add(out);
  if (plan.arguments.inner == 1) {
    plan.launch_rows(rows, true);
  } else {
    plan.launch_columns(columns);
  }
}

void softmax_backward(const at::Tensor& grad, const at::Tensor& result, int64_t dim, bool log,
                      const at::Tensor& grad_input) {
  if (result.numel() == 0) return;
  Plan plan = make_plan(result, grad, grad_input, dim, log);
  plan.add(grad);
  plan.add(result);
  plan.add(grad_input);
  if (plan.arguments.inner == 1) {
    plan.launch_rows(rows_backward, false);
  } else {
    plan.launch_columns(columns_backward);
  }
}

}  // namespace ocl
