// segment_reduce and its gradient, by lengths or by offsets of the segments.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ReductionType.h>
#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "engine/dtype.h"
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
constexpr size_t kLocalSize = 64;
constexpr uint64_t kWidth = 16, kSpan = 16 * kWidth;  // of rows on CPUs
constexpr size_t kRowsPerGroup = 8;

/// SegmentArgs of kernels/reduce/segments.cl.
struct Arguments {
  uint64_t data_offset, offsets_offset, out_offset, grad_offset, result_offset;
  uint64_t length, segments, inner, results;
};

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
  /// Places the operands and enqueues, one work-item per result.
  void run(const KernelFamily& family, const at::Tensor& results,
           std::initializer_list<std::pair<const at::Tensor*, uint64_t Arguments::*>> operands) {
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
    cl_uint index = 0;
    for (const auto& [operand, offset] : operands) {
      // Data without elements has no memory, and is not read.
      const Location location = device.addresses().find(
          operand->numel() > 0 ? operand->const_data_ptr() : results.const_data_ptr());
      arguments.*offset = location.offset;
      kernel.set_buffer(index++, location.mem);
    }
    kernel.set_value(index++, arguments);
    kernel.set_bytes(index++, start.bytes, start.size);
    static const uint32_t site = message_site("segment_reduce: Expected segment_length >= 0");
    kernel.set_buffer(index++, device.asserts().mem());
    kernel.set_value(index, site);
    if (by_rows) {
      kernel.enqueue(queue, NDRange::grid((arguments.inner + kSpan - 1) / kSpan,
                                          arguments.results / arguments.inner, 1, kRowsPerGroup));
    } else {
      kernel.enqueue(queue, NDRange::linear(arguments.results, kLocalSize));
    }
  }

  Queue& queue;
  Device& device;
  const ReductionType reduction;
  const at::ScalarType dtype, compute;
  const at::Tensor data, offsets;
  const bool starts;
  std::vector<int64_t> sizes;  // of the results
  ScalarArgument start;
  Arguments arguments{};
};

at::Tensor offsets_of(const at::Tensor& lengths) {
  return at::constant_pad_nd(at::cumsum(lengths, -1, lengths.scalar_type()), {1, 0}, 0);
}

}  // namespace

at::Tensor segment_reduce_offsets(ReductionType reduction, const at::Tensor& data,
                                  const at::Tensor& offsets, int64_t axis, const Initial& initial) {
  Problem problem(reduction, data, offsets, axis, initial);
  at::Tensor out = at::empty(problem.sizes, data.options());
  problem.run(forward_family, out,
              {{&problem.data, &Arguments::data_offset},
               {&problem.offsets, &Arguments::offsets_offset},
               {&out, &Arguments::out_offset}});
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
  problem.run(backward_family, grad,
              {{&problem.data, &Arguments::data_offset},
               {&problem.offsets, &Arguments::offsets_offset},
               {&grad, &Arguments::grad_offset},
               {&output, &Arguments::result_offset},
               {&out, &Arguments::out_offset}});
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
