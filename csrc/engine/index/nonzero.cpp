#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/index/nonzero.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/index/index.h"
#include "engine/row_major.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::index {

namespace {

static_assert(NonzeroScan::kMaxDims == RowMajor::kMaxKernelDims);

constexpr int64_t kMinChunk = 64;
// Chunks per compute unit: enough to balance the load, few enough for one work-item to add up.
constexpr int64_t kChunksPerUnit = 64;

const KernelFamily count_family{"index/nonzero.cl", "nonzero_count"};
const KernelFamily scan_family{"index/nonzero.cl", "nonzero_scan"};
const KernelFamily write_family{"index/nonzero.cl", "nonzero_write"};

Kernel& get(const KernelFamily& family, Queue& queue, const at::Tensor& self, bool contiguous) {
  return family.get(queue.device(), {{"IN", tag(self.scalar_type())}, {"CONTIGUOUS", contiguous}});
}

NonzeroArguments arguments_of(const RowMajor& layout, uint32_t chunk) {
  NonzeroArguments arguments;
  arguments.n = static_cast<uint32_t>(layout.n);
  arguments.chunk = chunk;
  put_layout(arguments, layout);
  return arguments;
}

}  // namespace

NonzeroScan::NonzeroScan(const at::Tensor& self) : self_(self) {
  if (self.numel() == 0) return;
  RowMajor layout = row_major(self_.sizes(), {self_}, /*merge=*/false);
  if (!layout.fits) {
    self_ = self_.contiguous();
    layout = row_major(self_.sizes(), {self_}, /*merge=*/false);
    TORCH_INTERNAL_ASSERT(layout.dims <= kMaxDims && layout.n < int64_t{1} << 31);
    layout.fits = true;  // a contiguous tensor is not decoded, its extent may be larger
  }
  Queue& queue = current_queue(self.device().index());
  const int64_t wanted = kChunksPerUnit * queue.device().properties().compute_units;
  chunk_ = static_cast<uint32_t>(std::max(kMinChunk, ceil_div(layout.n, wanted)));
  chunks_ = ceil_div(layout.n, chunk_);
  counts_ = at::empty({chunks_ + 1}, self.options().dtype(at::kLong));
  launch(get(count_family, queue, self_, layout.contiguous), queue,
         NDRange::linear(chunks_, group_of_lanes(queue.device())).of_work(4 * layout.n),
         Pointer{self_.data_ptr()}, Pointer{counts_.data_ptr()}, arguments_of(layout, chunk_));
  launch(get(scan_family, queue, self_, layout.contiguous), queue,
         NDRange::linear(1, 1).of_work(chunks_), Pointer{counts_.data_ptr()},
         static_cast<uint32_t>(chunks_));
}

int64_t NonzeroScan::total() const {
  return chunks_ == 0 ? 0 : counts_.select(0, chunks_).item<int64_t>();
}

void NonzeroScan::write(const at::Tensor& out) const {
  if (chunks_ == 0 || out.numel() == 0) return;
  RowMajor layout = row_major(self_.sizes(), {self_}, /*merge=*/false);
  layout.fits = true;  // the constructor saw to it
  Queue& queue = current_queue(self_.device().index());
  launch(get(write_family, queue, self_, layout.contiguous), queue,
         NDRange::linear(chunks_, group_of_lanes(queue.device())).of_work(4 * layout.n),
         Pointer{self_.data_ptr()}, Pointer{counts_.data_ptr()}, arguments_of(layout, chunk_),
         Pointer{out.data_ptr()}, static_cast<uint64_t>(out.stride(0)),
         static_cast<uint64_t>(out.stride(1)), static_cast<uint64_t>(out.size(0)),
         static_cast<uint32_t>(layout.dims));
}

}  // namespace ocl::index
