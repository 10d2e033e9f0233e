// logsumexp along any dimensions.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/softmax/logsumexp.h"

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp_native.h>
#include <c10/core/DefaultDtype.h>

#include <bitset>

#include "ops/logsumexp.h"

namespace ocl::native {

namespace {

/// The input as [outer][length][inner] in memory, the length being what is summed.
struct Layout {
  at::Tensor input;
  int64_t outer = 1, length = 1, inner = 1;
};

Layout layout_of(const at::Tensor& self, std::bitset<64> summed) {
  Layout layout;
  c10::DimVector kept, order;
  bool together = true;  // nothing that is kept lies between dimensions that are summed
  int64_t last = -1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!summed[d]) {
      kept.push_back(d);
      continue;
    }
    order.push_back(d);
    layout.length *= self.size(d);
    if (self.size(d) == 1) continue;
    for (int64_t k = last + 1; last >= 0 && k < d; ++k) {
      together = together && (summed[k] || self.size(k) == 1);
    }
    last = d;
  }
  for (const int64_t d : kept) (d < last && together ? layout.outer : layout.inner) *= self.size(d);
  if (!together) {
    kept.append(order.begin(), order.end());
    layout.input = self.permute(kept).contiguous();
    std::swap(layout.outer, layout.inner);
  } else {
    layout.input = self.contiguous();
  }
  return layout;
}

}  // namespace

// Upstream's function does the rest: errors, complex numbers, results of another dtype, and few
// rows that are too long for a work-item.
at::Tensor& logsumexp_out(const at::Tensor& self, at::IntArrayRef dims, bool keepdim,
                          at::Tensor& result) {
  const bool integral = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  const at::ScalarType dtype =
      integral ? c10::get_default_dtype_as_scalartype() : self.scalar_type();
  if (self.numel() == 0 || dims.empty() || !c10::isFloatingType(dtype) ||
      c10::isFloat8Type(dtype) || dtype != result.scalar_type() ||
      self.device() != result.device() || self.is_alias_of(result)) {
    return at::native::logsumexp_out(self, dims, keepdim, result);
  }
  const std::bitset<64> summed = at::native::make_dim_mask(dims, self.dim());
  const Layout layout = layout_of(integral ? self.to(dtype) : self, summed);
  c10::DimVector sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!summed[d]) {
      sizes.push_back(self.size(d));
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  at::native::resize_output(result, sizes);
  at::Tensor dense = result.is_contiguous() ? result : at::empty(sizes, result.options());
  if (!softmax::logsumexp(layout.input, layout.outer, layout.length, layout.inner, dense)) {
    return at::native::logsumexp_out(self, dims, keepdim, result);
  }
  if (!dense.is_same(result)) result.copy_(dense);
  return result;
}

}  // namespace ocl::native
