// Unary ops that need more than a functor.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <limits>

#include "engine/pointwise/pointwise.h"

namespace ocl::native {

namespace {

const pointwise::Op nan_to_num_op{"nan_to_num", 3};

struct Limits {
  double lowest, max;
};

// The stored dtype's limits, not those of the one computed in: a half's infinity becomes 65504.
Limits limits_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
    case at::kComplexDouble:
      return {std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
    case at::kHalf:
    case at::kComplexHalf:
      return {-65504.0, 65504.0};
    case at::kBFloat16:
      return {static_cast<float>(std::numeric_limits<c10::BFloat16>::lowest()),
              static_cast<float>(std::numeric_limits<c10::BFloat16>::max())};
    default:
      return {std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()};
  }
}

}  // namespace

void nan_to_num(at::TensorIteratorBase& iter, std::optional<double> nan,
                std::optional<double> positive_infinity, std::optional<double> negative_infinity) {
  const Limits limits = limits_of(iter.dtype(0));
  const c10::Scalar scalars[] = {nan.value_or(0.0), positive_infinity.value_or(limits.max),
                                 negative_infinity.value_or(limits.lowest)};
  pointwise::run(iter, nan_to_num_op, scalars);
}

}  // namespace ocl::native
