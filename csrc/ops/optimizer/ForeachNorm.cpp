// Norms of a list of tensors, as gradient clipping takes them: a launch or two for all.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_norm_native.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/dtype.h"
#include "engine/multi_tensor/multi_tensor.h"
#include "opencl/ceil_div.h"
#include "opencl/kernel_family.h"
#include "opencl/platform.h"
#include "ops/_foreach_norm.h"

namespace ocl::native {

namespace {

const KernelFamily norm_family{"multi_tensor/norm.cl", "norm_tensors"};

/// kernels/multi_tensor/norm.cl's number for the norms that it has; -1 for others.
int kind_of(const at::Scalar& order) {
  if (!order.isFloatingPoint() && !order.isIntegral(false)) return -1;
  const double p = order.toDouble();
  if (p == 1 || p == 2) return static_cast<int>(p);
  return std::isinf(p) && p > 0 ? 0 : -1;
}

bool fits(at::TensorList self, int kind, std::optional<at::ScalarType> dtype) {
  if (kind < 0 || self.empty()) return false;
  const at::ScalarType first = self[0].scalar_type();
  return at::isFloatingType(first) && !c10::isFloat8Type(first) && dtype.value_or(first) == first &&
         std::all_of(self.begin(), self.end(), [&](const at::Tensor& tensor) {
           // The largest of nothing is an error.
           return tensor.scalar_type() == first && tensor.device() == self[0].device() &&
                  tensor.layout() == at::kStrided && tensor.numel() > 0;
         });
}

}  // namespace

std::vector<at::Tensor> _foreach_norm_scalar(at::TensorList self, const at::Scalar& ord,
                                             std::optional<at::ScalarType> dtype) {
  const int kind = kind_of(ord);
  if (!fits(self, kind, dtype)) return at::native::foreach_tensor_norm_slow(self, ord, dtype);
  Device& owner = device(self[0].device().index());
  const at::TensorOptions options = self[0].options();
  const at::ScalarType compute = compute_dtype(self[0].scalar_type());
  std::vector<at::Tensor> parts(self.begin(), self.end());
  for (bool first = true, last = false; !last; first = false) {
    // A part for each chunk of the parts before.
    const auto chunk = static_cast<int64_t>(multi_tensor::chunk(owner, parts[0].scalar_type()));
    const auto chunks = [&](const at::Tensor& t) { return ceil_div(t.numel(), chunk); };
    int64_t count = 0;
    for (const at::Tensor& part : parts) count += chunks(part);
    last = count == static_cast<int64_t>(parts.size());
    const at::ScalarType to = last ? self[0].scalar_type() : compute;
    const at::Tensor made = at::empty({count}, options.dtype(to));
    std::vector<at::Tensor> next;
    next.reserve(parts.size());
    int64_t start = 0;
    for (const at::Tensor& part : parts) {
      next.push_back(last ? made.select(0, start) : made.narrow(0, start, chunks(part)));
      start += chunks(part);
    }
    const multi_tensor::Operand operands[] = {{parts, multi_tensor::Operand::read},
                                              {next, multi_tensor::Operand::single}};
    const Define defines[] = {{"NORM", kind}, {"FIRST", first}, {"LAST", last}, {"OUT", tag(to)}};
    multi_tensor::run(norm_family, operands, defines, [](Kernel&, cl_uint) {});
    parts = std::move(next);
  }
  return parts;
}

}  // namespace ocl::native
