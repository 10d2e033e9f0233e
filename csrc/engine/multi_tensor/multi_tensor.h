// The multi-tensor engine: one launch over all tensors of a list. What doesn't fit a kernel's
// parameters it reads from a table in device memory.
// Kernels are those of kernels/multi_tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/FunctionRef.h>

#include <span>

#include "opencl/kernel.h"
#include "opencl/kernel_family.h"

namespace ocl::multi_tensor {

/// One list of a multi-tensor op.
struct Operand {
  enum Access { read, written, single, number };
  at::TensorList tensors;
  /// `single`: one element per tensor (a step count), not as many elements as the others have; one
  /// tensor may serve for all. `number`: no tensors, a host number for each, or one for all.
  Access access = read;
  c10::ArrayRef<c10::Scalar> numbers = {};
};

/// Sets the arguments that come after the tensors, from that index on.
using SetArguments = c10::function_ref<void(Kernel&, cl_uint)>;

/// Runs the kernel over entry i of every list, for all i. All lists are of one length, the tensors
/// of an entry of one shape and all of one floating dtype and device, which the caller has checked.
/// Tensors that don't lie alike in memory are copied, and copied back where written. `defines` come
/// after those of kernels/multi_tensor/tensors.clh.
void run(const KernelFamily& family, std::span<const Operand> operands,
         std::span<const Define> defines, SetArguments set_arguments);

/// Elements in a chunk of a tensor of that dtype: work-items that serve one may store what they
/// made of it.
size_t chunk(Device& device, at::ScalarType dtype);

/// Throws RuntimeError unless every list has as many tensors as `first`, of its tensors' shapes,
/// device and dtype (`single` lists: one float each).
void check(const char* op, std::span<const Operand> operands);

}  // namespace ocl::multi_tensor
