#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "engine/row_major.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "ops/DtypeChecks.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

const KernelFamily cross_family{"linalg/cross.cl", "cross_product"};

using namespace kernel_types;
#include "linalg/cross_arguments.clh"

}  // namespace

void cross(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, int64_t dim) {
  check_supported("cross", result.scalar_type(), result.scalar_type() != at::kBool);
  check_same_dtype(a, result.scalar_type());
  check_same_dtype(b, result.scalar_type());
  if (result.numel() == 0) return;
  const at::Tensor out = result.select(dim, 0), x = a.select(dim, 0), y = b.select(dim, 0);
  const RowMajor layout = row_major(out.sizes(), {out, x, y});
  if (!layout.fits) {
    // In halves, along the longest of the other dimensions.
    int64_t longest = dim == 0 ? 1 : 0;
    for (int64_t d = 0; d < result.dim(); ++d) {
      if (d != dim && result.size(d) > result.size(longest)) longest = d;
    }
    const int64_t half = result.size(longest) / 2, rest = result.size(longest) - half;
    TORCH_CHECK_NOT_IMPLEMENTED(half > 0, "linalg.cross: more than 16 dimensions");
    const auto part = [&](int64_t start, int64_t length) {
      cross(result.narrow(longest, start, length), a.narrow(longest, start, length),
            b.narrow(longest, start, length), dim);
    };
    part(0, half);
    part(half, rest);
    return;
  }
  Queue& queue = current_queue(result.device().index());
  const int64_t bytes = result.element_size();
  CrossArguments arguments{
      {result.stride(dim) * bytes, a.stride(dim) * bytes, b.stride(dim) * bytes},
      static_cast<uint32_t>(layout.n),
      0,
      {},
      {}};
  put_layout(arguments, layout);
  launch(cross_family.get(queue.device(), {{"IN", tag(result.scalar_type())}}), queue,
         NDRange::linear(layout.n, group_of_lanes(queue.device())), Pointer{out.data_ptr()},
         Pointer{x.const_data_ptr()}, Pointer{y.const_data_ptr()}, arguments);
}

}  // namespace ocl::native
