// Running folds along a dimension: cumsum, cumprod, cummax, cummin, logcumsumexp.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorMeta.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include "engine/dtype.h"
#include "engine/scan/scan.h"
#include "ops/_cummax_helper.h"
#include "ops/_cummin_helper.h"
#include "ops/cumprod.h"
#include "ops/cumsum.h"

namespace ocl::native {

namespace {

using scan::Op;
using scan::State;

constexpr Op sum_op{"sum", State::value, Op::always};
constexpr Op prod_op{"prod"};
constexpr Op logaddexp_op{"logaddexp", State::value, Op::real_doubles};
constexpr Op max_op{"last_max", State::arg};
constexpr Op min_op{"last_min", State::arg};

void cumulate(const char* name, const Op& op, const at::Tensor& self, int64_t dim,
              const at::Tensor& out) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.dim() == 0) {
    out.copy_(self);
    return;
  }
  if (self.numel() == 0) return;
  TORCH_CHECK_NOT_IMPLEMENTED(out.scalar_type() != at::kBool, '"', name,
                              "\" not implemented for 'Bool'");
  // The cast warns about the imaginary part it drops; kernels don't know float8. CPU torch casts
  // whatever has another dtype, which may overlap with the result therefore.
  const bool casts = (self.is_complex() && !out.is_complex()) ||
                     narrows_to_half(self.scalar_type(), out.scalar_type()) ||
                     c10::isFloat8Type(self.scalar_type()) ||
                     (self.scalar_type() != out.scalar_type() && self.is_alias_of(out));
  const at::Tensor source = casts ? self.to(out.scalar_type()) : self;
  at::assert_no_internal_overlap(out);
  at::assert_no_partial_overlap(out, source);
  scan::run(op, source, dim, out);
}

void check_ordered(const char* name, const at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), '"', name, "\" not implemented for '",
                              self.scalar_type(), "'");
}

}  // namespace

TORCH_IMPL_FUNC(cumsum_out)(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType>,
                            const at::Tensor& out) {
  cumulate("cumsum_out_ocl", sum_op, self, dim, out);
}

TORCH_IMPL_FUNC(cumprod_out)(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType>,
                             const at::Tensor& out) {
  cumulate("cumprod_out_ocl", prod_op, self, dim, out);
}

void _cummax_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  check_ordered("cummax_ocl", self);
  scan::run(max_op, self, dim, values, indices);
}

void _cummin_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  check_ordered("cummin_ocl", self);
  scan::run(min_op, self, dim, values, indices);
}

// Behind logcumsumexp_stub.
void logcumsumexp(at::Tensor& result, const at::Tensor& self, int64_t dim) {
  (void)at::maybe_wrap_dim(dim, self.dim());  // raises what the dtype would hide
  const bool floating =
      c10::isFloatingType(self.scalar_type()) && !c10::isFloat8Type(self.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(floating || self.is_complex(),
                              "\"logcumsumexp_out_ocl\" not implemented for '", self.scalar_type(),
                              "'");
  if (!result.sizes().equals(self.sizes())) at::native::resize_output(result, self.sizes());
  cumulate("logcumsumexp_out_ocl", logaddexp_op, self, dim, result);
}

}  // namespace ocl::native
