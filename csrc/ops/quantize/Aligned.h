// Operands of kernels that load whole vectors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>

#include <cstdint>

namespace ocl::native {

/// The tensor, or a copy of it that begins at a multiple of so many bytes.
inline at::Tensor aligned(const at::Tensor& tensor, uintptr_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return address % bytes == 0 ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

}  // namespace ocl::native
