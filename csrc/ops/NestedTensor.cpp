// What upstream's modules ask before they make a nested tensor.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#include "ops/_nested_tensor_from_mask_left_aligned.h"

namespace ocl::native {

/// Whether nn.TransformerEncoder may turn padded sequences into a nested tensor. There are none on
/// this device: it goes on with padded ones.
bool _nested_tensor_from_mask_left_aligned(const at::Tensor&, const at::Tensor&) { return false; }

}  // namespace ocl::native
