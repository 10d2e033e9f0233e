// The dropout of attention's weights as a matrix (kernels/attention/dropout.cl).
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/attention/attention.h"
#include "engine/attention/plan.h"
#include "engine/device_table.h"
#include "engine/dtype.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::attention {

void dropout_factors(double dropout, uint64_t seed, uint64_t offset, const at::Tensor& factors) {
  static const KernelFamily family{"attention/dropout.cl", "attention_dropout"};
  if (factors.numel() == 0) return;
  Queue& queue = current_queue(factors.device().index());
  Device& device = queue.device();
  const auto keys = static_cast<size_t>(factors.size(3));
  const auto rows = static_cast<size_t>(factors.numel()) / keys;
  Kernel& kernel = family.get(device, {{"C", tag(factors.scalar_type())}});
  const Keep keep(dropout, factors.scalar_type());
  cl_uint index = 0;
  detail::set_argument(kernel, index, Pointer{factors.const_data_ptr()});
  kernel.set_value(index++, static_cast<cl_ulong>(seed));
  kernel.set_value(index++, static_cast<cl_ulong>(offset));
  kernel.set_value(index++, static_cast<cl_uint>(keys));
  kernel.set_bytes(index++, keep.threshold.bytes, keep.threshold.size);
  kernel.set_bytes(index++, keep.scale.bytes, keep.scale.size);
  kernel.enqueue(queue, NDRange::grid(keys, rows, group_of_elements(queue.device()), 1));
}

}  // namespace ocl::attention
