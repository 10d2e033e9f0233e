#include "engine/softmax/logsumexp.h"

#include <algorithm>
#include <limits>

#include "engine/device_table.h"
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

}  // namespace

bool logsumexp(const at::Tensor& input, int64_t outer, int64_t length, int64_t inner,
               const at::Tensor& out) {
  Queue& queue = current_queue(input.device().index());
  Device& device = queue.device();
  const bool cpu = device.is_cpu(), rows = inner == 1;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (outer > kMost || inner > kMost || length > kMost) return false;
  const at::ScalarType dtype = input.scalar_type(), acc = compute_dtype(dtype);
  const auto acc_bytes = static_cast<int64_t>(c10::elementSize(acc));
  int64_t width = cpu    ? 64 / acc_bytes
                  : rows ? gpu_row_width(length, input.element_size())
                         : 16 / acc_bytes;
  if (!rows && inner < width) width = 1;
  const RowShare share =
      rows && !cpu ? share_row(device, length, width, input.element_size()) : RowShare{};
  const int64_t items = rows ? outer * share.items : outer * ceil_div(inner, width);
  const int64_t along = length / share.items;
  // Single columns are many small reads, which the reduce engine shares among cores.
  if (!rows && width == 1 && input.numel() > kShortRow) return false;
  if (along > kShortRow && items < parts_of_work(device)) return false;
  if (!rows && !cpu && along > 64 && items < items_of_units(device)) return false;

  Arguments arguments{};
  arguments.outer = static_cast<uint32_t>(outer);
  arguments.length = static_cast<uint32_t>(length);
  arguments.inner = static_cast<uint32_t>(inner);
  arguments.outer_per_item = 1;
  if (rows && cpu) {
    arguments.outer_per_item =
        static_cast<uint32_t>(std::max<int64_t>(1, device_row(device).item_elements / length));
  }
  const size_t group = share.items;
  const size_t local = rows && group > 1 ? group : cpu ? 1 : group_of_rows(device);
  const size_t count = rows ? ceil_div(outer, int64_t{arguments.outer_per_item}) * group
                            : static_cast<size_t>(items);
  Kernel& kernel = (rows ? rows_family : columns_family)
                       .get(device, {{"IN", tag(dtype)},
                                     {"OUT", tag(dtype)},
                                     {"ACC", tag(acc)},
                                     {"LOG", 1},
                                     {"STASH", 0},
                                     {"WIDTH", width},
                                     {"GROUP", group}});
  launch(kernel, queue, NDRange::linear(count, local).of_work(4 * input.numel()),
         Pointer{input.const_data_ptr()}, Pointer{out.data_ptr()}, arguments);
  return true;
}

}  // namespace ocl::softmax
