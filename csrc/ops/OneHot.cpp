// one_hot: upstream's composite function leaves classes out of range to scatter on this device,
// which would report them as its own.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/one_hot_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "engine/index/index.h"

namespace ocl::native {
namespace {

using at::Tensor;

const AssertSite one_hot_site{"one_hot", Raises::runtime_error,
                              "Class values must be smaller than num_classes.",
                              "Class values must be non-negative."};

Tensor one_hot(const Tensor& self, int64_t num_classes) {
  const bool plain = !self.key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                           c10::DispatchKey::Functionalize}));
  if (!plain || self.scalar_type() != at::kLong || self.numel() == 0 ||
      (num_classes < 1 && num_classes != -1)) {
    return at::compositeimplicitautograd::one_hot(self, num_classes);
  }
  if (num_classes == -1) num_classes = std::max<int64_t>(self.max().item<int64_t>() + 1, 1);
  c10::DimVector sizes(self.sizes().begin(), self.sizes().end());
  sizes.push_back(num_classes);
  const Tensor out = at::zeros(sizes, self.options());
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .resize_outputs(false)
                  .add_owned_output(out.select(-1, 0))
                  .add_const_input(self)
                  .build();
  const int64_t stride = out.itemsize();
  index::fill(iter, {num_classes, stride, /*wrap=*/false, one_hot_site}, 1);
  return out;
}

// Composite functions are registered below autograd too, for inference mode.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("one_hot", TORCH_FN(one_hot)); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("one_hot", TORCH_FN(one_hot)); }

}  // namespace
}  // namespace ocl::native
