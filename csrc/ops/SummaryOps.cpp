// bincount.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "engine/binning/count.h"
#include "engine/device_table.h"
#include "ops/bincount.h"
#include "runtime/stream.h"

namespace ocl::native {

namespace {}

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
    binning::count(self, counts);
    return counts;
  }
  TORCH_CHECK(weights->dim() == 1 && weights->size(0) == self.size(0),
              "weights should be 1-d and have the same length as input");
  const at::ScalarType dtype = weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  const at::Tensor index = self.to(at::kLong), values = weights->to(dtype);
  const auto options = self.options().dtype(dtype);
  const Device& device = current_queue(self.device().index()).device();
  // Work-items of a CPU add where they don't disturb each other, each what a stretch of the
  // elements says, in their order; sums of these are no less exact than CPU torch's.
  const int64_t n = self.numel(), worthwhile = device_row(device).item_elements;
  const int64_t copies =
      !device.is_cpu() ? 1 : std::min({items_of_cores(device) / 2, n / worthwhile, 2 * n / bins});
  if (copies <= 1) return at::zeros({bins}, options).index_add_(0, index, values);
  const int64_t stretch = n / copies, most = stretch * copies;
  const auto stretches = [&](const at::Tensor& all) {
    return all.narrow(0, 0, most).unflatten(0, {copies, stretch});
  };
  at::Tensor sums = at::zeros({copies, bins}, options)
                        .scatter_add_(1, stretches(index), stretches(values))
                        .sum(0);
  if (most == n) return sums;
  return sums.index_add_(0, index.narrow(0, most, n - most), values.narrow(0, most, n - most));
}

}  // namespace ocl::native
