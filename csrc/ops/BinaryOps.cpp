#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/result_type.h>
#include <c10/core/DefaultDtype.h>

#include "engine/pointwise.h"
#include "ops/ldexp.h"

namespace ocl::native {

namespace {

const pointwise::Op ldexp_op{"ldexp", 0, pointwise::flag::compute_in_output};

/// Scaling by a power of two that need not be representable itself; into `out` if that is defined.
at::Tensor scale(const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
  const c10::ScalarType dtype =
      self.is_floating_point() ? self.scalar_type() : c10::get_default_dtype_as_scalartype();
  auto iter = at::TensorIteratorConfig()
                  .add_output(out)
                  .add_const_input(self)
                  .add_const_input(other)
                  .check_all_same_dtype(false)
                  .declare_static_dtype(out.defined() ? out.scalar_type() : dtype)
                  .build();
  pointwise::run(iter, ldexp_op);
  return iter.output(0);
}

bool has_exponents(const at::Tensor& self, const at::Tensor& other) {
  return at::isIntegralType(other.scalar_type(), /*includeBool=*/true) && !self.is_complex();
}

}  // namespace

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
