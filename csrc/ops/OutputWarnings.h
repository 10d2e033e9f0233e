// Warnings of results given by out=, as CPU torch has them.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <torch/headeronly/version.h>

#include <optional>
#include <type_traits>

namespace ocl::native {

/// CPU torch computes a result of another dtype in a temporary tensor, and warns of resizing both.
/// Bool results of comparisons have none.
template <class Op>
void warn_of_cast_output([[maybe_unused]] const Op& op, [[maybe_unused]] const at::Tensor& out,
                         [[maybe_unused]] c10::IntArrayRef sizes) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  if constexpr (std::is_base_of_v<at::TensorIteratorBase, Op>) {
    const std::optional<c10::ScalarType> computed = op.maybe_common_dtype();
    if (computed && *computed != out.scalar_type() && out.scalar_type() != at::kBool) {
      (void)at::native::resize_output_check(out, sizes);
    }
  }
#endif
}

}  // namespace ocl::native
