// bincount.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "engine/count.h"
#include "ops/bincount.h"

namespace ocl::native {

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights,
                    int64_t minlength) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isIntegralType(self.scalar_type(), /*includeBool=*/false),
                              "\"bincount_ocl\" not implemented for '", self.scalar_type(), "'");
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  const auto counted = self.options().dtype(at::kLong);
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({minlength}, counted);
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  const auto [lowest, highest] = at::aminmax(self);
  TORCH_CHECK(lowest.item<int64_t>() >= 0,
              "bincount only supports 1-d non-negative integral inputs.");
  const int64_t top = highest.item<int64_t>();
  TORCH_CHECK(top < std::numeric_limits<int64_t>::max(),
              "maximum value of input overflowed, it should be < ",
              std::numeric_limits<int64_t>::max(), " but got ", top);
  const int64_t bins = std::max(top + 1, minlength);
  if (!weights || !weights->defined()) {
    at::Tensor counts = at::zeros({bins}, counted);
    count(self, counts);
    return counts;
  }
  TORCH_CHECK(weights->dim() == 1 && weights->size(0) == self.size(0),
              "weights should be 1-d and have the same length as input");
  const at::ScalarType dtype = weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  // index_add_ adds in the order of the elements, as CPU torch does.
  return at::zeros({bins}, self.options().dtype(dtype))
      .index_add_(0, self.to(at::kLong), weights->to(dtype));
}

}  // namespace ocl::native
