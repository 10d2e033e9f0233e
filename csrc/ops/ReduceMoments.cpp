// var, std, var_mean, std_mean.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sqrt.h>
#include <c10/util/Exception.h>

#include "engine/reduce/reduce.h"
#include "ops/DtypeChecks.h"
#include "ops/std.h"
#include "ops/std_mean.h"
#include "ops/var.h"
#include "ops/var_mean.h"

namespace ocl::native {

namespace {

constexpr reduce::Op variance{"var", reduce::State::moments};
constexpr reduce::Op deviation{"std", reduce::State::moments, reduce::Types::output,
                               /*index_only=*/false, /*root=*/true};

/// A request of one of the four ops.
struct Request {
  const char* name;
  bool root;
  at::OptionalIntArrayRef dims;
  double correction;
  bool keepdim;
};

Request request(const char* name, bool root, at::OptionalIntArrayRef dims,
                const std::optional<at::Scalar>& correction, bool keepdim) {
  return {name, root, dims, correction.value_or(1).toDouble(), keepdim};
}

void check(const at::Tensor& self) {
  TORCH_CHECK(self.layout() == c10::kStrided,
              "std and var only supports strided layout, got: ", self.layout());
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || self.is_complex(),
              "std and var only support floating point and complex dtypes");
}

void compute(const Request& r, const at::Tensor& self, at::Tensor& out, at::Tensor mean) {
  const auto mask = at::native::make_dim_mask(r.dims, self.dim());
  at::native::resize_reduction_result(out, self, mask, r.keepdim, out.scalar_type());
  check_can_cast(self, out);
  const int64_t count = out.numel() == 0 ? 0 : self.numel() / out.numel();
  if (static_cast<double>(count) - r.correction <= 0) {
    TORCH_WARN(r.name, "(): degrees of freedom is <= 0. Correction should be strictly less than ",
               "the reduction factor (input numel divided by output numel).");
  }
  if (count == 0 && out.numel() > 0) {  // whatever the correction makes of no elements
    out.fill_(std::numeric_limits<double>::quiet_NaN());
    if (mean.defined()) {
      at::native::resize_reduction_result(mean, self, mask, r.keepdim, mean.scalar_type());
      mean.fill_(std::numeric_limits<double>::quiet_NaN());
    }
    return;
  }
  TORCH_CHECK(out.numel() != 1 || mean.defined() || !c10::isFloat8Type(out.scalar_type()), r.name,
              ": Unsupported dtype ", out.scalar_type());
  reduce::run(r.root ? deviation : variance, self, mask, r.keepdim, out, mean, {r.correction});
}

at::Tensor empty_result(const Request& r, const at::Tensor& self, at::ScalarType dtype) {
  return at::native::create_reduction_result(self, r.dims, r.keepdim, dtype);
}

/// The variance of a complex variable is that of its parts, summed.
void compute_complex(const Request& r, const at::Tensor& self, at::Tensor& out, at::Tensor mean) {
  const at::ScalarType dtype = c10::toRealValueType(self.scalar_type());
  const Request parts{r.name, false, r.dims, r.correction, r.keepdim};
  at::Tensor real = empty_result(r, self, dtype), imag = empty_result(r, self, dtype);
  at::Tensor real_mean, imag_mean;
  if (mean.defined()) {
    real_mean = empty_result(r, self, dtype);
    imag_mean = empty_result(r, self, dtype);
  }
  compute(parts, at::real(self), real, real_mean);
  compute(parts, at::imag(self), imag, imag_mean);
  // The sum is of the result's dtype on the CPU, but for a complex one.
  if (!out.is_complex()) at::native::resize_output(out, real.sizes());
  at::add_out(out, real, imag);
  if (r.root) at::sqrt_out(out, out);
  if (mean.defined()) at::complex_out(mean, real_mean, imag_mean);
}

at::Tensor& spread_out(const Request& r, const at::Tensor& self, at::Tensor& out) {
  check(self);
  if (self.is_complex()) {
    const at::ScalarType real = c10::toRealValueType(self.scalar_type());
    TORCH_CHECK(at::canCast(real, out.scalar_type()), "result type ", real,
                " can't be cast to the desired output type ", out.scalar_type());
    compute_complex(r, self, out, {});
  } else if (out.is_complex()) {
    at::Tensor real = empty_result(r, self, self.scalar_type());
    at::native::resize_output(out, real.sizes());
    compute(r, self, real, {});
    // CPU torch has a single number of that dtype, and NaNs.
    check_supported(r.name, out.scalar_type(), out.numel() == 1 || self.numel() == 0);
    out.copy_(real);
  } else {
    compute(r, self, out, {});
  }
  return out;
}

at::Tensor spread(const Request& r, const at::Tensor& self) {
  check(self);
  at::Tensor out = empty_result(r, self, c10::toRealValueType(self.scalar_type()));
  return spread_out(r, self, out);
}

std::tuple<at::Tensor, at::Tensor> spread_mean(const Request& r, const at::Tensor& self) {
  check(self);
  at::Tensor out = empty_result(r, self, c10::toRealValueType(self.scalar_type()));
  at::Tensor mean = empty_result(r, self, self.scalar_type());
  if (self.is_complex()) {
    compute_complex(r, self, out, mean);
  } else {
    compute(r, self, out, mean);
  }
  return {out, mean};
}

}  // namespace

at::Tensor var_correction(const at::Tensor& self, at::OptionalIntArrayRef dim,
                          const std::optional<at::Scalar>& correction, bool keepdim) {
  return spread(request("var", false, dim, correction, keepdim), self);
}

at::Tensor& var_correction_out(const at::Tensor& self, at::OptionalIntArrayRef dim,
                               const std::optional<at::Scalar>& correction, bool keepdim,
                               at::Tensor& out) {
  return spread_out(request("var", false, dim, correction, keepdim), self, out);
}

at::Tensor std_correction(const at::Tensor& self, at::OptionalIntArrayRef dim,
                          const std::optional<at::Scalar>& correction, bool keepdim) {
  return spread(request("std", true, dim, correction, keepdim), self);
}

at::Tensor& std_correction_out(const at::Tensor& self, at::OptionalIntArrayRef dim,
                               const std::optional<at::Scalar>& correction, bool keepdim,
                               at::Tensor& out) {
  return spread_out(request("std", true, dim, correction, keepdim), self, out);
}

std::tuple<at::Tensor, at::Tensor> var_mean_correction(const at::Tensor& self,
                                                       at::OptionalIntArrayRef dim,
                                                       const std::optional<at::Scalar>& correction,
                                                       bool keepdim) {
  return spread_mean(request("var_mean", false, dim, correction, keepdim), self);
}

std::tuple<at::Tensor, at::Tensor> std_mean_correction(const at::Tensor& self,
                                                       at::OptionalIntArrayRef dim,
                                                       const std::optional<at::Scalar>& correction,
                                                       bool keepdim) {
  return spread_mean(request("std_mean", true, dim, correction, keepdim), self);
}

}  // namespace ocl::native
