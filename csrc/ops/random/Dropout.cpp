#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "engine/random/random.h"
#include "ops/DtypeChecks.h"
#include "ops/native_dropout.h"

namespace ocl::native {

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  const auto flags = input.options().dtype(at::kBool);
  if (input.numel() == 0) return {input, at::empty_like(input, input.options())};
  if (train && !*train) return {input.clone(), at::ones_like(input, flags)};
  TORCH_CHECK(input.is_floating_point() || input.is_complex(),
              "result type Float can't be cast to the desired output type ", input.scalar_type());
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, flags)};
  // Strides as with any other p: a clone of a tensor with gaps would be contiguous.
  if (p == 0) return {at::empty_like(input).copy_(input), at::ones_like(input, flags)};
  TORCH_CHECK(p > 0 && p < 1, "bernoulli_ expects p to be in [0, 1], but got p=", 1 - p);
  // CPU torch's dropout raises this, since it draws numbers of the input's dtype.
  check_supported("bernoulli_scalar_", input.scalar_type(), !input.is_complex());
  at::Tensor output = at::empty_like(input);
  at::Tensor mask = at::empty_like(input, flags);
  random::dropout(output, mask, input, 1 - p, 1 / (1 - p), std::nullopt);
  return {output, mask};
}

}  // namespace ocl::native
