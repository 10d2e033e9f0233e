#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/result_type.h>

#include <cmath>
#include <limits>

#include "engine/pointwise/pointwise.h"
#include "ops/DtypeChecks.h"
#include "ops/ldexp.h"
#include "ops/pow.h"

namespace ocl::native {

namespace {

const pointwise::Op pow_op{"pow_tensor_scalar", 1, pointwise::flag::scalars_fit};
const pointwise::Op pow_root_op{"pow_tensor_root", 1, pointwise::flag::scalars_fit};
const pointwise::Op ldexp_op{"ldexp", 0, pointwise::flag::compute_in_output};

/// Scaling by a power of two that need not be representable itself; into `out` if that is defined.
at::Tensor scale(const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
  auto iter = at::TensorIteratorConfig()
                  .add_output(out)
                  .add_const_input(self)
                  .add_const_input(other)
                  .check_all_same_dtype(false)
                  .allow_cpu_scalars(true)
                  .declare_static_dtype(out.defined() ? out.scalar_type() : self.scalar_type())
                  .build();
  pointwise::run(iter, ldexp_op);
  return iter.output(0);
}

/// Numbers that float doesn't hold become infinite.
double in_single_range(double value) {
  return std::abs(value) > std::numeric_limits<float>::max() ? std::copysign(INFINITY, value)
                                                             : value;
}

/// Whether self is scaled by powers of two instead of multiplied: CPU torch multiplies integers, of
/// which 0 times a power past the range is NaN. Throws for bool exponents of floats, which CPU
/// torch refuses.
bool has_exponents(const at::Tensor& self, const at::Tensor& other) {
  check_supported("ldexp", other.scalar_type(),
                  !self.is_floating_point() || other.scalar_type() != at::kBool);
  return at::isIntegralType(other.scalar_type(), /*includeBool=*/true) && self.is_floating_point();
}

}  // namespace

// Upstream's puts the base on the device, as float64 if it is a float: not all devices have that.
TORCH_IMPL_FUNC(pow_scalar_out)
(const c10::Scalar& base, const at::Tensor& exponent, const at::Tensor& out) {
  if (base.equal(1.0)) {
    out.fill_(1);
  } else {
    at::pow_out(const_cast<at::Tensor&>(out), at::native::wrapped_scalar_tensor(base), exponent);
  }
}

// Behind pow_tensor_scalar_stub. CPU torch takes square roots of all dtypes but half. Past
// complex64's range the exponent becomes infinite, as on the CPU: other scalars there are errors.
void pow_tensor_scalar(at::TensorIteratorBase& iter, const c10::Scalar& exponent) {
  c10::Scalar scalars[] = {exponent};
  if (iter.dtype(0) == at::kComplexFloat) {
    const auto value = exponent.to<c10::complex<double>>();
    scalars[0] = c10::complex<double>(in_single_range(value.real()), in_single_range(value.imag()));
  }
  const bool half_root =
      iter.common_dtype() == at::kHalf && (exponent.equal(0.5) || exponent.equal(-0.5));
  pointwise::run(iter, half_root ? pow_root_op : pow_op, scalars);
}

at::Tensor ldexp_tensor(const at::Tensor& self, const at::Tensor& other) {
  if (!has_exponents(self, other)) return at::mul(self, at::pow(2.0, other));
  return scale(self, other, {});
}

at::Tensor& ldexp_(at::Tensor& self, const at::Tensor& other) {
  return ldexp_out(self, other, self);
}

at::Tensor& ldexp_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  if (!has_exponents(self, other) || !out.is_floating_point()) {
    return at::mul_out(out, self, at::pow(2.0, other));
  }
  scale(self, other, out);
  return out;
}

}  // namespace ocl::native
