// Implementations launch their kernels by these functions (kernels/gemm).
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/gemm/plan.h"
#include "opencl/kernel_family.h"

namespace ocl::gemm {

/// Device memory (none for 0 bytes) until the end of the scope; the allocator keeps stream order.
class Workspace {
 public:
  explicit Workspace(size_t bytes);
  char* data() const { return static_cast<char*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

/// A kernel of kernels/gemm with the plan's types and the implementation's `parameters`.
Kernel& get_kernel(const KernelFamily& family, const Plan& plan,
                   std::span<const Define> parameters = {});

/// Enqueues with the operands of gemm.clh and `extra` (a trailing struct, may be empty).
void launch_gemm(Kernel& kernel, const Plan& plan, const NDRange& range,
                 const void* workspace = nullptr, std::span<const unsigned char> extra = {});

/// The windows' arguments, which follow the operands; nothing where there are no windows.
std::span<const unsigned char> windows_of(const Plan& plan);

/// Copies `lines` lines of `length` elements per batch to `copy`, each contiguous and `pitch`
/// elements after the last. Strides in elements: within a line, from line to line, from batch to
/// batch.
void copy_lines(const Plan& plan, const char* source, size_t element_size, uint64_t stride,
                uint64_t line_stride, uint64_t batch_stride, uint32_t length, uint32_t lines,
                uint64_t pitch, char* copy);

}  // namespace ocl::gemm
