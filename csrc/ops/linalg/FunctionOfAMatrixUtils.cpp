#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>

#include "engine/device_table.h"
#include "engine/dtype.h"
#include "engine/kernel_types.h"
#include "opencl/kernel.h"
#include "opencl/kernel_family.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {

constexpr int kOperands = 3, kDims = 16;

const KernelFamily combine_family{"linalg/combine.cl", "linear_combination"};

using namespace kernel_types;
#include "linalg/combine_arguments.clh"

}  // namespace

/// out (operand 0) += the sum over k < terms of in (1) + k * in_step times coefficient (2) + k *
/// term_step.
void linear_combination(at::TensorIterator& iter, int64_t in_step, int64_t term_step,
                        int64_t terms) {
  if (iter.numel() == 0 || terms == 0) return;
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) {
      linear_combination(part, in_step, term_step, terms);
    }
    return;
  }
  const c10::ScalarType dtype = iter.dtype(0);
  TORCH_CHECK_NOT_IMPLEMENTED(dtype == at::kFloat || dtype == at::kDouble ||
                                  dtype == at::kComplexFloat || dtype == at::kComplexDouble,
                              "\"_compute_linear_combination\" not implemented for '",
                              c10::toString(dtype), "'");
  TORCH_CHECK_NOT_IMPLEMENTED(iter.ndim() <= kDims, "linear combination: too many dimensions");
  Queue& queue = current_queue(iter.device(0).index());
  CombineArguments arguments{};
  for (int k = 0; k < kOperands; ++k) {
    for (int d = 0; d < iter.ndim(); ++d) {
      arguments.stride[k][d] = static_cast<uint32_t>(iter.strides(k)[d]);
    }
  }
  for (int d = 0; d < iter.ndim(); ++d) arguments.size[d] = static_cast<uint32_t>(iter.shape()[d]);
  arguments.in_step = in_step;
  arguments.term_step = term_step;
  arguments.terms = static_cast<uint32_t>(terms);
  arguments.n = static_cast<uint32_t>(iter.numel());
  arguments.dims = static_cast<uint32_t>(iter.ndim());
  launch(combine_family.get(queue.device(), {{"C", tag(dtype)}}), queue,
         NDRange::linear(arguments.n, group_of_lanes(queue.device())), Pointer{iter.data_ptr(0)},
         Pointer{iter.data_ptr(1)}, Pointer{iter.data_ptr(2)}, arguments);
}

}  // namespace ocl::native
