// An epilogue of torch.compile's, which stores in place of an engine's results
// (torch_ocl/inductor/templates/epilogue.py, kernels/include/epilogue.clh).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/modified_kernels.h"
#include "opencl/kernel.h"

namespace ocl {

/// A fused epilogue: source in front of a kernel file, which computes something of each element of
/// a result and stores that in place of the result. It may be handed an element twice: it never
/// reads what it writes.
struct Epilogue {
  const ModifiedKernels& kernels;
  int lanes = 0;                      // the most columns that its functions take; 0: one alone
  std::vector<const void*> operands;  // what it reads and writes, in the order of its parameters
  std::vector<int64_t> numbers;
};

/// The kernels with the epilogue in front of them, if there is one.
inline const KernelFamily& family_with(const Epilogue* epilogue, const KernelFamily& family) {
  return epilogue == nullptr ? family : epilogue->kernels.family(family);
}

/// Sets what the epilogue's functions take (EPILOGUE_PARAMETERS), from argument `index` on.
inline void set_epilogue(Kernel& kernel, cl_uint& index, const Epilogue* epilogue) {
  if (epilogue == nullptr) return;
  for (const void* operand : epilogue->operands) {
    detail::set_argument(kernel, index, Pointer{operand});
  }
  for (const int64_t number : epilogue->numbers) kernel.set_value(index++, cl_long{number});
}

/// launch(), with the epilogue's arguments behind the others.
template <class... Arguments>
void launch_with(const Epilogue* epilogue, Kernel& kernel, Queue& queue, const NDRange& range,
                 const Arguments&... arguments) {
  cl_uint index = 0;
  (detail::set_argument(kernel, index, arguments), ...);
  set_epilogue(kernel, index, epilogue);
  kernel.enqueue(queue, range);
}

}  // namespace ocl
