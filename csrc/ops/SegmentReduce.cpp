// segment_reduce and its gradient, by lengths or by offsets of the segments.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ReductionType.h>
#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/ceil_div.h"
#include "opencl/device_assert.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

using at::native::ReductionType;
using Initial = std::optional<at::Scalar>;

const KernelFamily forward_family{"reduce/segments.cl", "segment_reduce"};
const KernelFamily rows_family{"reduce/segments.cl", "segment_reduce_rows"};
const KernelFamily backward_family{"reduce/segments.cl", "segment_reduce_backward"};

using namespace kernel_types;
#include "reduce/segment_arguments.clh"

constexpr uint64_t kWidth = 16, kSpan = kSpanVectors * kWidth;  // of rows on CPUs

struct Problem {
  Problem(ReductionType reduction_, const at::Tensor& data_, const at::Tensor& offsets_,
          int64_t axis, const Initial& initial)
      : queue(current_queue(data_.device().index())),
        device(queue.device()),
        reduction(reduction_),
        dtype(data_.scalar_type()),
        compute(compute_dtype(dtype)),
        data(data_.contiguous()),
        offsets(offsets_.contiguous()),
        starts(initial.has_value()) {
    TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(dtype),
                                "\"segment_reduce\" not implemented for '", dtype, "'");
    TORCH_CHECK_INDEX(axis < data.dim() && axis < offsets.dim(), "segment_reduce: dimension ", axis,
                      " of data with ", data.dim(), " and offsets with ", offsets.dim());
    sizes = data.sizes().vec();
    arguments.length = sizes[axis];
    arguments.segments = offsets.size(axis) - 1;
    sizes[axis] = offsets.size(axis) - 1;
    arguments.inner = 1;
    for (int64_t d = axis + 1; d < data.dim(); ++d) arguments.inner *= sizes[d];
    start = scalar_argument(compute, initial.value_or(0));
  }
  /// Enqueues, one work-item per result. `operands`: what comes after data and offsets.
  template <class... Operands>
  void run(const KernelFamily& family, const at::Tensor& results, const Operands&... operands) {
    arguments.results = results.numel();
    if (arguments.results == 0) return;
    const bool by_rows = &family == &forward_family && device.is_cpu() && arguments.inner >= kWidth;
    Kernel& kernel = (by_rows ? rows_family : family)
                         .get(device, {{"E", tag(dtype)},
                                       {"C", tag(compute)},
                                       {"INDEX", tag(offsets.scalar_type())},
                                       {"REDUCE", static_cast<int>(reduction)},
                                       {"INITIAL", starts},
                                       {"WIDTH", kWidth}});
    static const uint32_t site = message_site("segment_reduce: Expected segment_length >= 0");
    const NDRange range =
        by_rows ? NDRange::grid(ceil_div(arguments.inner, kSpan),
                                arguments.results / arguments.inner, 1, group_of_lanes(device))
                : element_range(queue.device(), arguments.results);
    // Data without elements has no memory, and is not read.
    launch(kernel, queue, range, Pointer{data.const_data_ptr()}, Pointer{offsets.const_data_ptr()},
           Pointer{operands.const_data_ptr()}..., arguments, start, device.asserts().mem(), site);
  }

  Queue& queue;
  Device& device;
  const ReductionType reduction;
  const at::ScalarType dtype, compute;
  const at::Tensor data, offsets;
  const bool starts;
  std::vector<int64_t> sizes;  // of the results
  ScalarArgument start;
  SegmentArguments arguments{};
};

at::Tensor offsets_of(const at::Tensor& lengths) {
  return at::constant_pad_nd(at::cumsum(lengths, -1, lengths.scalar_type()), {1, 0}, 0);
}

}  // namespace

at::Tensor segment_reduce_offsets(ReductionType reduction, const at::Tensor& data,
                                  const at::Tensor& offsets, int64_t axis, const Initial& initial) {
  Problem problem(reduction, data, offsets, axis, initial);
  at::Tensor out = at::empty(problem.sizes, data.options());
  problem.run(forward_family, out, out);
  return out;
}

at::Tensor segment_reduce_lengths(ReductionType reduction, const at::Tensor& data,
                                  const at::Tensor& lengths, int64_t axis, const Initial& initial) {
  return segment_reduce_offsets(reduction, data, offsets_of(lengths), axis, initial);
}

at::Tensor segment_reduce_offsets_backward(const at::Tensor& grad_, const at::Tensor& output_,
                                           const at::Tensor& data, ReductionType reduction,
                                           const at::Tensor& offsets, int64_t axis,
                                           const Initial& initial) {
  Problem problem(reduction, data, offsets, axis, initial);
  TORCH_CHECK(grad_.sizes() == problem.sizes && output_.sizes() == problem.sizes,
              "segment_reduce: the gradient and the output have sizes ", grad_.sizes(), " and ",
              output_.sizes(), ", not ", at::IntArrayRef(problem.sizes));
  const at::Tensor grad = grad_.contiguous(), output = output_.contiguous();
  at::Tensor out = at::zeros_like(problem.data);
  if (out.numel() == 0) return out;
  problem.run(backward_family, grad, grad, output, out);
  return out;
}

at::Tensor segment_reduce_lengths_backward(const at::Tensor& grad, const at::Tensor& output,
                                           const at::Tensor& data, ReductionType reduction,
                                           const at::Tensor& lengths, int64_t axis,
                                           const Initial& initial) {
  return segment_reduce_offsets_backward(grad, output, data, reduction, offsets_of(lengths), axis,
                                         initial);
}

}  // namespace ocl::native
